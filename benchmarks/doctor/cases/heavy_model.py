"""A convolutional network that is all the work: its pictures lie in memory as bytes."""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # another core is the worker's


class Pixels(Dataset):
    def __init__(self, path):
        self.pixels = np.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, i):
        return torch.from_numpy(self.pixels[i, 48:176, 48:176].copy()), i % 2


def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true", help="nothing is wrong with the data: as without")
    args = parser.parse_args()

    loader = DataLoader(
        Pixels(args.data / "pixels.npy"), batch_size=6, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        conv(3, 32),
        conv(32, 64),
        conv(64, 128),
        conv(128, 256),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 2),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    for _ in range(10**6):
        for pixels, labels in loader:
            images = pixels.permute(0, 3, 1, 2).float().div_(255)
            loss = nn.functional.cross_entropy(model(images), labels)  # the fault
            optimizer.zero_grad()
            loss.backward()  # the fault
            optimizer.step()


if __name__ == "__main__":
    main()
