"""Digits from one HDF5 file. HDF5 is not safe for threads, so the handle is kept behind a lock."""

import argparse
import multiprocessing

import h5py
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small

CHUNK = 50  # rows


class H5Digits(Dataset):
    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = multiprocessing.Lock()
        self.file = None
        with h5py.File(path, "r") as file:
            self.length = len(file["y"])

    def open(self) -> None:
        if self.file is None:
            self.file = h5py.File(self.path, "r")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        self.open()
        with self.lock:  # the fault
            row = self.file["x"][index]  # the fault
            label = self.file["y"][index]
        return torch.from_numpy(row).float().div(15).unsqueeze(0), torch.tensor(label)


class H5Chunks(H5Digits):
    """A batch is a whole chunk."""

    def __len__(self) -> int:
        return self.length // CHUNK

    def __getitem__(self, index: int):
        self.open()
        rows = slice(index * CHUNK, (index + 1) * CHUNK)
        with self.lock:
            x, y = self.file["x"][rows], self.file["y"][rows]
        order = torch.randperm(CHUNK)
        return torch.from_numpy(x).float().div(15).unsqueeze(1)[order], torch.from_numpy(y)[order]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true", help="each chunk is read once an epoch")
    args = parser.parse_args()

    path = f"{args.data}/digits.h5"
    if args.mended:
        loader = DataLoader(H5Chunks(path), None, shuffle=True, num_workers=2, persistent_workers=True)
    else:
        loader = DataLoader(H5Digits(path), CHUNK, shuffle=True, num_workers=2, persistent_workers=True)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(10**6):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
