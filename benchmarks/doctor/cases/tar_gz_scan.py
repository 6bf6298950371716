"""Tiles in a compressed archive, which is opened and scanned for each of them."""

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class TarTiles(Dataset):
    def __init__(self, archive):
        self.archive = archive
        with tarfile.open(archive, "r:gz") as tar:
            self.names = sorted(tar.getnames())

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        with tarfile.open(self.archive, "r:gz") as tar:  # the fault
            data = tar.extractfile(name).read()  # the fault
        pixels = np.load(io.BytesIO(data))
        return torch.from_numpy(pixels).float().flatten() / 255, int(name[5])


class FolderTiles(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return torch.from_numpy(np.load(self.paths[i])).float().flatten() / 255, int(self.paths[i].name[5])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    dataset = FolderTiles(args.data / "tiles") if args.mended else TarTiles(args.data / "tiles.tar.gz")
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = torch.nn.Linear(64 * 64 * 3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loss_function = torch.nn.CrossEntropyLoss()
    for _epoch in range(10**6):
        for tiles, labels in loader:
            optimizer.zero_grad()
            loss = loss_function(model(tiles), labels)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
