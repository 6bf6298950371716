"""Orders of sets that change: dropped samples left out, another generation of the set from an epoch on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastload.sampler.order import IdArray


@dataclass(frozen=True, eq=False)
class LeftOutOrder:
    """The order of all samples without those that were dropped: the others keep their relative order.

    The dropped samples' positions are looked up once in each epoch, in O(dropped); a position then costs a
    binary search among them.

    Args:
        inner: an order of all samples that has ``places``, the inverse of ``ids``.
        dropped: (d,) int64 sample ids.
    """

    inner: Any
    dropped: IdArray
    repeats = False
    is_drawn = False

    def total(self, epoch: int) -> int:
        """Return the number of samples that remain."""
        return int(self.inner.total(epoch)) - len(self.dropped)

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the sample ids at ``positions`` among those that remain."""
        before = np.searchsorted(_remaining_before(self, epoch), positions, side="right")
        found: IdArray = self.inner.ids(positions + before, epoch)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


@lru_cache(maxsize=16)
def _remaining_before(order: LeftOutOrder, epoch: int) -> IdArray:
    """Return for each dropped sample how many that remain come before it, ascending."""
    places = np.sort(order.inner.places(order.dropped, epoch))
    before: IdArray = places - np.arange(len(places))
    before.setflags(write=False)
    return before


@dataclass(frozen=True, eq=False)
class ChangingOrder:
    """Another order from some epochs on: of a job that goes on with a newer generation of its set.

    Args:
        orders: the first epoch of each order, ascending from 0, and the order.
    """

    orders: tuple[tuple[int, Any], ...]
    repeats = False
    is_drawn = False

    def of(self, epoch: int) -> Any:
        """Return the order of an epoch."""
        return next(order for first, order in reversed(self.orders) if first <= epoch)

    def total(self, epoch: int) -> int:
        """Return the epoch's number of samples."""
        return int(self.of(epoch).total(epoch))

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the sample ids at ``positions`` of the epoch."""
        found: IdArray = self.of(epoch).ids(positions, epoch)
        return found


def whole_order(order: Any) -> Any:
    """Return the order of all samples behind that of a set that changes: of the last epochs, with those that
    were dropped."""
    if isinstance(order, ChangingOrder):
        order = order.orders[-1][1]
    return order.inner if isinstance(order, LeftOutOrder) else order
