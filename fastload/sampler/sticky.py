"""The block shuffle of several nodes: each block of records is of one node in every epoch.

A node that caches a part of the set finds it useful only if it needs the same samples again. Here the blocks
are dealt to ``nodes`` parts, once and for all, by the seed. Each epoch shuffles every part by itself, as
:mod:`fastload.sampler.block` does, and the order takes a sample of each part in turn: position p is of part
p mod nodes. So any ``nodes * k`` positions in a row have k samples of each part, and a global batch, sorted
by part, falls into equal shares. Ranks are numbered node by node, so a node's ranks get the same parts each
epoch.

The order depends on (seed, epoch, nodes) alone, not on the world that reads it: a position means the same
samples for any number of ranks and nodes, and a job goes on with others than it began with. If the nodes
that there are do not divide ``nodes``, or ``nodes`` the global batch, some samples change nodes between
epochs; none is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fastload.sampler.block import ARRANGED, BlockOrder, BlockSampler
from fastload.sampler.order import PADDING, IdArray, Partition, Words, derived_seed, keyed_bits, shuffled
from fastload.sampler.sampler import BatchIds, Sampler

_DEALING = 0  # the seed derived for dealing blocks to parts; 1 + p: for shuffling part p


@dataclass(frozen=True)
class StickyOrder(BlockOrder):
    """An order with each sample once per epoch, and with those of part p at positions p mod ``nodes``.

    ``window`` counts the records of all parts.
    """

    nodes: int = 1

    @property
    def in_state(self) -> str:
        return f"block:{self.block}:{self.window}:{self.nodes}"

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        ids = np.empty_like(positions)
        parts = positions % self.nodes
        for part in np.unique(parts).tolist():
            here = parts == part
            ids[here] = self.ids_of_part(part, positions[here] // self.nodes, epoch)
        return ids

    def ids_of_part(self, part: int, places: IdArray, epoch: int) -> IdArray:
        """Return the sample ids at places of a part's own order, (k,)."""
        order, first = self._parts[part]
        # Its blocks begin where the dealt ones do; what two parts share of a block comes last.
        dealt = first + (order.ids(places, epoch) + -first % self.block) % order.n
        whole = self.n // self.block
        number = np.minimum(dealt // self.block, max(0, whole - 1))
        if whole == 0:
            return dealt
        ids = shuffled(number, whole, derived_seed(self.seed, _DEALING), 0) * self.block + dealt % self.block
        return np.where(dealt < whole * self.block, ids, dealt)

    @cached_property
    def _parts(self) -> list[tuple[BlockOrder, int]]:
        """The order of each part, and where the part begins among the dealt blocks."""
        parts, first = [], 0
        window = max(1, self.window // self.nodes // self.block) * self.block
        for part in range(self.nodes):
            size = max(0, -(-(self.n - part) // self.nodes))
            parts.append((BlockOrder(size, derived_seed(self.seed, 1 + part), self.block, window), first))
            first += size
        return parts

    def samples_of(self, begin: int, end: int, of: int) -> npt.NDArray[np.bool_]:
        """Return which samples are of parts that ranks ``begin`` to before ``end`` of ``of`` get, (n,)."""
        own = np.zeros(self.n, np.bool_)
        for part in range(begin * self.nodes // of, -(-end * self.nodes // of)):
            own[self.ids_of_part(part, np.arange(self._parts[part][0].n, dtype=np.int64), 0)] = True
        return own


class StickySampler(Sampler):
    """Batches of a sticky order: a global batch is sorted by part, and within a part by block; each rank
    takes its share of that, as it would of the positions."""

    def __init__(self, order: StickyOrder, partition: Partition) -> None:
        super().__init__(order, partition)
        self._sticky = order

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        total, part = self.total(epoch), self.partition
        positions = part.positions(total, start, step)
        first = start + step * part.global_batch
        end = min(first + part.global_batch, total)
        ids = np.full(len(positions), -1, np.int64)
        again = (positions != PADDING) & (positions < first)  # from the epoch's beginning, to fill up
        ids[again] = self._sticky.ids(positions[again], epoch)
        own = np.flatnonzero(positions >= first)
        ids[own], positions[own] = self._sorted(positions[own] - first, first, end, epoch)
        return BatchIds(ids, None, positions)

    def _sorted(self, places: IdArray, first: int, end: int, epoch: int) -> tuple[IdArray, IdArray]:
        """Return ids and positions at places of the sorted positions from ``first`` to ``end``."""
        order = self._sticky
        begins = first + (np.arange(order.nodes, dtype=np.int64) - first) % order.nodes
        counts = np.maximum(0, -(-(end - begins) // order.nodes))
        ends = np.cumsum(counts)
        parts = np.searchsorted(ends, places, side="right")
        ids, positions = np.empty_like(places), np.empty_like(places)
        for part in np.unique(parts).tolist():
            all_of_it = np.arange(begins[part], end, order.nodes, dtype=np.int64)
            found = order.ids_of_part(part, all_of_it // order.nodes, epoch)
            by_block = np.argsort(self._bits(found, epoch), kind="stable")
            here = parts == part
            chosen = by_block[places[here] - (ends[part] - counts[part])]
            ids[here], positions[here] = found[chosen], all_of_it[chosen]
        return ids, positions

    def _bits(self, ids: IdArray, epoch: int) -> Words:
        blocks = (ids // self._sticky.block).astype(np.uint64)
        return keyed_bits(blocks, self._sticky.seed, epoch, ARRANGED, 0)

    def ranks_at(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the ranks that have these positions, which are those of whole batches of a whole epoch."""
        part = self.partition
        batches = positions // part.global_batch
        bits = self._bits(self._sticky.ids(positions, epoch), epoch)
        order = np.lexsort((positions, bits, positions % self._sticky.nodes, batches))
        places = np.empty(len(positions), np.int64)
        places[order] = np.arange(len(positions)) - np.searchsorted(batches[order], batches[order])
        ranks = places // part.batch_size
        rest = self.total(epoch) % part.global_batch
        if rest and not part.drop_last:
            last = batches == self.total(epoch) // part.global_batch
            ranks[last] = _ranks_of_rest(places[last], rest, part)
        return ranks


def _ranks_of_rest(places: IdArray, count: int, part: Partition) -> IdArray:
    """Return the ranks that have places of a last, partial batch; see :class:`Partition`."""
    if part.padding in ("repeat", "end"):
        return places // -(-count // part.world_size)
    ends = np.arange(1, part.world_size + 1, dtype=np.int64) * count // part.world_size
    return np.searchsorted(ends, places, side="right")


def block_sampler(n: int, seed: int, shape: tuple[int, int], nodes: int, partition: Partition) -> Sampler:
    """Return the sampler of a block shuffle.

    Args:
        n: samples.
        shape: records per block and per window, as ``default_blocks`` returns them.
        nodes: how many parts are kept apart; 1: none.
    """
    if nodes == 1:
        return BlockSampler(BlockOrder(n, seed, *shape), partition)
    return StickySampler(StickyOrder(n, seed, *shape, nodes=nodes), partition)
