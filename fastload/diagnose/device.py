"""What the doctor asks of CUDA, where the user's script has begun to use it; it never begins by itself."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from typing import Any

import torch

__all__ = ["SyncWatch", "copy_seconds", "is_in_use", "synchronise"]

_COPIES = 5


def is_in_use() -> bool:
    """Whether this process has initialised CUDA."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def synchronise() -> None:
    """Wait until the device has done what it was given, if there is one in use."""
    if is_in_use():
        torch.cuda.synchronize()


def copy_seconds(nbytes: int, pinned: bool) -> float | None:
    """Seconds in which so many bytes come from the host to the device in use, the median of five copies.

    None where no device is in use, or where there is no room for them (or none that may be pinned).
    """
    if not is_in_use() or nbytes <= 0:
        return None
    try:
        source = torch.empty(nbytes, dtype=torch.uint8, pin_memory=pinned).fill_(1)
        target = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    except RuntimeError:  # torch's error for both
        return None
    times = []
    for _ in range(_COPIES + 1):  # the first one to warm up
        torch.cuda.synchronize()
        begin = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


class SyncWatch:
    """Which lines make the CPU wait for the device, from :meth:`begin` to :meth:`end`.

    By torch's own debug mode, which warns of ``.item()``, ``.cpu()``, ``nonzero()`` and their like; of
    ``torch.cuda.synchronize()`` it does not. Warnings of others are given on afterwards. Without CUDA there
    is nothing to wait for.
    """

    def __init__(self) -> None:
        self._catching: Any = None
        self._caught: list[warnings.WarningMessage] = []
        self._former = 0

    def begin(self) -> None:
        """Where CUDA is in use."""
        if not is_in_use():
            return
        self._former = torch.cuda.get_sync_debug_mode()
        self._catching = warnings.catch_warnings(record=True)
        self._caught = self._catching.__enter__()
        warnings.filterwarnings("always", message=_SYNCHRONISES)
        warnings.filterwarnings("ignore", message=_OF_THE_MODE)  # an error to who makes warnings errors
        torch.cuda.set_sync_debug_mode("warn")

    def end(self) -> list[str] | None:
        """File and line of each, in order and once; None where nobody looked."""
        if self._catching is None:
            return None
        torch.cuda.set_sync_debug_mode(self._former)
        self._catching.__exit__(None, None, None)
        self._catching = None
        found: dict[str, None] = {}
        for one in self._caught:
            if _SYNCHRONISES in str(one.message):
                found[f"{os.path.basename(one.filename)}:{one.lineno}"] = None
            else:
                warnings.showwarning(one.message, one.category, one.filename, one.lineno)
        return list(found)


_SYNCHRONISES = "called a synchronizing CUDA operation"
_OF_THE_MODE = "Synchronization debug mode is a prototype feature"  # what torch says when it is switched on
