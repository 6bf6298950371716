"""A deep, narrow network, trained with one sample a step."""

import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)  # the model is small


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class DeepNet(nn.Module):
    def __init__(self, depth=40, width=64, classes=10):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()

    x = torch.from_numpy(np.load(os.path.join(args.data, "x.npy")))
    y = torch.from_numpy(np.load(os.path.join(args.data, "y.npy")))
    batch_size = 4 if args.mended else 1  # the fault
    loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)

    model = DeepNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    criterion = nn.CrossEntropyLoss()
    for _epoch in range(10**6):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
