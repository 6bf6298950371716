"""A child that is forked does not have a ring's memory, and must not unmap what is in its place."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from fastload.transfer.pipeline import _mapping

SIZE = 1 << 20
FIXED = 0x10  # of mmap(2)


def test_a_child_does_not_unmap_what_is_in_a_rings_place() -> None:
    mapping = _mapping(SIZE)
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    pid = os.fork()
    if pid == 0:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FIXED
        libc.mmap(address, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        del mapping
        ctypes.memset(address, 1, SIZE)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(mapping) == SIZE
