"""Batches and ranks by arithmetic: which positions of an epoch's order a rank's step covers.

Every rank computes the same number of batches from the same few integers, so none can run out first.
A global batch is ``world_size * batch_size`` consecutive positions; rank r takes the r-th part. Positions
count from the epoch's beginning; ``start`` is where a resumed epoch goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastload.sampler.order import IdArray

__all__ = ["PADDING", "Partition"]

PADDING = -1  # the position of a padded entry


@dataclass(frozen=True)
class Partition:
    """How an epoch is cut into batches.

    ``padding`` rules the last, partial global batch of several ranks: "mark" spreads its samples as
    evenly as possible and fills up with marked entries (exact evaluation); "repeat" fills up with
    samples from the epoch's beginning, as ``torch.utils.data.DistributedSampler`` does; "end" leaves the
    marked entries to the last ranks, for frameworks that gather batches rank by rank and cut the end off;
    "drop" spreads as "mark" does and fills up with nothing: the last batch of some ranks has one sample less.
    """

    batch_size: int  # samples a rank
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False
    padding: str = "mark"

    @property
    def global_batch(self) -> int:
        """Samples a step over all ranks."""
        return self.batch_size * self.world_size

    def num_batches(self, total: int, start: int = 0) -> int:
        """Batches of each rank from position ``start`` of an epoch of ``total`` samples."""
        left = max(0, total - start)
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    def positions(self, total: int, start: int, step: int) -> IdArray:
        """This rank's positions of the ``step``-th batch after ``start``; ``PADDING`` where padded.

        Returns:
            (n,) int64 with n <= batch_size; n is the same on all ranks (but for "drop"), and is batch_size
            but for an epoch's last batch.
        """
        first = start + step * self.global_batch
        count = min(self.global_batch, total - first)
        if count == self.global_batch:
            return np.arange(self.batch_size, dtype=np.int64) + (first + self.rank * self.batch_size)
        size = -(-count // self.world_size)
        if self.padding == "repeat":
            own = np.arange(size, dtype=np.int64) + (first + self.rank * size)
            return np.where(own < total, own, (own - total) % total)
        if self.padding == "end":
            own = np.arange(size, dtype=np.int64) + (first + self.rank * size)
            return np.where(own < total, own, PADDING)
        begin = first + self.rank * count // self.world_size
        end = first + (self.rank + 1) * count // self.world_size
        if self.padding == "drop":
            return np.arange(begin, end, dtype=np.int64)
        own = np.full(size, PADDING, dtype=np.int64)
        own[: end - begin] = np.arange(begin, end, dtype=np.int64)
        return own

    def ranks_of(self, positions: IdArray) -> IdArray:
        """The ranks that have positions of whole global batches."""
        return positions % self.global_batch // self.batch_size

    def consumed(self, total: int, start: int, steps: int) -> int:
        """The epoch's position after ``steps`` batches from ``start``; at most ``total``."""
        return min(total, start + steps * self.global_batch)
