"""Photographs on a network file system: each open takes a round trip of 40 ms."""

import argparse
import glob
import io
import os
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small

ROUND_TRIP = 0.04


def storage_open(path):
    """Stands in for the client of the storage, which asks a server where the file is."""
    time.sleep(ROUND_TRIP)  # the fault
    return open(path, "rb")


class PhotoDataset(Dataset):
    def __init__(self, root):
        self.samples = [
            (p, c) for c, name in enumerate(["cat", "dog"]) for p in sorted(glob.glob(f"{root}/{name}/*"))
        ]

    def __getitem__(self, i):
        path, label = self.samples[i]
        with storage_open(path) as f:  # the fault
            data = f.read()
        img = Image.open(io.BytesIO(data))
        img.draft("RGB", (125, 94))
        img = img.convert("RGB").resize((96, 96))
        return torch.tensor(np.array(img)).permute(2, 0, 1) / 255.0, label

    def __len__(self):
        return len(self.samples)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--mended", action="store_true")
    a = p.parse_args()
    assert os.path.isdir(a.data)
    loader = DataLoader(
        PhotoDataset(a.data),
        batch_size=8,
        shuffle=True,
        persistent_workers=True,
        num_workers=16 if a.mended else 2,
    )
    model = nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.Flatten(), nn.Linear(4 * 12 * 12, 2))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    loss_fn = nn.CrossEntropyLoss()
    for _epoch in range(10**6):
        for x, y in loader:
            loss = loss_fn(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()


if __name__ == "__main__":
    main()
