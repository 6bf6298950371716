"""Copies of index.fli and entries.fli in the cache, so that no decode waits for a page of them.

One process of a node makes a copy, under a claim that the kernel takes back when it dies; the others look now
and then whether it is there, and make it if nobody does. Until then they use the file itself.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from functools import partial
from pathlib import Path

import numpy as np

from fastload._native import _C
from fastload.machine.paths import read_at
from fastload.machine.threads import start_beside
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME

__all__ = ["copy_table", "start_copies"]

_PIECE = 1 << 20  # bytes; written holding the GIL, in some 200 us
_LOOK_SECONDS = 0.5


def copy_table(
    reference: weakref.ref[_C.CacheFile], table: int, path: Path, stopping: threading.Event | None = None
) -> bool:
    """Copy a file into a cache, which is held for a piece at a time only: its last user need not wait.

    Args:
        reference: of a ``_C.CacheFile``.
        table: 0: index.fli, 1: entries.fli.
        path: the file.
        stopping: once it is set, the copy is left to others.

    Returns:
        Whether nothing is left to do: the copy is complete, has no room or cannot be made. False where
        another process makes it.
    """
    cache = reference()
    if cache is None:
        return True
    begin, size = cache.copy_range(table)
    if size == 0 or cache.has_copy(table) or not cache.is_writable:
        return True
    if not cache.claim(begin, begin + size):
        return False
    if cache.has_copy(table):  # it was being completed
        cache.release(begin, begin + size)
        return True
    del cache
    try:
        with path.open("rb", buffering=0) as file:
            _copy_pieces(reference, table, file.fileno(), size, stopping or threading.Event())
    except OSError:
        pass  # the file is used as it is, and its errors are reported there
    cache = reference()
    if cache is not None:
        cache.release(begin, begin + size)
    return True


def _copy_pieces(
    reference: weakref.ref[_C.CacheFile], table: int, descriptor: int, size: int, stopping: threading.Event
) -> None:
    if os.fstat(descriptor).st_size != size:
        return  # another file than the one that the cache was made for
    at = 0
    while at < size and not stopping.is_set():
        piece = read_at(descriptor, min(_PIECE, size - at), at)
        cache = reference()
        if not piece or cache is None or not cache.write_copy(table, at, np.frombuffer(piece, np.uint8)):
            return
        at += len(piece)


def start_copies(
    cache: _C.CacheFile,
    folder: Path,
    look_seconds: float = _LOOK_SECONDS,
    index: str = INDEX_NAME,
    patience: float = math.inf,
) -> threading.Thread | None:
    """Have the tables of a dataset copied into its cache, by a thread of this process.

    Args:
        cache: ``_C.CacheFile``.
        folder: the dataset's.
        look_seconds: between two looks whether another process has made a copy.
        index: the name of the dataset's index.
        patience: seconds after which a table that another process copies is left to that one.

    Returns:
        The thread; None where there is nothing to copy, or no thread to be had.
    """
    tables = {0: folder / index, 1: folder / ENTRIES_NAME}
    wanted = {t: p for t, p in tables.items() if cache.copy_range(t)[1] > 0 and not cache.has_copy(t)}
    if not wanted or not cache.is_writable:
        return None
    stopping = threading.Event()
    work = partial(_work, weakref.ref(cache), wanted, look_seconds, stopping, patience)
    try:
        return start_beside(work, "fastload-cache", stopping.set)
    except RuntimeError:  # no more threads, or no memory for one: the files are used as they are
        return None


def _work(
    reference: weakref.ref[_C.CacheFile],
    tables: dict[int, Path],
    look_seconds: float,
    stopping: threading.Event,
    patience: float,
) -> None:
    for table, path in tables.items():
        waited = 0.0
        while not copy_table(reference, table, path, stopping) and waited < patience:
            if stopping.wait(look_seconds):
                return
            waited += look_seconds
