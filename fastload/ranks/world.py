"""Rank and world size: the only reader of launchers' environment variables."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastload.errors import RankWarning, WorldError
from fastload.machine.messages import stacklevel
from fastload.ranks.mesh import find_place, is_mesh, place_in


@dataclass(frozen=True)
class World:
    """This process's place among those that train together, as in ``torch.distributed``."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    has_peers: bool = False  # ranks of other dimensions of a mesh get the same batches

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


#: What torch gives ranks that are outside of a new group: GroupMember.NON_GROUP_MEMBER.
OUTSIDE = -100


def _process_group(group: Any) -> tuple[int, int] | None:
    """Return rank and world size in a process group (None: the default one), without importing torch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    if is_mesh(group):
        return place_in(group)
    rank = int(distributed.get_rank(group))
    if rank < 0:
        raise WorldError(
            f"The process group of ranks= does not include this process, global rank "
            f"{distributed.get_rank()}. Make the loader on the group's ranks only."
        )
    return rank, int(distributed.get_world_size(group))


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise WorldError(f"{name} must be an integer. Found: {environ[name]!r}.") from None


def _variables(environ: Mapping[str, str]) -> tuple[str, tuple[str, str, str, str]] | None:
    """Return the launcher that set variables, torchrun or else SLURM, and their names."""
    for launcher, (rank, size, local_rank, local_size) in _LAUNCHERS.items():
        if launcher == "SLURM" and "SLURM_STEP_ID" not in environ and "SLURM_LOCALID" not in environ:
            continue  # inside a batch script, not a task started by srun
        if launcher == "SLURM" and "SLURM_STEP_NUM_TASKS" in environ:
            size = "SLURM_STEP_NUM_TASKS"  # the shell of salloc is one task, whatever the job has
        if rank in environ or size in environ:
            return launcher, (rank, size, local_rank, local_size)
    return None


def _launched(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return rank and world size by torchrun's variables, else by SLURM's."""
    variables = _variables(environ)
    if variables is None:
        return None
    launcher, (rank, size, _, _) = variables
    for name in (rank, size):
        if name not in environ:
            raise WorldError(
                f"{launcher}'s variables are only partly set: {name} is missing. Set both {rank} and {size}, "
                "or neither, or make the process group before the first batch, or pass "
                "ranks=fastload.Ranks(rank, world_size)."
            )
    return _number(environ, rank), _number(environ, size)


def local_ranks(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return rank and number of ranks on this node: the launcher's, else 0 and 1. Never raises."""
    environ = os.environ if environ is None else environ
    variables = _variables(environ)
    if variables is None:
        return 0, 1
    rank, size = (environ.get(name, "") for name in variables[1][2:])
    local_rank = int(rank) if rank.isdigit() else 0
    # SLURM may say "2(x3)". Some launchers set only the rank, which is a lower bound for the number.
    return local_rank, max(int(size) if size.isdigit() else 1, local_rank + 1 if not size else 1)


def find_world(
    rank: int | None = None,
    world_size: int | None = None,
    environ: Mapping[str, str] | None = None,
    group: Any = None,
) -> World:
    """Find rank and world size: by arguments, process group, torchrun's or SLURM's variables; else 0 of 1.

    ``group`` is a process group or a DeviceMesh of torch.distributed to use instead of the default group. If
    a mesh has other dimensions than data parallelism, the ranks of that count instead; see
    :mod:`fastload.ranks.mesh`. Variables are read only if neither arguments nor a process group say it: some
    launchers set only some of them.

    Raises:
        WorldError: only one of rank and world size is known, they contradict each other, this process is
            not in ``group``, or a mesh does not say which ranks have different data.
    """
    environ = os.environ if environ is None else environ
    check_given(rank, world_size, group)
    if rank is not None and world_size is not None:
        return World(rank, world_size, *local_ranks(environ))
    processes = _process_group(None)
    place = processes if group is None else _process_group(group)
    if processes is not None and group is None and processes[1] > 1:
        place = find_place(processes[1]) or processes
    has_peers = place != processes and (group is None or is_mesh(group))
    return World(*(place or _launched(environ) or (0, 1)), *local_ranks(environ), has_peers)


def find_processes(environ: Mapping[str, str] | None = None) -> World:
    """Find which process of how many this is, by the default process group or the launcher's variables.

    Raises:
        WorldError: variables are only partly set.
    """
    environ = os.environ if environ is None else environ
    return World(*(_process_group(None) or _launched(environ) or (0, 1)), *local_ranks(environ))


_said: set[tuple[str, str]] = set()


def warn_of_whole(dataset: Any, processes: World, site: str) -> None:
    """Warn, once per place in a program, that each rank's loader reads the whole dataset, as torch's does.

    Args:
        dataset: what is read.
        processes: this rank, and how many there are.
        site: where the loader is made.
    """
    name = type(dataset).__name__
    if (name, site) in _said:
        return
    _said.add((name, site))
    count = f"all {len(dataset)} samples" if hasattr(dataset, "__len__") else "all samples"
    warnings.warn(
        f"The loader made in {site} reads {count} of its {name} on each of {processes.size} ranks, as "
        "torch's DataLoader does. That is right if each rank has its own dataset. To divide one "
        "among the ranks pass sampler=DistributedSampler(dataset), or "
        "ranks=torch.distributed.group.WORLD, or the path of the packed set instead of an opened "
        "dataset.",
        RankWarning,
        stacklevel=stacklevel(),
    )


def _is_group(value: Any) -> bool:
    """Whether it is a mesh or a process group, or what torch gives ranks that are outside of a new group."""
    if is_mesh(value) or (type(value) is int and value == OUTSIDE):
        return True
    has = all(callable(getattr(value, name, None)) for name in ("rank", "size"))
    return has and not isinstance(value, type)


def check_given(rank: int | None, world_size: int | None, group: Any) -> None:
    """Check the arguments of :func:`find_world` before anything is looked up.

    Raises:
        TypeError, WorldError: the arguments are not legal.
    """
    for name, value in (("rank", rank), ("world_size", world_size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name} must be an integer. Found: {value!r}.")
    if (rank is None) != (world_size is None):
        raise WorldError(
            f"Ranks has both rank and world_size, or neither. Found: rank={rank}, world_size={world_size}."
        )
    if rank is not None and world_size is not None:
        if group is not None:
            raise WorldError("Ranks has a group, or rank and world_size, not both.")
        World(rank, world_size)
    if group is not None and not _is_group(group):
        raise TypeError(
            "ranks must be fastload.Ranks(rank, world_size), a process group or a DeviceMesh. "
            f"Found: {group!r}."
        )
