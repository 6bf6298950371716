"""Which process this is among how many, and on which device: one process, or those that torchrun started."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist

__all__ = ["World", "close_world", "open_world", "sum_over_ranks"]


@dataclass(frozen=True)
class World:
    """A process's place among those that train together."""

    rank: int
    size: int
    local_size: int  # processes on this machine
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process prints, logs and writes checkpoints."""
        return self.rank == 0


def open_world(device: str) -> World:
    """Join torchrun's process group (NCCL on CUDA, else gloo), or be the only process.

    Args:
        device: "auto" (CUDA where there is any), "cuda" or "cpu".
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    place = torch.device("cuda", local_rank) if device == "cuda" else torch.device("cpu")
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if size == 1:
        return World(0, 1, 1, place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    return World(dist.get_rank(), size, int(os.environ.get("LOCAL_WORLD_SIZE", str(size))), place)


def close_world() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        gc.collect()  # DistributedDataParallel's reference cycles end before the group does
        dist.destroy_process_group()


def sum_over_ranks(world: World, values: torch.Tensor) -> torch.Tensor:
    """The element-wise sum of every rank's ``values``; all ranks must call it."""
    if world.size > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values
