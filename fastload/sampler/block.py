"""The block shuffle: whole blocks of consecutive records, in random order, mixed within a window of many.

A uniform shuffle reads each record by itself. Here ``block`` consecutive records come close together, so that
storage is read in larger pieces: the blocks are permuted (as :mod:`fastload.sampler.order` permutes samples),
then the positions of each window of ``window / block`` blocks. All is a function of (seed, epoch) alone, so
this order is divided among ranks and resumed like any other.

It differs from a uniform shuffle in two ways: samples that are neighbours on disk meet in a window, and a
global batch comes from one window's blocks. ``fastload plan --shuffle block`` measures both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fastload.sampler.order import IdArray, Partition, keyed_bits, shuffled
from fastload.sampler.sampler import BatchIds, Sampler

BLOCK_BYTES = 1 << 20
WINDOW_BYTES = 256 << 20
ARRANGE_LIMIT = 1 << 16  # samples per global batch

_REST, _WINDOW, ARRANGED = 1, 2, 3  # purposes of keyed bits


def default_blocks(
    n: int, data_bytes: int, block: int | None, window: int | None, nodes: int = 1
) -> tuple[int, int]:
    """Return (records per block, records per window): by default about 1 MiB, and 256 MiB per node.

    They depend on the dataset and the arguments alone, and so does the order.

    Raises:
        ValueError: out of range.
    """
    mean = max(1.0, data_bytes / max(1, n))
    if block is None:
        block = max(1, round(BLOCK_BYTES / mean))
        block = min(block, window or block)
    if window is None:
        window = max(block, round(WINDOW_BYTES * nodes / mean))
    if block < 1 or window < block:
        raise ValueError(
            f"Block.size must be at least 1 and Block.window at least Block.size. Found: size={block}, "
            f"window={window}."
        )
    return block, -(-window // block) * block


@lru_cache(maxsize=32)
def _permutation(n: int, seed: int, epoch: int, window: int) -> IdArray:
    order = np.argsort(keyed_bits(np.arange(n, dtype=np.uint64), seed, epoch, _WINDOW, window), kind="stable")
    order.setflags(write=False)
    return order


@dataclass(frozen=True)
class BlockOrder:
    """An order with each sample once per epoch; O(1) per position, except that each new window is sorted."""

    n: int
    seed: int
    block: int  # records
    window: int  # records, a multiple of ``block``
    repeats: bool = False
    is_drawn: bool = False

    @property
    def in_state(self) -> str:
        """The order as a loader's state names it."""
        return f"block:{self.block}:{self.window}"

    def total(self, epoch: int) -> int:
        return self.n

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the sample ids at ``positions``."""
        return self._laid_out(self._mixed(positions, epoch), epoch)

    def _mixed(self, positions: IdArray, epoch: int) -> IdArray:
        """Permute the positions within each window."""
        windows = positions // self.window
        mixed = np.empty_like(positions)
        for window in np.unique(windows):
            first = int(window) * self.window
            size = min(self.window, self.n - first)
            here = windows == window
            mixed[here] = first + _permutation(size, self.seed, epoch, int(window))[positions[here] - first]
        return mixed

    def _laid_out(self, positions: IdArray, epoch: int) -> IdArray:
        """Lay out the blocks in random order; the last, partial one is at a random place among them."""
        blocks, rest = divmod(self.n, self.block)
        if blocks == 0:
            return positions
        word = int(keyed_bits(np.zeros(1, np.uint64), self.seed, epoch, _REST, 0)[0])
        begin = (word * (blocks + 1) >> 64) * self.block  # where the partial block begins
        before, after = positions < begin, positions >= begin + rest
        whole = np.where(after, positions - rest, positions)
        number = np.where(before | after, whole // self.block, 0)
        ids = shuffled(number, blocks, self.seed, epoch) * self.block + whole % self.block
        return np.where(before | after, ids, blocks * self.block + positions - begin)


def order_name(order: object, shuffle: bool | str) -> bool | str:
    """Return the order as a loader's state names it: ``shuffle``, or the order's own name."""
    name: bool | str = getattr(order, "in_state", shuffle)
    return name


class BlockSampler(Sampler):
    """Batches of a block order: each rank gets whole blocks, as far as equal batches allow.

    The order fixes a global batch's samples. Within the batch they are sorted by a random number per block
    and epoch, and each rank takes its part. So most of a block's records go to one rank, for any number of
    ranks, and the ranks' batches together are the batches of a single rank.
    """

    def __init__(self, order: BlockOrder, partition: Partition) -> None:
        super().__init__(order, partition)
        self._blocks = order

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        part = self.partition
        first = start + step * part.global_batch
        if first + part.global_batch > self.total(epoch) or part.global_batch > ARRANGE_LIMIT:
            return super().batch(epoch, start, step)
        ids = self._blocks.ids(np.arange(first, first + part.global_batch, dtype=np.int64), epoch)
        blocks = (ids // self._blocks.block).astype(np.uint64)
        place = np.argsort(keyed_bits(blocks, self._blocks.seed, epoch, ARRANGED, 0), kind="stable")
        own = slice(part.rank * part.batch_size, (part.rank + 1) * part.batch_size)
        return BatchIds(ids[place[own]], None, first + place[own])

    def ranks_at(self, positions: IdArray, epoch: int) -> IdArray:
        part = self.partition
        if part.global_batch > ARRANGE_LIMIT:
            return super().ranks_at(positions, epoch)
        blocks = (self._blocks.ids(positions, epoch) // self._blocks.block).astype(np.uint64)
        batches = positions // part.global_batch
        bits = keyed_bits(blocks, self._blocks.seed, epoch, ARRANGED, 0)
        order = np.lexsort((positions, bits, batches))
        places = np.empty(len(positions), np.int64)
        firsts = np.searchsorted(batches[order], batches[order])
        places[order] = np.arange(len(positions)) - firsts
        return places // part.batch_size
