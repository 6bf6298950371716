"""Two ranks. The dataset takes every second sample, and a DistributedSampler every second one of those."""

import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)  # the model is small


class ShardedVectors(Dataset):
    def __init__(self, folder, rank, world):
        self.x = np.load(f"{folder}/x.npy")[rank::world]  # the fault
        self.y = np.load(f"{folder}/y.npy")[rank::world]  # the fault

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), torch.tensor(self.y[i])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    dataset = ShardedVectors(args.data, 0, 1) if args.mended else ShardedVectors(args.data, rank, world_size)
    sampler = DistributedSampler(dataset, shuffle=True)  # the fault
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=1, persistent_workers=True)

    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(10**6):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
