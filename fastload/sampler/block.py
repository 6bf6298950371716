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
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.sampler.changing import ChangingOrder
from fastload.sampler.order import IdArray, Partition, inverse_of, keyed_bits, shuffled, unshuffled
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

    def places(self, ids: IdArray, epoch: int) -> IdArray:
        """Return the positions of sample ids: the inverse of :meth:`ids`."""
        return self._mixed(self._laid_back(ids, epoch), epoch, back=True)

    def _mixed(self, positions: IdArray, epoch: int, back: bool = False) -> IdArray:
        """Permute the positions within each window; ``back``: undo it."""
        windows = positions // self.window
        mixed = np.empty_like(positions)
        for window in np.unique(windows):
            first = int(window) * self.window
            size = min(self.window, self.n - first)
            here = windows == window
            order = _permutation(size, self.seed, epoch, int(window))
            mixed[here] = first + (inverse_of(order) if back else order)[positions[here] - first]
        return mixed

    def _begin_of_rest(self, blocks: int, epoch: int) -> int:
        """Return the position at which the last, partial block lies."""
        word = int(keyed_bits(np.zeros(1, np.uint64), self.seed, epoch, _REST, 0)[0])
        return (word * (blocks + 1) >> 64) * self.block

    def _laid_out(self, positions: IdArray, epoch: int) -> IdArray:
        """Lay out the blocks in random order; the last, partial one is at a random place among them."""
        blocks, rest = divmod(self.n, self.block)
        if blocks == 0:
            return positions
        begin = self._begin_of_rest(blocks, epoch)
        before, after = positions < begin, positions >= begin + rest
        whole = np.where(after, positions - rest, positions)
        number = np.where(before | after, whole // self.block, 0)
        ids = shuffled(number, blocks, self.seed, epoch) * self.block + whole % self.block
        return np.where(before | after, ids, blocks * self.block + positions - begin)

    def _laid_back(self, ids: IdArray, epoch: int) -> IdArray:
        """Return the places of sample ids among the blocks: the inverse of :meth:`_laid_out`."""
        blocks, rest = divmod(self.n, self.block)
        if blocks == 0:
            return ids
        begin, is_rest = self._begin_of_rest(blocks, epoch), ids >= blocks * self.block
        number = unshuffled(np.where(is_rest, 0, ids // self.block), blocks, self.seed, epoch)
        whole = number * self.block + ids % self.block
        whole = np.where(whole < begin, whole, whole + rest)
        return np.where(is_rest, begin + ids - blocks * self.block, whole)


def order_name(order: Any, shuffle: bool | str, epoch: int = 0) -> bool | str:
    """Return the order of an epoch as a loader's state names it: ``shuffle``, or the order's own name."""
    order = order.of(epoch) if isinstance(order, ChangingOrder) else order
    name: bool | str = getattr(order, "in_state", shuffle)
    return name


class BlockSampler(Sampler):
    """Batches of a block order: each rank gets whole blocks, as far as equal batches allow.

    The order fixes a global batch's samples. Within the batch they are sorted by a random number per block
    and epoch, and each rank takes its part. So most of a block's records go to one rank, for any number of
    ranks, and the ranks' batches together are the batches of a single rank.
    """

    def __init__(self, order: BlockOrder | ChangingOrder, partition: Partition) -> None:
        super().__init__(order, partition)
        self._order = order

    def _blocks(self, ids: IdArray, epoch: int) -> npt.NDArray[np.uint64]:
        """Return a number for each sample that sorts those of a batch by blocks, at random."""
        order: Any = self._order.of(epoch) if isinstance(self._order, ChangingOrder) else self._order
        return keyed_bits((ids // order.block).astype(np.uint64), order.seed, epoch, ARRANGED, 0)

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        part = self.partition
        first = start + step * part.global_batch
        if first + part.global_batch > self.total(epoch) or part.global_batch > ARRANGE_LIMIT:
            return super().batch(epoch, start, step)
        ids = self._order.ids(np.arange(first, first + part.global_batch, dtype=np.int64), epoch)
        place = np.argsort(self._blocks(ids, epoch), kind="stable")
        own = slice(part.rank * part.batch_size, (part.rank + 1) * part.batch_size)
        return BatchIds(ids[place[own]], None, first + place[own])

    def ranks_at(self, positions: IdArray, epoch: int) -> IdArray:
        part = self.partition
        if part.global_batch > ARRANGE_LIMIT:
            return super().ranks_at(positions, epoch)
        batches = positions // part.global_batch
        bits = self._blocks(self._order.ids(positions, epoch), epoch)
        order = np.lexsort((positions, bits, batches))
        places = np.empty(len(positions), np.int64)
        firsts = np.searchsorted(batches[order], batches[order])
        places[order] = np.arange(len(positions)) - firsts
        return places // part.batch_size
