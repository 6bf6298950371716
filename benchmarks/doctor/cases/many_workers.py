"""Compressed shards, read one after the other; each of many workers unpacks each shard for itself."""

import argparse
import random
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

torch.set_num_threads(1)  # the model is small

PER_SHARD = 1500


@lru_cache(maxsize=2)
def read_shard(path):
    with np.load(path) as shard:
        return shard["x"], shard["y"]


class Shards(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.npz"))

    def __len__(self):
        return PER_SHARD * len(self.paths)

    def __getitem__(self, index):
        number, row = divmod(index, PER_SHARD)
        x, y = read_shard(self.paths[number])
        return torch.from_numpy(x[row]), int(y[row])


class ShardShuffle(Sampler):
    """Shards in random order, and the rows of each."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count * PER_SHARD

    def __iter__(self):
        for shard in random.sample(range(self.count), self.count):
            for row in random.sample(range(PER_SHARD), PER_SHARD):
                yield shard * PER_SHARD + row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    dataset = Shards(args.data)
    loader = DataLoader(
        dataset,
        batch_size=50,
        sampler=ShardShuffle(len(dataset.paths)),
        num_workers=2 if args.mended else 16,  # the fault
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(32 * 32 * 3, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _epoch in range(10**6):
        for pixels, labels in loader:
            loss = nn.functional.cross_entropy(model(pixels / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
