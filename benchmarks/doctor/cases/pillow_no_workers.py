"""Cats and dogs: photographs read with Pillow in the training process."""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class CatsAndDogs(Dataset):
    def __init__(self, root):
        self.paths = sorted(Path(root).glob("*/*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        image = Image.open(path).convert("RGB").resize((128, 128), Image.BILINEAR)
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return x, int(path.parent.name == "dog")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()

    workers = 2 if args.mended else 0
    dataset = CatsAndDogs(args.data)
    loader = DataLoader(
        dataset, 16, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )  # the fault

    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
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
