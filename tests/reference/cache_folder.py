"""A private folder for cache files, in memory where there is room."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastload import Cache

__all__ = ["OpenFolder", "cache_of", "claim_first_record", "memory_folder"]

MEMORY = Path("/dev/shm")


def cache_of(short: Any, **settings: Any) -> Cache:
    """The value for a cache in its short form, with settings that have no short form."""
    if isinstance(short, list):
        size, disk = short
        return cache_of(size, disk=disk, **settings)
    if short == "auto":
        return Cache(**settings)
    if os.fspath(short).startswith("/"):
        return Cache(folder=short, **settings)
    return Cache(short, **settings)


class OpenFolder:
    """A folder and its descriptor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def names(self) -> list[str]:
        """What lies in it."""
        return sorted(os.listdir(self.path))


@contextlib.contextmanager
def memory_folder(otherwise: Path) -> Iterator[OpenFolder]:
    """One in /dev/shm, or in ``otherwise`` where there are no 8 MiB free; removed afterwards."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= 8 << 20
    path = Path(tempfile.mkdtemp(prefix="fastload-test-", dir=MEMORY if roomy else otherwise))
    folder = OpenFolder(path)
    try:
        yield folder
    finally:
        os.close(folder.fd)
        shutil.rmtree(path)


def claim_first_record(path: Path) -> int:
    """Claim the first record of a set that is being warmed, as another warmer does; until it is closed.

    Raises:
        OSError: the file system knows no such locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    # struct flock of x86-64 and 64-bit Arm: type, whence, start, length, pid.
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
    return descriptor
