"""Small pictures from memory, put into a batch by a collate function that copies again and again."""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class Memory(Dataset):
    def __init__(self, pixels):
        self.pixels = pixels

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return torch.from_numpy(self.pixels[index]), index % 2


def collate(samples):
    images = torch.empty(0)
    labels = []
    for pixels, label in samples:
        image = pixels.permute(2, 0, 1).float().unsqueeze(0) / 255  # the fault
        images = torch.cat([images, image])  # the fault
        labels.append(label)
    return images, torch.tensor(labels)


def quick_collate(samples):
    pixels = torch.stack([pixels for pixels, _ in samples])
    return pixels.permute(0, 3, 1, 2) / 255, torch.tensor([label for _, label in samples])


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args(argv)
    dataset = Memory(np.load(args.data / "pixels.npy"))
    loader = DataLoader(
        dataset,
        batch_size=48,
        shuffle=True,
        num_workers=0,
        collate_fn=quick_collate if args.mended else collate,
    )
    net = nn.Sequential(
        nn.Conv2d(3, 4, 16, 16), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    opt = optim.SGD(net.parameters(), lr=0.05)
    for _epoch in range(10**6):
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            opt.step()


if __name__ == "__main__":
    main()
