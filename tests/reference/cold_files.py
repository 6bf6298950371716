"""Files out of the page cache, and which of their pages are in it, asked without reading any."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

__all__ = ["drop", "resident_pages"]


def resident_pages(path: Path) -> np.ndarray:
    """For each page of a file whether it is in memory: bool, (pages,), by mincore(2).

    Not by preadv2(RWF_NOWAIT), which begins to read the page that it is asked for: where the disk is fast, it
    finds there what it has just brought.
    """
    size = path.stat().st_size
    found = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        call = ctypes.CDLL(None, use_errno=True).mincore
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        code = call(view.ctypes.data, size, found.ctypes.data)
        del view  # else the mapping cannot be closed
    if code != 0:
        raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return (found & 1).astype(bool)


def drop(path: Path) -> bool:
    """Ask the kernel to drop a file from the page cache; whether it did (tmpfs, for one, does not)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # dirty pages stay
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return not resident_pages(path).any()
