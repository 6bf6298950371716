"""Rank and world size: the only reader of launchers' environment variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastload.errors import WorldError

__all__ = ["World", "find_world"]


@dataclass(frozen=True)
class World:
    """This process among those that train together; as in ``torch.distributed``."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.rank < self.size:
            raise WorldError(
                f"rank must be in [0, world_size). Found: rank={self.rank}, world_size={self.size}."
            )


# (rank, world size, local rank, local world size) of each launcher.
_LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "SLURM": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}


def _process_group(group: Any) -> tuple[int, int] | None:
    """Rank and world size in a process group (None: torch's default one), without importing torch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank = int(distributed.get_rank(group))
    if rank < 0:
        raise WorldError(
            f"process_group does not include this process, global rank {distributed.get_rank()}. Make the "
            "loader on the group's ranks only."
        )
    return rank, int(distributed.get_world_size(group))


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise WorldError(f"{name} must be an integer. Found: {environ[name]!r}.") from None


def _launched(environ: Mapping[str, str]) -> World | None:
    """The world by torchrun's variables, else by SLURM's."""
    for launcher, (rank, size, local_rank, local_size) in _LAUNCHERS.items():
        if launcher == "SLURM" and "SLURM_STEP_ID" not in environ and "SLURM_LOCALID" not in environ:
            continue  # inside a batch script, not a task started by srun
        if launcher == "SLURM" and "SLURM_STEP_NUM_TASKS" in environ:
            size = "SLURM_STEP_NUM_TASKS"  # the shell of salloc is one task, whatever the job has
        if rank not in environ and size not in environ:
            continue
        for name in (rank, size):
            if name not in environ:
                raise WorldError(
                    f"{launcher}'s variables are half set: {name} is missing. Set both {rank} and {size}, "
                    "or neither, or pass rank= and world_size=."
                )
        local = _number(environ, local_rank) if local_rank in environ else 0
        plain = local_size in environ and environ[local_size].isdigit()  # SLURM may say "2(x3)"
        return World(
            _number(environ, rank), _number(environ, size), local, int(environ[local_size]) if plain else 1
        )
    return None


def find_world(
    rank: int | None = None,
    world_size: int | None = None,
    environ: Mapping[str, str] | None = None,
    group: Any = None,
) -> World:
    """Arguments, else the process group, else torchrun's variables, else SLURM's, else one process.

    ``group`` is a process group of torch.distributed to take instead of the default one.

    Raises:
        WorldError: only one of rank and world size is known, they contradict each other, or this process is
            not in ``group``.
    """
    environ = os.environ if environ is None else environ
    launched = _launched(environ)
    local_rank, local_size = (launched.local_rank, launched.local_size) if launched else (0, 1)
    if (rank is None) != (world_size is None):
        raise WorldError(
            f"Pass both rank and world_size or neither. Found: rank={rank}, world_size={world_size}."
        )
    if rank is not None and group is not None:
        raise WorldError("Pass process_group or rank and world_size, not both.")
    if rank is not None and world_size is not None:
        return World(rank, world_size, local_rank, local_size)
    place = _process_group(group)
    if place is not None:
        return World(*place, local_rank, local_size)
    return launched or World()
