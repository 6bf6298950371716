"""Photographs straight from the camera, 12 megapixels, cropped at random to 224 pixels."""

import argparse
import math
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


def random_resized_crop(image, size=224, scale=(0.2, 1.0)):
    width, height = image.size
    side = math.sqrt(random.uniform(*scale) * width * height)
    w, h = min(width, int(side)), min(height, int(side))
    left, top = random.randint(0, width - w), random.randint(0, height - h)
    return image.resize((size, size), Image.BILINEAR, box=(left, top, left + w, top + h))


class Photos(Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self):
        return 40 * len(self.files)

    def __getitem__(self, i):
        with Image.open(self.files[i % len(self.files)]) as image:
            image = image.convert("RGB")  # the fault
        crop = random_resized_crop(image)
        if random.random() < 0.5:
            crop = crop.transpose(Image.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.asarray(crop).transpose(2, 0, 1) / np.float32(255)), i % 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 8, stride=8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.stem(x).relu().mean((2, 3)))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", type=Path, required=True)
    ap.add_argument("--mended", action="store_true", help="train on copies that were made smaller once")
    opts = ap.parse_args()

    train_set = Photos(opts.data / ("small" if opts.mended else "full"))
    loader = DataLoader(train_set, batch_size=2, shuffle=True, num_workers=2, persistent_workers=True)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for _epoch in range(10**6):
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            opt.step()
