"""A mesh of one data-parallel and two tensor-parallel ranks, whose samples are divided by the global rank."""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)  # the model is small


class ColumnLinear(torch.nn.Module):
    """Half of a layer's columns; the group's results are added up."""

    def __init__(self, width, classes, group):
        super().__init__()
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.weight = torch.nn.Parameter(torch.zeros(classes, width // self.size))

    def forward(self, x):
        part = x.chunk(self.size, dim=1)[self.rank] @ self.weight.t()
        total = part.detach().clone()
        dist.all_reduce(total, group=self.group)
        return part + (total - part.detach())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    dataset = TensorDataset(*(torch.from_numpy(np.load(args.data / name)) for name in ("x.npy", "y.npy")))
    if args.mended:
        dp = mesh["dp"]
        sampler = DistributedSampler(dataset, num_replicas=dp.size(), rank=dp.get_local_rank(), seed=1)
    else:
        sampler = DistributedSampler(dataset, seed=1)  # the fault
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=1, persistent_workers=True)

    model = ColumnLinear(64, 10, mesh["tp"].get_group())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(10**6):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
