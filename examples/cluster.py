"""Cluster: one job on any number of GPUs and nodes, which goes on after it was stopped, on other ranks, too.

    fastload pack photos packed
    torchrun --nproc-per-node 8 examples/cluster.py packed/train --global-batch 1024 --checkpoint run.pt

Ranks share the samples by themselves. Started again on 4 ranks, or on 16, the job gets the batches that it
would have had, as the global batch stays the same. After SIGTERM to any rank, which a scheduler sends before
it takes a node away, all save and leave together. docs/start/cluster.md has SLURM, caches on nodes, memory.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import fastload
from fastload import transforms as T

SIDE = 128


def small_network(classes: int) -> nn.Module:
    """Convolutions without BatchNorm, whose statistics would depend on the number of ranks."""
    layers: list[nn.Module] = []
    for inside, outside in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inside, outside, 3, 2, 1), nn.GroupNorm(8, outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


class Job:
    """A network in training, on this rank."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.ranks, self.file, self.steps = distributed.get_world_size(), given.checkpoint, 0
        if given.global_batch % self.ranks:
            raise SystemExit(
                f"--global-batch {given.global_batch} cannot be divided among {self.ranks} ranks."
            )
        chain = T.Compose(
            [T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)]
        )
        options = {"shuffle": True, "drop_last": True, "seed": 0, "transform": chain}
        self.loader = fastload.DataLoader(given.folder, given.global_batch // self.ranks, **options)
        if not len(self.loader):
            raise SystemExit(
                "The folder has fewer samples than a global batch: pass a smaller --global-batch."
            )
        place = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        self.device = torch.device(place if torch.cuda.is_available() else "cpu")
        torch.manual_seed(0)
        self.plain = small_network(len(self.loader.dataset.classes)).to(self.device)
        self.optimizer = torch.optim.SGD(self.plain.parameters(), 0.05, momentum=0.9)
        if self.file and self.file.exists():
            self.restore()
        self.network = nn.parallel.DistributedDataParallel(self.plain)
        self.told = self.stopping = False  # by a signal to this rank; as all have agreed
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *signalled: Any) -> None:
        """Note SIGTERM: the step that is under way is finished first."""
        self.told = True

    def save(self) -> None:
        """Write the checkpoint; the ranks' are the same, so the first one does it."""
        if not self.file or distributed.get_rank():
            return
        states = {"network": self.plain.state_dict(), "optimizer": self.optimizer.state_dict()}
        written = self.file.with_suffix(".part")
        torch.save({**states, "loader": self.loader.state_dict(), "steps": self.steps}, written)
        os.replace(written, self.file)  # whole, or not at all

    def restore(self) -> None:
        """Go back to the checkpoint."""
        saved = torch.load(self.file, map_location=self.device)
        self.plain.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.loader.load_state_dict(saved["loader"])
        self.steps = saved["steps"]

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Train on a batch; the mean loss of all ranks. All learn here that one of them was told to stop."""
        found = self.network(images.to(self.device))
        loss = nn.functional.cross_entropy(found, labels.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        shared = torch.stack([loss.detach(), torch.tensor(float(self.told), device=self.device)])
        distributed.all_reduce(shared)
        self.stopping = bool(shared[1] > 0)  # a signal that came too late for this step is in the next one
        return shared[0].item() / self.ranks

    def run(self, steps: int, every: int) -> None:
        """Train up to ``steps``, and save after each ``every`` of them and at the end."""
        while not self.stopping and self.steps < steps:
            for images, labels in self.loader:
                loss = self.step(images, labels)
                if distributed.get_rank() == 0:
                    print(f"step {self.steps}: loss {loss:.4f}", flush=True)
                ends = self.stopping or self.steps == steps
                if ends or self.steps % every == 0:
                    self.save()
                if ends:
                    break


def main() -> None:
    """Train on this rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="made by 'fastload pack'")
    parser.add_argument("--global-batch", type=int, default=256, help="samples of a step, over all ranks")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=100, help="steps from one checkpoint to the next")
    parser.add_argument("--checkpoint", type=Path, help="file that all ranks see")
    given = parser.parse_args()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    Job(given).run(given.steps, given.save_every)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
