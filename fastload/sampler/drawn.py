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
from itertools import islice
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.sampler.order import IdArray

__all__ = ["DrawnBatches", "DrawnOrder"]

_MOST = 1 << 27  # draws an epoch
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
    """What one sampler draws in an epoch; the last two epochs are kept.

    ``n`` is the number of samples; None: the sampler may draw what it likes, as for a torch Dataset.
    """

    def __init__(self, sampler: Iterable[Any], n: int | None, seed: int) -> None:
        self._sampler = sampler
        self._n = n
        self._seed = seed
        inner = getattr(sampler, "sampler", sampler)
        self._setters = [s for s in (sampler, inner) if hasattr(s, "set_epoch")]
        generators = [getattr(s, "generator", None) for s in (sampler, inner)]
        self._generators = {id(g): (g, g.initial_seed()) for g in generators if g is not None}
        self._told = None if self._epoch_of_sampler() is None else 0
        self._noticed: int | None = None  # an epoch that the user set, which the loader does not know yet
        self.drawn = lru_cache(maxsize=2)(self._draw)

    def _epoch_of_sampler(self) -> int | None:
        found = getattr(self._setters[-1], "epoch", None) if self._setters else None
        return found if isinstance(found, int) else None

    def set_by_user(self) -> int | None:
        """The epoch that the user set on the sampler, as torch's training scripts do; None: nobody has."""
        self._notice()
        found, self._noticed = self._noticed, None
        return found

    def _notice(self) -> None:
        found = self._epoch_of_sampler()
        if found != self._told:
            self._told = self._noticed = found

    def _draw(self, epoch: int) -> list[Any]:
        import torch

        self._notice()
        for setter in self._setters:
            setter.set_epoch(epoch)
        self._told = self._epoch_of_sampler()
        for generator, own in self._generators.values():
            generator.manual_seed(_draw_seed(self._seed, epoch, own))
        with torch.random.fork_rng(devices=[]), _python_and_numpy(_draw_seed(self._seed, epoch, 0)) as seed:
            torch.manual_seed(seed)
            drawn = list(islice(self._sampler, _MOST))
        if len(drawn) == _MOST:
            raise ValueError(
                f"The sampler drew {_MOST} times in one epoch and has not come to an end. An epoch must be "
                "finite: end it (itertools.islice), and iterate again for the next."
            )
        return drawn

    def checked(self, drawn: Iterable[Any]) -> IdArray:
        """Sample ids as an array.

        Raises:
            TypeError: something that is no integer.
            IndexError: an id outside the dataset.
        """
        listed = list(drawn)
        if self._n is None:
            return np.array([_as_id(i) for i in listed], dtype=np.int64)
        try:
            ids = np.array([index(i) for i in listed], dtype=np.int64)
        except TypeError:
            wrong = next(i for i in listed if _is_no_integer(i))
            raise TypeError(
                f"A sampler must give sample ids, integers from 0 to {self._n - 1}. Found: {wrong!r}, of "
                f"type {type(wrong).__name__}."
            ) from None
        if len(ids) and (ids.min() < 0 or ids.max() >= self._n):
            wrong = ids[(ids < 0) | (ids >= self._n)][0]
            raise IndexError(f"The sampler drew sample id {wrong}; legal are 0 to {self._n - 1}.")
        return ids


def _as_id(drawn: Any) -> int:
    """What stands for the draw where ids are compared; -2 for what is no number."""
    try:
        return index(drawn)
    except (TypeError, ValueError):
        return -2


def _is_no_integer(value: Any) -> bool:
    try:
        index(value)
    except TypeError:
        return True
    return False


class DrawnOrder:
    """The ids of a user's sampler, one after the other; they may repeat."""

    repeats = True
    is_drawn = True

    def __init__(self, sampler: Iterable[Any], n: int | None, seed: int) -> None:
        self._draws = _Draws(sampler, n, seed)
        self._array = lru_cache(maxsize=2)(self._make)
        # What says nothing of itself is taken for shuffled.
        listed = isinstance(sampler, (list, tuple, range)) or type(sampler).__name__ == "SequentialSampler"
        self.shuffle = not listed and getattr(sampler, "shuffle", True) is not False

    def _make(self, epoch: int) -> IdArray:
        return self._draws.checked(self._draws.drawn(epoch))

    def set_by_user(self) -> int | None:
        """See :meth:`_Draws.set_by_user`."""
        return self._draws.set_by_user()

    def keys(self, positions: IdArray, epoch: int) -> list[Any]:
        """What was drawn at ``positions``, as it was drawn."""
        drawn = self._draws.drawn(epoch)
        return [drawn[position] for position in positions]

    def total(self, epoch: int) -> int:
        return len(self._array(epoch))

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        return self._array(epoch)[positions]


def _listed(batch: Any) -> Iterable[Any]:
    """A torch Dataset may be given anything for a batch, also one key."""
    return batch if isinstance(batch, Iterable) and not isinstance(batch, (str, bytes)) else [batch]


class DrawnBatches:
    """The batches of a user's batch sampler; sizes may differ, ids may repeat."""

    repeats = True
    is_drawn = True

    def __init__(self, sampler: Iterable[Any], n: int | None, seed: int) -> None:
        self._draws = _Draws(sampler, n, seed)
        self._arrays = lru_cache(maxsize=2)(self._make)

    def _make(self, epoch: int) -> tuple[list[IdArray], npt.NDArray[np.int64]]:
        batches = [self._draws.checked(_listed(batch)) for batch in self._draws.drawn(epoch)]
        return batches, np.cumsum([0, *(len(batch) for batch in batches)])

    def set_by_user(self) -> int | None:
        """See :meth:`_Draws.set_by_user`."""
        return self._draws.set_by_user()

    def keys(self, number: int, epoch: int) -> Any:
        """The batch as it was drawn."""
        return self._draws.drawn(epoch)[number]

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
