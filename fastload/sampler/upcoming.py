"""When this node first needs each sample in an epoch: the basis on which a disk tier drops records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.sampler.block import BlockOrder
from fastload.sampler.sampler import Sampler, SequentialOrder, ShuffledOrder

NOT_NEEDED = (1 << 16) - 1
_CHUNK = 1 << 16  # positions at a time

Levels = npt.NDArray[np.uint16]


def level_of(position: Any, total: int) -> Any:
    """Return how far in an epoch of ``total`` positions a position is: [0, 65534]."""
    return position * (NOT_NEEDED - 1) // max(1, total)


def needs_all(sampler: Sampler, ranks: range, count: int) -> bool:
    """Return whether these ranks need each of ``count`` samples once in every epoch."""
    is_whole = isinstance(sampler.order, (BlockOrder, SequentialOrder, ShuffledOrder))
    return is_whole and sampler.order.total(0) == count and len(ranks) == sampler.partition.world_size


def use_levels(
    sampler: Sampler, epoch: int, ranks: range, count: int, is_over: Callable[[], bool]
) -> Levels | None:
    """Return the level at which these ranks first need each sample, (count,); NOT_NEEDED: not this epoch.

    Takes O(n) time, mostly without the GIL. Padding is ignored.

    Args:
        sampler: not a user's: that may be read only once, when its epoch begins.
        ranks: those of a node.
        is_over: returns whether the answer is no longer needed; then it is None.
    """
    levels = np.full(count, NOT_NEEDED, np.uint16)
    total, part = sampler.total(epoch), sampler.partition
    chunk = max(1, _CHUNK // part.global_batch) * part.global_batch
    for first in reversed(range(0, total, chunk)):  # a sample's first use is written last
        if is_over():
            return None
        positions = np.arange(first, min(first + chunk, total), dtype=np.int64)[::-1]
        ids, positions = sampler.uses(positions, epoch, ranks)
        levels[ids] = level_of(positions, total)
    return levels
