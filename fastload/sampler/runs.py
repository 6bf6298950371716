"""An order with equally many samples of each run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from fastload.sampler.keyed import KeyedSampler
from fastload.sampler.order import IdArray, derived_seed, random_words, shuffled


class PerRunSampler(KeyedSampler):
    """So many samples of each run in every epoch: one from each of so many equal parts of it (Wang et al.,
    "Temporal segment networks", 2016).

    Args:
        places: the dataset's places, run by run, in order.
        begins: (runs + 1,) where each run begins in ``places``, and the end.
        per_run: samples of each run; all, of one with fewer.
        shuffle: draw from each part anew each epoch, and shuffle; else the middle of each part, in order.
    """

    def __init__(self, places: IdArray, begins: IdArray, per_run: int, shuffle: bool) -> None:
        self._places, self._begins = places, begins
        self._per_run, self._shuffle = per_run, shuffle

    def __len__(self) -> int:
        return int(np.minimum(np.diff(self._begins), self._per_run).sum())

    def __repr__(self) -> str:
        return (
            f"PerRunSampler({len(self._begins) - 1} runs, {self._per_run} of each, shuffle={self._shuffle})"
        )

    def order(self, n: int, seed: int) -> _PerRun:
        if n != len(self._places):
            raise ValueError(f"The runs have {len(self._places)} samples, and the dataset {n}.")
        counts = np.minimum(np.diff(self._begins), self._per_run)
        ends = np.cumsum(counts, dtype=np.int64)
        digest = hashlib.blake2b(self._places.tobytes() + self._begins.tobytes(), digest_size=8).hexdigest()
        name = f"per_run:{self._per_run}:{self._shuffle}:{digest}"
        return _PerRun(name, self._places, self._begins, ends, counts, self._shuffle, seed)


@dataclass(frozen=True, eq=False)
class _PerRun:
    in_state: str  # as a loader's state names it
    places: IdArray
    begins: IdArray
    ends: IdArray  # (runs,) positions, before any shuffle, at which each run ends
    counts: IdArray
    shuffle: bool
    seed: int
    repeats: bool = False
    is_drawn: bool = False

    def total(self, epoch: int) -> int:
        return int(self.ends[-1])

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        slots = shuffled(positions, self.total(epoch), self.seed, epoch) if self.shuffle else positions
        run = np.searchsorted(self.ends, slots, side="right")
        count, begin = self.counts[run], self.begins[run]
        length = self.begins[run + 1] - begin
        part = slots - (self.ends[run] - count)
        low, high = part * length // count, (part + 1) * length // count
        if self.shuffle:
            # 32 bits times a part's length stay below 64 bits.
            words = random_words(slots, derived_seed(self.seed, 1), epoch) >> np.uint64(32)
            inner = (words * (high - low).astype(np.uint64) >> np.uint64(32)).astype(np.int64)
        else:
            inner = (high - low) // 2
        found: IdArray = self.places[begin + low + inner]
        return found
