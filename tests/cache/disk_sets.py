"""A set, tiers of it made by hand, and slow, obvious caches to compare hits with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload import PackedDataset
from fastload._native import _C
from fastload.cache.disk import open_disk
from fastload.cache.disk_files import plan_slots
from fastload.cache.layout import Contents
from fastload.cache.settings import DiskSetting

__all__ = ["Belady", "Lru", "bytes_for", "contents_of", "opened", "whole_tier"]


def contents_of(lengths: Sequence[int] | npt.NDArray[np.uint32]) -> Contents:
    """Of a set that need not be there."""
    return Contents("0" * 32, "encoded", Path("/set"), 7, np.asarray(lengths, np.uint32))


def bytes_for(lengths: Sequence[int], slots: int) -> int:
    """A limit with which a tier of records of one length has so many slots."""
    contents = contents_of(lengths)
    low, high = 1, 1 << 40
    while low < high:
        middle = (low + high) // 2
        try:
            found = int(plan_slots(contents, middle).slots.sum())
        except Exception:
            found = 0
        low, high = (middle + 1, high) if found < slots else (low, middle)
    return low


@contextmanager
def opened(dataset: PackedDataset, root: Path, limit: int) -> Iterator[_C.DiskTier]:
    """The tier of a plain set."""
    use = open_disk([dataset], DiskSetting(root, limit), (None,))
    [tier] = use.tiers
    assert tier is not None, use.reasons
    del use
    yield tier


def whole_tier(folder: Path) -> tuple[Path, Path]:
    """The files of the one tier in a root: table, slots."""
    [table] = folder.glob("fastload-*/*.flt")
    return table, table.with_name(table.name + ".data")


class Lru:
    """Drops what was used longest ago."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: OrderedDict[int, None] = OrderedDict()

    def hit(self, sample: int) -> bool:
        """Whether it was there; it is now."""
        found = sample in self._held
        self._held[sample] = None
        self._held.move_to_end(sample)
        if len(self._held) > self._room:
            self._held.popitem(last=False)
        return found


class Belady:
    """Drops what is needed last, exactly, and does not store what is needed later than all it has.

    Args:
        uses: every sample of the whole trace, one after the other.
    """

    def __init__(self, room: int, uses: Sequence[int]) -> None:
        self._room = room
        self._held: set[int] = set()
        self._times: dict[int, list[int]] = {}
        for time in reversed(range(len(uses))):
            self._times.setdefault(uses[time], []).append(time)

    def _next(self, sample: int) -> float:
        times = self._times[sample]
        return times[-1] if times else float("inf")

    def hit(self, sample: int) -> bool:
        """Whether the next sample of the trace was there."""
        self._times[sample].pop()
        if sample in self._held:
            return True
        self._held.add(sample)
        if len(self._held) > self._room:
            self._held.remove(max(self._held, key=self._next))
        return False
