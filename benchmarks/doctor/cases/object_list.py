"""A catalogue of a million Python objects, which each forked worker comes to copy."""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small

ENTRIES = 1_000_000


class Catalogue(Dataset):
    def __init__(self, vectors):
        self.vectors = vectors
        self.entries = [[f"{i % len(vectors):07d}", i % 10] for i in range(ENTRIES)]  # the fault

    def __len__(self):
        return ENTRIES

    def __getitem__(self, index):
        key, label = self.entries[index]
        return torch.from_numpy(self.vectors[int(key)]), label


class ArrayCatalogue(Catalogue):
    """The same in two arrays, which workers share."""

    def __init__(self, vectors):
        self.vectors = vectors
        self.keys = np.arange(ENTRIES) % len(vectors)
        self.labels = np.arange(ENTRIES) % 10

    def __getitem__(self, index):
        return torch.from_numpy(self.vectors[self.keys[index]]), int(self.labels[index])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    kind = ArrayCatalogue if args.mended else Catalogue
    loader = DataLoader(
        kind(np.load(args.data / "x.npy")),
        batch_size=128,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(10**6):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
