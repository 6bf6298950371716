"""Epochs of two batches for a quick device: workers stay, but at each epoch's start nothing is loaded."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler

torch.set_num_threads(1)  # the model is small


class Pictures(Dataset):
    def __init__(self, root):
        self.paths = sorted(root.glob("*/*.jpg"))[:24]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as image:
            small = image.convert("RGB").resize((64, 64))
        return torch.tensor(np.asarray(small)), i % 2


class Device:
    """Stands in for a GPU, which needs 40 ms for a batch and leaves the CPU alone."""

    def __init__(self):
        self.model = torch.nn.Linear(64 * 64 * 3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def train(self, images, labels):
        loss = torch.nn.functional.cross_entropy(self.model(images.flatten(1) / 255), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.04)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true", help="an epoch goes through the pictures many times")
    args = parser.parse_args()
    dataset = Pictures(args.data)
    repeats = 1000 if args.mended else 1
    sampler = RandomSampler(dataset, replacement=args.mended, num_samples=repeats * len(dataset))  # the fault
    loader = DataLoader(dataset, 12, sampler=sampler, num_workers=2, persistent_workers=True)
    device = Device()
    for _epoch in range(10**6):
        for images, labels in loader:
            device.train(images, labels)


if __name__ == "__main__":
    main()
