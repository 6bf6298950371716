"""A batch is fetched by threads, which share one session with the storage, behind a lock."""

import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class Session:
    """A connection to an object store: a request takes some milliseconds."""

    def get(self, path: Path) -> bytes:
        time.sleep(0.006)
        return path.read_bytes()


class StoredTiles(Dataset):
    def __init__(self, folder: Path, mended: bool) -> None:
        self.paths = sorted(folder.glob("*.npy"))
        self.mended = mended
        self.session = Session()
        self.own = None
        self.lock = None
        self.pool = None

    def start(self) -> None:
        """In the worker: locks and threads do not survive a fork."""
        self.lock = threading.Lock()
        self.own = threading.local()
        self.pool = ThreadPoolExecutor(8)

    def fetch(self, index: int):
        path = self.paths[index]
        if self.mended:
            if not hasattr(self.own, "session"):
                self.own.session = Session()
            data = self.own.session.get(path)
        else:
            with self.lock:  # the fault
                data = self.session.get(path)  # the fault
        pixels = np.frombuffer(data, dtype=np.uint8)[-64 * 64 * 3 :].reshape(64, 64, 3)
        return torch.from_numpy(pixels.astype(np.float32) / 255), int(path.stem[-1])

    def __getitems__(self, indices: list):
        if self.pool is None:
            self.start()
        return list(self.pool.map(self.fetch, indices))

    def __getitem__(self, index: int):
        return self.__getitems__([index])[0]

    def __len__(self) -> int:
        return len(self.paths)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    tiles = StoredTiles(args.data / "tiles", args.mended)
    loader = DataLoader(tiles, batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64 * 3, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(10**6):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
