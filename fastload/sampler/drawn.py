"""Orders that a user's own sampler draws, made a function of (seed, epoch).

A sampler is asked once an epoch, under random states (torch's, Python's and NumPy's global ones) derived
from seed and epoch (its own ``generator``, if it has one, is seeded likewise), so that every rank, and every
restart, sees the same draw.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.sampler.order import IdArray

__all__ = ["DrawnBatches", "DrawnOrder"]

_DRAW_TAG = 0x64726177  # "draw"


def _draw_seed(seed: int, epoch: int, own: int) -> int:
    key = ((seed ^ own) & 0xFFFFFFFF, (seed ^ own) >> 32 & 0xFFFFFFFF)
    words = _C.philox4x32((epoch & 0xFFFFFFFF, epoch >> 32 & 0xFFFFFFFF, _DRAW_TAG, 0), key)
    return int(words[0]) << 31 | int(words[1]) >> 1


@contextmanager
def _python_and_numpy(seed: int) -> Iterator[int]:
    """Python's and NumPy's global generators under ``seed``, and as they were afterwards."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield seed
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


class _Draws:
    """What one sampler draws in an epoch; the last two epochs are kept."""

    def __init__(self, sampler: Iterable[Any], n: int, seed: int) -> None:
        self._sampler = sampler
        self._n = n
        self._seed = seed
        inner = getattr(sampler, "sampler", sampler)
        self._setters = [s for s in (sampler, inner) if hasattr(s, "set_epoch")]
        generators = [getattr(s, "generator", None) for s in (sampler, inner)]
        self._generators = {id(g): (g, g.initial_seed()) for g in generators if g is not None}
        self.drawn = lru_cache(maxsize=2)(self._draw)

    def _draw(self, epoch: int) -> list[Any]:
        import torch

        for setter in self._setters:
            setter.set_epoch(epoch)
        for generator, own in self._generators.values():
            generator.manual_seed(_draw_seed(self._seed, epoch, own))
        with torch.random.fork_rng(devices=[]), _python_and_numpy(_draw_seed(self._seed, epoch, 0)) as seed:
            torch.manual_seed(seed)
            return list(self._sampler)

    def checked(self, ids: IdArray) -> IdArray:
        """Raises IndexError for sample ids outside the dataset."""
        if len(ids) and (ids.min() < 0 or ids.max() >= self._n):
            wrong = ids[(ids < 0) | (ids >= self._n)][0]
            raise IndexError(f"The sampler drew sample id {wrong}; legal are 0 to {self._n - 1}.")
        return ids


class DrawnOrder:
    """The ids of a user's sampler, one after the other; they may repeat."""

    repeats = True
    is_drawn = True

    def __init__(self, sampler: Iterable[int], n: int, seed: int) -> None:
        self._draws = _Draws(sampler, n, seed)
        self._array = lru_cache(maxsize=2)(self._make)

    def _make(self, epoch: int) -> IdArray:
        return self._draws.checked(np.array([int(i) for i in self._draws.drawn(epoch)], dtype=np.int64))

    def total(self, epoch: int) -> int:
        return len(self._array(epoch))

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        return self._array(epoch)[positions]


class DrawnBatches:
    """The batches of a user's batch sampler; sizes may differ, ids may repeat."""

    repeats = True
    is_drawn = True

    def __init__(self, sampler: Iterable[Any], n: int, seed: int) -> None:
        self._draws = _Draws(sampler, n, seed)
        self._arrays = lru_cache(maxsize=2)(self._make)

    def _make(self, epoch: int) -> tuple[list[IdArray], npt.NDArray[np.int64]]:
        batches = [
            self._draws.checked(np.array([int(i) for i in batch], dtype=np.int64))
            for batch in self._draws.drawn(epoch)
        ]
        return batches, np.cumsum([0, *(len(batch) for batch in batches)])

    def count(self, epoch: int) -> int:
        """Batches in the epoch, over all ranks."""
        return len(self._arrays(epoch)[0])

    def batch(self, number: int, epoch: int) -> tuple[IdArray, int]:
        """Ids of a batch, and the position of its first one in the epoch."""
        batches, firsts = self._arrays(epoch)
        return batches[number], int(firsts[number])

    def total(self, epoch: int) -> int:
        return int(self._arrays(epoch)[1][-1])

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        return np.concatenate([np.empty(0, np.int64), *self._arrays(epoch)[0]])[positions]
