"""Scans of 3x1024x1024 as float32: 12 MB each, stacked by workers into shared memory."""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class Scans(Dataset):
    def __init__(self, path):
        self.scans = np.load(path)

    def __len__(self):
        return 64 * len(self.scans)

    def __getitem__(self, i):
        return torch.from_numpy(self.scans[i % len(self.scans)]), i % 2  # the fault


class Probe(nn.Module):
    """Looks at every sixteenth pixel."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3 * 64 * 64, 2)

    def forward(self, scans):
        x = scans[:, :, ::16, ::16]
        if x.dtype == torch.uint8:
            x = x.float() / 255
        return self.fc(x.flatten(1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true", help="bytes, which the model turns into float32")
    args = parser.parse_args()
    data = Scans(args.data / ("scans_u8.npy" if args.mended else "scans.npy"))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
    model = Probe()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _epoch in range(10**6):
        for scans, labels in loader:
            loss = nn.functional.cross_entropy(model(scans), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
