"""Batches of pictures of similar shape: each batch has samples of one bucket of aspect ratios.

A picture's size in the index determines its bucket. Each bucket has its own order of samples and is cut into
global batches; the rest of a bucket is one smaller global batch. The global batches of all buckets are then
shuffled. All of it is a function of seed, epoch and the size of a global batch, so each sample comes once,
any number of ranks share the same global batches, and resuming in the middle is arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import StateError
from fastload.machine.sizes import counted
from fastload.sampler.keyed import KeyedSampler
from fastload.sampler.order import PADDING, IdArray, Partition, derived_seed, shuffled
from fastload.sampler.sampler import BatchIds, Sampler

_AT_ONCE = 1 << 18  # pictures that are compared with all buckets at a time
_MOST_BUCKETS = 1 << 15


def buckets_of(pictures: npt.NDArray[Any], sizes: Sequence[tuple[int, int]]) -> npt.NDArray[np.int16]:
    """Return the bucket of each picture: the nearest aspect ratio by logarithm; ties go to the first.

    Args:
        pictures: (n, 2) height and width.
        sizes: (height, width) of each bucket.
    """
    wanted = np.array(sizes, np.float64)
    buckets = np.empty(len(pictures), np.int16)
    for first in range(0, len(pictures), _AT_ONCE):
        part = pictures[first : first + _AT_ONCE].astype(np.float64)
        # A quotient of integers replaces the logarithms, as the core gets exactly the same bits.
        a, b = part[:, 1:] * wanted[:, 0], part[:, :1] * wanted[:, 1]
        buckets[first : first + _AT_ONCE] = (np.maximum(a, b) / np.minimum(a, b)).argmin(1)
    return buckets


class BucketSampler(KeyedSampler):
    """``sampler=`` of a DataLoader for batches of pictures of similar shape (docs/guide/samplers.md).

    Args:
        pictures: a packed dataset, whose index has the sizes; or (n, 2) height and width of all samples.
        sizes: (height, width) of each bucket, of which only the aspect ratio matters here.
        shuffle: False: one bucket after the other, each in the order of its samples.

    Raises:
        TypeError, ValueError: the sizes are invalid, or the index does not have that of a picture.
    """

    def __init__(self, pictures: Any, sizes: Sequence[tuple[int, int]], shuffle: bool = True) -> None:
        self.sizes = tuple((int(height), int(width)) for height, width in sizes)
        self.shuffle = shuffle
        if not 0 < len(self.sizes) <= _MOST_BUCKETS or min(map(min, self.sizes)) < 1:
            raise ValueError(f"sizes must be one or more (height, width), each >= 1. Found: {list(sizes)}.")
        known = _sizes_of(pictures)
        bad = np.flatnonzero((known < 1).any(1))
        if len(bad):
            raise ValueError(
                f"The size of {counted(len(bad), 'picture')} is not known, the first is sample {bad[0]}. "
                "'fastload verify' lists pictures that cannot be read; leave them out by a Subset."
            )
        self._buckets = buckets_of(known, self.sizes)

    def __repr__(self) -> str:
        pictures = counted(len(self._buckets), "picture")
        return f"BucketSampler({pictures}, {counted(len(self.sizes), 'bucket')}, shuffle={self.shuffle})"

    def __len__(self) -> int:
        return len(self._buckets)

    def order(self, n: int, seed: int) -> Any:
        if len(self._buckets) != n:
            raise ValueError(
                f"BucketSampler must know the size of {n} pictures, those of the dataset. Found: "
                f"{len(self._buckets)}."
            )
        return _Bucketed(self._buckets, len(self.sizes), self.shuffle, seed)

    def batches(self, order: Any, partition: Partition) -> Sampler:
        if partition.padding == "drop":
            raise ValueError(
                "padding='drop' and BucketSampler exclude each other: a bucket's last batch may be too small "
                "for all ranks. Use fastload.valid(batch) instead."
            )
        return _BucketBatches(order, partition)


def _sizes_of(pictures: Any) -> npt.NDArray[Any]:
    parts = getattr(pictures, "parts", None)
    if parts is None:
        known = np.asarray(pictures)
        if known.ndim != 2 or known.shape[1] != 2 or known.dtype.kind not in "iu":
            raise TypeError(
                "BucketSampler takes a packed dataset, or an array (n, 2) of heights and widths. Found: "
                f"{type(pictures).__name__} of shape {known.shape}."
            )
        return known
    records = [part.records for part in parts]
    known = np.concatenate([np.stack([one["height"], one["width"]], 1) for one in records])
    places = getattr(pictures, "sample_ids", None)
    return known if places is None else known[places]


class _Bucketed:
    """The order of samples; positions count along the epoch's batches, so it depends on their size."""

    repeats = False
    is_drawn = False

    def __init__(self, buckets: npt.NDArray[np.int16], count: int, shuffle: bool, seed: int) -> None:
        self.counts = np.bincount(buckets, minlength=count)
        self._begins = np.cumsum(self.counts) - self.counts
        ids = np.argsort(buckets, kind="stable")
        self._ids = ids.astype(np.int32) if len(ids) < 2**31 else ids
        self.shuffle = shuffle
        self._seed = seed
        self._global_batch, self._drop_last = 1, False
        self.cut(1, False)

    def cut(self, global_batch: int, drop_last: bool) -> None:
        """Cut the buckets into batches of ``global_batch`` samples over all ranks."""
        self._global_batch, self._drop_last = global_batch, drop_last
        each = self.counts // global_batch if drop_last else -(-self.counts // global_batch)
        self._of_bucket = np.repeat(np.arange(len(each), dtype=np.int16), each)
        starts = np.cumsum(each) - each
        numbers = np.arange(len(self._of_bucket)) - np.repeat(starts, each)
        self._firsts = numbers * global_batch  # in the bucket
        self._sizes = np.minimum(global_batch, self.counts[self._of_bucket] - self._firsts)
        self.num_batches = len(self._sizes)
        self._total = int(self._sizes.sum())
        self._tables = lru_cache(maxsize=2)(self._table)

    @property
    def in_state(self) -> str:
        """The order as a loader's state names it: positions are valid for one global batch size only."""
        return f"buckets:{len(self.counts)}:{self._global_batch}:{self.shuffle}"

    def _table(self, epoch: int) -> tuple[IdArray, IdArray]:
        """Return the epoch's order of batches, and where each ends."""
        order = np.arange(self.num_batches, dtype=np.int64)
        if self.shuffle and len(order):
            order = shuffled(order, len(order), derived_seed(self._seed, 0), epoch)
        return order, np.cumsum(self._sizes[order])

    def total(self, epoch: int) -> int:
        return self._total

    def number_at(self, position: int, epoch: int) -> int:
        """Return the number of the epoch's batch that begins at or contains ``position``."""
        return int(np.searchsorted(self._tables(epoch)[1], position, "right"))

    def end_of(self, number: int, epoch: int) -> int:
        """Return the position after the epoch's first ``number`` batches."""
        return int(self._tables(epoch)[1][min(number, self.num_batches) - 1]) if number > 0 else 0

    def batch(self, number: int, epoch: int) -> IdArray:
        """Return the sample ids of a global batch."""
        which = int(self._tables(epoch)[0][number])
        first, size = int(self._firsts[which]), int(self._sizes[which])
        return self._of(int(self._of_bucket[which]), np.arange(first, first + size, dtype=np.int64), epoch)

    def _of(self, bucket: int, places: IdArray, epoch: int) -> IdArray:
        if self.shuffle:
            places = shuffled(places, int(self.counts[bucket]), derived_seed(self._seed, 1 + bucket), epoch)
        found: IdArray = self._ids[self._begins[bucket] + places].astype(np.int64)
        return found

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        order, ends = self._tables(epoch)
        numbers = np.searchsorted(ends, positions, "right")
        which = order[numbers]
        places = self._firsts[which] + positions - (ends[numbers] - self._sizes[which])
        buckets, found = self._of_bucket[which], np.empty(len(positions), np.int64)
        for bucket in np.unique(buckets):
            here = buckets == bucket
            found[here] = self._of(int(bucket), places[here], epoch)
        return found


class _BucketBatches(Sampler):
    """This rank's part of each global batch; a smaller one is divided as an epoch's last batch is."""

    def __init__(self, order: _Bucketed, partition: Partition) -> None:
        order.cut(partition.global_batch, partition.drop_last)
        super().__init__(order, partition)
        self._bucketed = order

    def divide(self, partition: Partition, position: int = 0) -> None:
        before, after = self.partition.global_batch, partition.global_batch
        if position and before != after:
            raise StateError(
                f"BucketSampler's batches are cut for {before} samples over all ranks, and {position} "
                f"samples of the epoch are over: it cannot go on with {after}. Change the world between two "
                "epochs, or keep batch_size times ranks as it is, in a new loader."
            )
        if before != after:
            self._bucketed.cut(after, partition.drop_last)
        self.partition = partition

    def num_batches(self, epoch: int, start: int = 0) -> int:
        return (
            self._bucketed.num_batches - self._bucketed.number_at(start, epoch)
            if start
            else (self._bucketed.num_batches)
        )

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        number = self._bucketed.number_at(start, epoch) + step
        ids = self._bucketed.batch(number, epoch)
        inside = self.partition.positions(len(ids), 0, 0)
        padded = inside == PADDING
        positions = np.where(padded, PADDING, inside + self._bucketed.end_of(number, epoch))
        return BatchIds(np.where(padded, np.int64(-1), ids[inside]), None, positions)

    def keys(self, epoch: int, start: int, step: int) -> Any:
        return self.batch(epoch, start, step).ids.tolist()

    def ranks_at(self, positions: IdArray, epoch: int) -> IdArray:
        found = np.empty(len(positions), np.int64)
        for place, position in enumerate(positions.tolist()):
            number = self._bucketed.number_at(position, epoch)
            first = self._bucketed.end_of(number, epoch)
            size = self._bucketed.end_of(number + 1, epoch) - first
            found[place] = self._rank_of(position - first, size)
        return found

    def _rank_of(self, place: int, size: int) -> int:
        part = self.partition
        if size == part.global_batch or part.padding in ("end", "repeat"):
            return place // -(-size // part.world_size)
        ends = np.arange(1, part.world_size + 1) * size // part.world_size
        return int(np.searchsorted(ends, place, "right"))

    def consumed(self, epoch: int, start: int, steps: int) -> int:
        return self._bucketed.end_of(self._bucketed.number_at(start, epoch) + steps, epoch)

    def remainder(self, epoch: int) -> int:
        return 0

    def __len__(self) -> int:
        return sum(len(self.batch(self.epoch, 0, step).ids) for step in range(self.num_batches(self.epoch)))
