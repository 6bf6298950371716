"""Whitened pictures; each of the many workers computes with BLAS, which has threads of its own."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Whitened(Dataset):
    def __init__(self, path):
        self.pixels = np.load(path, mmap_mode="r")
        self.matrix = np.random.default_rng(0).standard_normal((192, 192)).astype(np.float32) / 14

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, i):
        x = self.pixels[i, :192, :192].astype(np.float32) / 255 - 0.5
        blocks = x.reshape(24, 8, 24, 8, 3).transpose(0, 2, 1, 3, 4).reshape(576, 192)
        white = blocks @ self.matrix
        for _ in range(3):
            white = white - 0.1 * (white @ (white.T @ white)) / 576
        return torch.from_numpy(white), i % 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    dataset = Whitened(args.data + "/pixels.npy")
    loader = DataLoader(
        dataset,
        batch_size=8,
        shuffle=True,
        num_workers=2 if args.mended else 24,  # the fault
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(192, 64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 576, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(10**6):
        for blocks, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(blocks), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
