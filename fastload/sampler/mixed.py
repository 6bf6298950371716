"""The order of several datasets mixed by weights, position by position.

An epoch is cut into blocks. How many samples of each part a block has is fixed in advance, so that the shares
are exact over the epoch and within two samples of it at the end of every block; their positions in the block
are a shuffle keyed by (seed, epoch, block). Each part is walked in its own order, newly shuffled for each
pass, however many of the mix's epochs a pass takes.

Where shares change over the run, or parts end, blocks are cut over the run instead of the epoch
(:mod:`fastload.sampler.scheduled_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastload.sampler.order import IdArray, derived_seed, shuffled

if TYPE_CHECKING:
    from fastload.sampler.schedule import MixtureStart

_BLOCK = 4096
_LONG = 1 << 26  # samples per epoch from which on blocks are larger, to limit their number
_LONG_BLOCK = 1 << 16


def shares(weights: npt.NDArray[np.float64], total: int) -> IdArray:
    """Divide ``total`` samples in proportion to ``weights``, by largest remainders."""
    ideal = weights / weights.sum() * total
    counts: IdArray = np.floor(ideal).astype(np.int64)
    rest = total - int(counts.sum())
    counts[np.argsort(counts - ideal, kind="stable")[:rest]] += 1
    return counts


def block_ends(counts: IdArray, block: int) -> IdArray:
    """Return how many samples of each part come before the end of each block.

    Returns:
        (blocks + 1, parts) int64, from 0 to ``counts``. Every row is ``counts`` in proportion, rounded; no
        column ever falls.
    """
    total = int(counts.sum())
    blocks = -(-total // block)
    ends = np.zeros((blocks + 1, len(counts)), np.int64)
    for number in range(1, blocks):
        before = ends[number - 1]
        missing = number * block * counts - before * total  # in units of 1 / total samples
        added = np.maximum(missing // total, 0)
        rest = block - int(added.sum())
        if rest > 0:
            added[np.argsort(added * total - missing, kind="stable")[:rest]] += 1
        elif rest < 0:
            added[np.argmax(added)] += rest
        ends[number] = before + added
    ends[-1] = counts
    return ends


class MixedOrder:
    """Sample ids of a mix: those of each part follow those of the part before it.

    Args:
        sizes: samples in each part, >= 1.
        counts: samples of each part in an epoch.
        seed: seed of the whole order.
        shuffle: False: every epoch is the same, part after part, each from its beginning.
    """

    is_drawn = False

    def __init__(self, sizes: IdArray, counts: IdArray, seed: int, shuffle: bool) -> None:
        self._sizes = sizes
        self._counts = counts
        self._seed = seed
        self.shuffle = shuffle
        self._firsts = np.cumsum(sizes) - sizes
        self._total = int(counts.sum())
        self._block = _BLOCK if self._total < _LONG else _LONG_BLOCK
        self._ends = block_ends(counts, self._block) if shuffle else np.array([counts * 0, counts])
        self._part_seeds = [derived_seed(seed, part) for part in range(len(sizes))]
        self._walk = lru_cache(maxsize=4)(self._make_walk)

    @property
    def repeats(self) -> bool:
        """Whether a sample may repeat: a part not passed exactly once per epoch may restart within one."""
        return bool((self._counts != self._sizes).any())

    def total(self, epoch: int) -> int:
        return self._total

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        found = np.empty(len(positions), np.int64)
        blocks = positions // self._block if self.shuffle else np.zeros(len(positions), np.int64)
        for block in np.unique(blocks):
            inside = blocks == block
            parts, steps = self._steps(positions[inside], int(block), epoch)
            found[inside] = self._ids(parts, steps)
        return found

    def _steps(self, positions: IdArray, block: int, epoch: int) -> tuple[IdArray, IdArray]:
        """Return the part of each position, and the step in that part's walk."""
        if self.shuffle:
            parts, steps = self._walk(epoch, block)
            inside = positions - block * self._block
            return parts[inside], steps[inside]
        ends = np.cumsum(self._counts)
        parts = np.searchsorted(ends, positions, side="right")
        return parts, positions - (ends - self._counts)[parts]

    def _make_walk(self, epoch: int, block: int) -> tuple[IdArray, IdArray]:
        """Return the parts and steps of all positions of a block."""
        before, after = self._ends[block], self._ends[block + 1]
        size = int((after - before).sum())
        number = epoch * (len(self._ends) - 1) + block
        places = shuffled(np.arange(size, dtype=np.int64), size, self._seed, number)
        parts = np.searchsorted(np.cumsum(after - before), places, side="right")
        steps = np.empty(size, np.int64)
        for part in range(len(self._sizes)):
            mine = np.flatnonzero(parts == part)
            steps[mine] = epoch * self._counts[part] + before[part] + np.arange(len(mine))
        return parts, steps

    def given(self, epoch: int, position: int) -> IdArray:
        """Return how many samples each part has given in the run before a position, which may be its epoch's
        end."""
        counts, position = self._counts, min(position, self._total)
        if not self.shuffle:
            firsts = np.cumsum(counts) - counts
            found: IdArray = epoch * counts + np.clip(position - firsts, 0, counts)
            return found
        block = min(position // self._block, len(self._ends) - 2)
        parts = self._walk(epoch, block)[0][: position - block * self._block]
        found = epoch * counts + self._ends[block] + np.bincount(parts, minlength=len(counts))
        return found

    def wished(self, epoch: int, position: int) -> npt.NDArray[np.float64]:
        """Return each part's share at a position, as it is wished."""
        return self._counts / self._total

    def start_at(self, epoch: int, position: int) -> MixtureStart:
        """Return the place before a position, for another mix to begin there."""
        from fastload.sampler.schedule import MixtureStart  # which most mixes never need

        counts = self.given(epoch, position)
        walks = tuple(range(len(counts)))
        total = epoch * self._total + position
        return MixtureStart(total, epoch, position, tuple(counts.tolist()), walks, len(walks))

    def _ids(self, parts: IdArray, steps: IdArray) -> IdArray:
        return self._firsts[parts] + walked(
            parts, steps, self._sizes, self._part_seeds if self.shuffle else []
        )


def walked(parts: IdArray, steps: IdArray, sizes: IdArray, seeds: Sequence[int]) -> IdArray:
    """Return the samples, in their parts, at these steps of the parts' walks: pass after pass, each shuffled
    by its part's seed; none: in order."""
    rounds, places = np.divmod(steps, sizes[parts])
    for part in np.unique(parts) if seeds else ():
        for turn in np.unique(rounds[parts == part]):
            mine = (parts == part) & (rounds == turn)
            places[mine] = shuffled(places[mine], int(sizes[part]), seeds[part], int(turn))
    return places
