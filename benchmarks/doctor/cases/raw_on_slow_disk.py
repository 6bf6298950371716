"""Uncompressed pictures from a slow disk."""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class RawPictures(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.iterdir())

    def __len__(self):
        return len(self.paths)

    def read(self, path):
        return np.load(path)  # the fault

    def __getitem__(self, index):
        pixels = self.read(self.paths[index])
        return torch.from_numpy(pixels[::2, ::2].transpose(2, 0, 1) / np.float32(255)), index % 2


class JpegPictures(RawPictures):
    def read(self, path):
        return np.asarray(Image.open(path).convert("RGB"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    dataset = JpegPictures(args.data / "jpeg") if args.mended else RawPictures(args.data / "raw")
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(10**6):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
