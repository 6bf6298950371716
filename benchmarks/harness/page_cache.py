"""Files out of the page cache, and how much of them is still there: for figures of cold storage."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

__all__ = ["bytes_read", "evict", "resident_share"]


def evict(path: Path) -> float:
    """Ask the kernel to drop the file's pages (posix_fadvise DONTNEED); the share that stayed, 0 to 1.

    Pages stay where a process maps and has touched them, and on tmpfs, which is nothing but page cache.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # dirty pages cannot be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return resident_share(path)


def resident_share(path: Path) -> float:
    """Share of the file's pages that are in the page cache, by mincore(2)."""
    size = path.stat().st_size
    if size == 0:
        return 0.0
    pages = -(-size // mmap.PAGESIZE)
    found = np.zeros(pages, dtype=np.uint8)
    library = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        code = library.mincore(
            ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(found.ctypes.data)
        )
        del view  # else the mapping cannot be closed
    if code != 0:
        raise OSError(ctypes.get_errno(), f"mincore of {path} failed")
    return float((found & 1).mean())


def bytes_read() -> int:
    """Bytes this process has caused to be read from storage."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0
