"""Rank and world size: the only reader of launchers' environment variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from fastload.errors import WorldError

__all__ = ["World", "available_cores", "find_world"]


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


def _process_group() -> tuple[int, int] | None:
    """Rank and world size of torch's default process group, without importing torch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


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
    rank: int | None = None, world_size: int | None = None, environ: Mapping[str, str] | None = None
) -> World:
    """Arguments, else the process group, else torchrun's variables, else SLURM's, else one process.

    Raises:
        WorldError: only one of rank and world size is known, or they contradict each other.
    """
    environ = os.environ if environ is None else environ
    launched = _launched(environ)
    local_rank, local_size = (launched.local_rank, launched.local_size) if launched else (0, 1)
    if (rank is None) != (world_size is None):
        raise WorldError(
            f"Pass both rank and world_size or neither. Found: rank={rank}, world_size={world_size}."
        )
    if rank is not None and world_size is not None:
        return World(rank, world_size, local_rank, local_size)
    group = _process_group()
    if group is not None:
        return World(*group, local_rank, local_size)
    return launched or World()


def _quota(root: str = "/sys/fs/cgroup") -> float | None:
    """CPU quota of this process's cgroup in cores (v2, else v1 at the mount's root), None without one."""
    for path in (f"{root}/cpu.max", f"{root}/cpu/cpu.cfs_quota_us"):
        try:
            with open(path, encoding="ascii") as file:
                quota, *rest = file.read().split()
            if quota in ("max", "-1"):
                return None
            if not rest:
                with open(f"{root}/cpu/cpu.cfs_period_us", encoding="ascii") as file:
                    rest = file.read().split()
            return int(quota) / int(rest[0])
        except (OSError, ValueError, IndexError):
            continue
    return None


def available_cores(local_size: int = 1) -> int:
    """Cores for one of ``local_size`` processes of this node: affinity mask and cgroup quota, at least 1."""
    cores = float(len(os.sched_getaffinity(0)))
    quota = _quota()
    if quota is not None:
        cores = min(cores, quota)
    return max(1, int(cores / local_size))
