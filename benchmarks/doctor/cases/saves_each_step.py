"""Training that must lose nothing: after each step the loss is on the disk, and the weights too."""

import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class Vectors(Dataset):
    def __init__(self, folder):
        self.x = np.load(os.path.join(folder, "x.npy"))
        self.y = np.load(os.path.join(folder, "y.npy"))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), int(self.y[i])


class Trainer:
    def __init__(self, folder, out, every):
        self.loader = DataLoader(
            Vectors(folder), batch_size=64, shuffle=True, num_workers=1, persistent_workers=True
        )
        self.model = nn.Sequential(
            nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.out = out
        self.every = every
        self.log = open(os.path.join(out, "loss.txt"), "w")  # noqa: SIM115
        self.steps = 0

    def step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        if self.steps % self.every == 0:
            self.keep(loss)

    def keep(self, loss):
        self.log.write(f"{self.steps} {loss.item():.6f}\n")
        self.log.flush()
        os.fsync(self.log.fileno())  # the fault
        torch.save(self.model.state_dict(), os.path.join(self.out, "last.pt"))  # the fault

    def fit(self):
        for _epoch in range(10**6):
            for x, y in self.loader:
                self.step(x, y)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        Trainer(args.data, out, every=500 if args.mended else 1).fit()
