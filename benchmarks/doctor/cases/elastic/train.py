"""Train on pictures that are deformed by the project's own augmentation."""

import argparse
from pathlib import Path

import numpy as np
import torch
from augmentation import CoarseElastic, Elastic
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class DeformedPictures(Dataset):
    def __init__(self, path: Path, transform) -> None:
        self.pixels = np.load(path, mmap_mode="r")
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int):
        pixels = self.pixels[index, 48:176, 48:176]
        if self.transform is not None:
            pixels = self.transform(pixels)
        return torch.from_numpy(pixels / np.float32(255)).permute(2, 0, 1), index % 2


def get_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    return parser.parse_args()


def main() -> None:
    args = get_args()
    dataset = DeformedPictures(args.data / "pixels.npy", CoarseElastic() if args.mended else Elastic())
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _epoch in range(10**6):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
