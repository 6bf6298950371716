"""Two ranks, each with one camera's pictures: those of rank 0 have 16 times the pixels."""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)  # the model is small


class Site(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        image = Image.open(path).convert("RGB").resize((64, 64))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, int(path.parent.name[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--mended", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), int(os.environ["WORLD_SIZE"])
    if args.mended:
        paths = sorted(args.data.glob("site*/*.jpg"))[rank::world]
    else:
        paths = sorted(args.data.glob(f"site{rank}/*.jpg"))  # the fault
    loader = DataLoader(Site(paths), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)
    model = DistributedDataParallel(nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * 64, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _epoch in range(10**6):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
