"""How much memory this process may still use, by the machine and by every cgroup limit from here up."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastload.machine.cpu import cgroup_folders

PAGE_CACHE_SHARE = 0.75  # of the available memory; data below this share stays in the page cache once read


class MemoryRoom(NamedTuple):
    """What is left below one limit."""

    name: str  # "MemAvailable", or the limit's file ("/sys/fs/cgroup/job/memory.max"), for messages
    free: int  # bytes


def memory_rooms(root: str = "/") -> list[MemoryRoom]:
    """Return what is left, including page cache that can be dropped, of the machine's memory and below the
    memory limits (cgroup v1 and v2) of this process's cgroup and those above it. Swap is not counted.

    Without ``/proc`` (some chroots and sandboxes) the limits are unknown, and only the machine's free memory
    counts, without page cache.

    ``root`` is the folder with ``proc`` and ``sys``.
    """
    try:
        lines = (Path(root) / "proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        rooms = [MemoryRoom("MemAvailable", int(fields["MemAvailable"].split()[0]) << 10)]
    except (OSError, ValueError, KeyError):
        pages = max(os.sysconf("SC_AVPHYS_PAGES"), 0)
        rooms = [MemoryRoom("the machine's free memory (there is no /proc/meminfo)", pages * mmap.PAGESIZE)]
    for folder in dict.fromkeys(cgroup_folders("memory", root)):
        rooms += _cgroup_rooms(folder)
    return rooms


def available_memory(root: str = "/") -> int:
    """Return the least of :func:`memory_rooms`, in bytes."""
    return min(room.free for room in memory_rooms(root))


# Limit, usage and the prefix of memory.stat's names: v2 (above memory.high a group is throttled), v1.
_LIMITS = (
    ("memory.max", "memory.current", ""),
    ("memory.high", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)


def _cgroup_rooms(folder: Path) -> Iterator[MemoryRoom]:
    """Yield what is left below the limits of one cgroup; its page cache does not count as used."""
    for limit, usage, prefix in _LIMITS:
        try:
            most = int((folder / limit).read_text())  # ValueError: "max"
            used = int((folder / usage).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        cache = sum(int(stat.get(f"{prefix}{name}_file", 0)) for name in ("active", "inactive"))
        yield MemoryRoom(str(folder / limit), max(0, most - max(0, used - cache)))
