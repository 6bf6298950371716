"""How many bytes a cache file may take: of its file system, and of the memory under every limit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fastload.machine.memory import MemoryRoom, memory_rooms
from fastload.machine.sizes import human_bytes

__all__ = ["Room", "find_room"]

_LEAST_RESERVE = 256 << 20  # bytes of memory that are left to the processes
_RESERVE_SHARE = 20  # at least 1 / this of what is available
_LEAST_LEFT = 256 << 20  # bytes of a file system that are left to others, but no more than half


@dataclass(frozen=True)
class Room:
    """What a cache file may take, and which limit says so.

    Pages of a tmpfs are memory of the cgroup whose process touched them first, so both limits count: over
    the tmpfs's size the system says ENOSPC, over the cgroup's it kills.
    """

    free: int  # bytes that a file may take
    to_spare: (
        int  # the same, leaving something of the file system to others: NCCL and torch use /dev/shm, too
    )
    available: int  # bytes of memory under all limits, of which a reserve is kept
    limit: str  # the name of the limit that gives ``free``
    advice: str  # how it is raised

    def lacking(self, need: int, what: str) -> str:
        """The message for ``what`` that needs ``need`` bytes."""
        free = human_bytes(self.free)
        return f"{what} needs {human_bytes(need)} of memory, but {self.limit} leaves {free}. {self.advice}"


def find_room(folder: Path, root: str = "/", returned: int = 0) -> Room:
    """The room for a new file in ``folder``, which lies on a tmpfs or ramfs.

    Args:
        root: where ``proc`` and ``sys`` lie.
        returned: bytes that are freed before, of files that will be replaced, less those that others will
            still take.
    """
    room = min(memory_rooms(root), key=lambda found: found.free)
    available = max(0, room.free + returned)
    reserve = max(_LEAST_RESERVE, available // _RESERVE_SHARE)
    memory = max(0, available - reserve)
    found = os.statvfs(folder)
    size, free = found.f_blocks * found.f_frsize, max(0, found.f_bavail * found.f_frsize + returned)
    to_spare = max(free // 2, free - max(_LEAST_LEFT, size // _RESERVE_SHARE)) if size > 0 else memory
    if size == 0 or memory <= free:  # 0: a file system without a limit of its own
        limit, advice = _memory_limit(room, available, reserve), _memory_advice(room)
        return Room(memory, min(memory, to_spare), available, limit, advice)
    return Room(
        free,
        to_spare,
        available,
        f"the file system of {folder} ({human_bytes(size)} in all)",
        "Make it larger (docker run --shm-size=..., in Kubernetes an emptyDir with medium: Memory, elsewhere "
        "mount -o remount,size=...), or give another folder in memory",
    )


def _memory_limit(room: MemoryRoom, available: int, reserve: int) -> str:
    name = "the machine's memory" if room.name == "MemAvailable" else f"the memory limit {room.name}"
    kept = f"of {human_bytes(available)} that are available {human_bytes(reserve)} stay with the processes"
    return f"{name} ({kept})"


def _memory_advice(room: MemoryRoom) -> str:
    if room.name == "MemAvailable":
        return "Free memory ('fastload cache ls' shows what caches hold)"
    return "Raise the limit (docker run --memory=..., SLURM --mem=..., systemd MemoryMax=)"
