"""Orders that a user's own sampler draws.

An epoch's draw begins with random states (torch's, Python's and NumPy's global ones, and those of the
sampler's own generators) derived from seed and epoch, so a restart repeats the same draw. It goes only as far
as batches are requested, as in torch's loader: a sampler may be infinite.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from operator import index
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.sampler.order import IdArray

_MOST = 1 << 27  # the most draws of an epoch whose end is requested
_WINDOW = 1 << 20  # last draws that are kept
_AHEAD = 1 << 16  # draws at once from samplers that only compute
_DRAW_TAG = 0x64726177  # "draw"

#: A sample's substitutes and partners come from this many draws at an epoch's beginning.
POOL = 1 << 16
_POOL_BATCHES = 1 << 10


def _draw_seed(seed: int, epoch: int, own: int) -> int:
    key = ((seed ^ own) & 0xFFFFFFFF, (seed ^ own) >> 32 & 0xFFFFFFFF)
    words = _C.philox4x32((epoch & 0xFFFFFFFF, epoch >> 32 & 0xFFFFFFFF, _DRAW_TAG, 0), key)
    return int(words[0]) << 31 | int(words[1]) >> 1


class _States:
    """The random states that a sampler may draw from: the process's global ones, and its own generators'."""

    def __init__(self, generators: Sequence[Any]) -> None:
        import torch

        self._generators = generators
        self._torch = torch.get_rng_state()
        self._own = [generator.get_state() for generator in generators]
        self._python, self._numpy = random.getstate(), np.random.get_state()

    def restore(self, own: bool = True) -> None:
        """Restore the states, including the generators' if ``own``."""
        import torch

        torch.set_rng_state(self._torch)
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        for generator, state in zip(self._generators, self._own if own else (), strict=False):
            generator.set_state(state)


class _Pass:
    """One epoch's draw, as far as it has been requested.

    Args:
        begin: sets the random states of the epoch's beginning, and returns an iterator of the sampler.
        generators: the sampler's own.
        kept: returns what to keep of a draw.
        at_once: minimum number of draws at a time.
        pool: draws kept from the beginning; of the later ones, the last are kept.
    """

    def __init__(
        self,
        begin: Callable[[], Iterator[Any]],
        generators: Sequence[Any],
        kept: Callable[[Any], Any],
        at_once: int,
        pool: int,
    ) -> None:
        self._begin = begin
        self._generators = generators
        self._kept = kept
        self._at_once = at_once
        self._pool = pool
        self._iterator: Iterator[Any] | None = None
        self._states: _States | None = None  # the states in which the sampler continues
        self._head: list[Any] = []
        self._rest: list[Any] = []
        self._forgotten = 0
        self._is_over = False
        self._error: Exception | None = None

    @property
    def _count(self) -> int:
        return len(self._head) + self._forgotten + len(self._rest)

    def reached(self, count: int) -> int:
        """Return ``count``, or the number of draws if the sampler ends earlier.

        Raises:
            Exception: the sampler's own, whenever a draw after it is requested.
        """
        if count > self._count and not self._is_over:
            self._draw(max(count - self._count, self._at_once))
        if count > self._count and self._error is not None:
            raise _again(self._error)
        return min(count, self._count)

    def _draw(self, wanted: int) -> None:
        before = _States(self._generators)
        try:
            if self._states is None:
                self._iterator = self._begin()
            else:
                self._states.restore()
            assert self._iterator is not None
            for _ in range(wanted):
                self._keep(self._kept(next(self._iterator)))
        except StopIteration:
            self._is_over, self._iterator = True, None
        except Exception as error:
            self._is_over, self._iterator, self._error = True, None, error.with_traceback(None)
        finally:
            self._states = _States(self._generators)
            before.restore(own=False)

    def _keep(self, drawn: Any) -> None:
        if len(self._head) < self._pool:
            self._head.append(drawn)
            return
        self._rest.append(drawn)
        if len(self._rest) > 2 * _WINDOW:
            self._forgotten += len(self._rest) - _WINDOW
            del self._rest[:-_WINDOW]

    def has(self, position: int) -> bool:
        """Return whether the draw at ``position``, already made, is still kept."""
        return position < len(self._head) or position >= len(self._head) + self._forgotten

    def at(self, position: int) -> Any:
        """Return the draw at ``position``, which :meth:`reached` has reached."""
        if position < len(self._head):
            return self._head[position]
        return self._rest[position - len(self._head) - self._forgotten]


def _again(error: Exception) -> Exception:
    """Return a copy to raise again: the original must not keep the frames it was raised through."""
    try:
        return copy(error)
    except Exception:  # one that cannot be created from its arguments
        return RuntimeError(f"The sampler failed with {type(error).__name__}: {error}")


class _Draws:
    """The draws of one sampler; the passes of the last two epochs are kept.

    Args:
        sampler: the user's.
        n: the number of samples; None: the sampler may draw anything, as for a torch Dataset.
        seed: the loader's.
        pool: see :class:`_Pass`.
        kept: returns, for an epoch, the function that returns what to keep of a draw.
    """

    def __init__(
        self,
        sampler: Iterable[Any],
        n: int | None,
        seed: int,
        pool: int = POOL,
        kept: Callable[[], Callable[[Any], Any]] = lambda: _as_is,
    ) -> None:
        self.sampler = sampler
        #: Raises if one of these sample ids was dropped; None: none was.
        self.check_there: Callable[[IdArray], None] | None = None
        self.pool = pool
        self._kept = kept
        self._n = n
        self._seed = seed
        inner = getattr(sampler, "sampler", sampler)
        # If its epoch cannot be read, setting it is left to the user, who may have set it.
        self._setters = [s for s in (sampler, inner) if hasattr(s, "set_epoch") and _epoch_of(s) is not None]
        generators = [getattr(s, "generator", None) for s in (sampler, inner)]
        self._generators = {id(g): (g, g.initial_seed()) for g in generators if g is not None}
        self._at_once = _AHEAD if _only_computes(sampler) and _only_computes(inner) else 0
        self._told = None if not self._setters else 0
        self._noticed: int | None = None  # an epoch that the user set and the loader has not seen yet
        self._passes: dict[int, _Pass] = {}

    def _epoch_of_sampler(self) -> int | None:
        return _epoch_of(self._setters[-1]) if self._setters else None

    def set_by_user(self) -> int | None:
        """Return the epoch that the user set on the sampler, as torch's scripts do; None: not set."""
        self._notice()
        found, self._noticed = self._noticed, None
        return found

    def _notice(self) -> None:
        found = self._epoch_of_sampler()
        if found != self._told or type(found) is not type(self._told):
            self._told = self._noticed = found

    def _begin(self, epoch: int) -> Iterator[Any]:
        import torch

        self._notice()
        for setter in self._setters:
            setter.set_epoch(epoch)
        self._told = self._epoch_of_sampler()
        if type(self._told) is int:  # so that the user may set this epoch, too, as after a look at one batch
            self._told = _Told(self._told)
            with suppress(AttributeError):
                self._setters[-1].epoch = self._told  # type: ignore[union-attr]
            self._told = self._epoch_of_sampler()
        for generator, own in self._generators.values():
            generator.manual_seed(_draw_seed(self._seed, epoch, own))
        seed = _draw_seed(self._seed, epoch, 0)
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        return iter(self.sampler)

    def _pass(self, epoch: int, position: int = 0) -> _Pass:
        found = self._passes.pop(epoch, None)
        if found is None or not found.has(position):
            generators = [generator for generator, _ in self._generators.values()]
            begin = partial(self._begin, epoch)
            found = _Pass(begin, generators, self._kept(), self._at_once, self.pool)
        self._passes[epoch] = found
        while len(self._passes) > 2:
            del self._passes[next(iter(self._passes))]
        return found

    def reached(self, epoch: int, count: int) -> int:
        """Return ``count``, or the epoch's number of draws if that is less."""
        return self._pass(epoch).reached(count)

    def total(self, epoch: int) -> int:
        """Return the epoch's number of draws.

        Raises:
            ValueError: the sampler does not end.
        """
        found = self.reached(epoch, _MOST)
        if found == _MOST:
            raise ValueError(
                f"The sampler drew {_MOST} times in one epoch and has not come to an end. This call "
                "needs a finite epoch: end it (itertools.islice), and iterate again for the next."
            )
        return found

    def at(self, epoch: int, positions: Iterable[int]) -> list[Any]:
        """Return the draws at ``positions`` of the epoch."""
        listed = list(positions)
        if not listed:
            return []
        found = self._pass(epoch, min(listed))
        found.reached(max(listed) + 1)
        return [found.at(position) for position in listed]

    def checked(self, drawn: Iterable[Any]) -> IdArray:
        """Return sample ids as an array.

        Raises:
            TypeError: a draw is not an integer.
            IndexError: an id is outside the dataset. ValueError: the sample was dropped.
        """
        listed = list(drawn)
        if self._n is None:
            return np.array([_as_id(i) for i in listed], dtype=np.int64)
        try:
            ids = np.array([index(i) for i in listed], dtype=np.int64)
        except TypeError:
            wrong = next(i for i in listed if _is_no_integer(i))
            raise TypeError(
                f"A sampler must yield sample ids, integers from 0 to {self._n - 1}. Found: {wrong!r}, of "
                f"type {type(wrong).__name__}."
            ) from None
        if len(ids) and (ids.min() < 0 or ids.max() >= self._n):
            wrong = ids[(ids < 0) | (ids >= self._n)][0]
            raise IndexError(f"The sampler drew sample id {wrong}; legal are 0 to {self._n - 1}.")
        if self.check_there is not None:
            self.check_there(ids)
        return ids


def _as_is(drawn: Any) -> Any:
    return drawn


class _Told(int):
    """An epoch that the loader has set on a sampler; the same number from the user is a plain int."""


def _epoch_of(sampler: Any) -> int | None:
    found = getattr(sampler, "epoch", None)
    return found if isinstance(found, int) else None


def _only_computes(sampler: Any) -> bool:
    """Return whether a sampler's draws cannot depend on outside events: lists, and torch's own samplers."""
    of_torch = type(sampler).__module__.startswith("torch.utils.data.")
    return of_torch or isinstance(sampler, (list, tuple, range))


def _as_id(drawn: Any) -> int:
    """Return an integer for comparing draws; -2 for what is not a number."""
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
        self.draws = _Draws(sampler, n, seed)
        # A sampler of unknown kind counts as shuffled.
        listed = isinstance(sampler, (list, tuple, range)) or type(sampler).__name__ == "SequentialSampler"
        self.shuffle = not listed and getattr(sampler, "shuffle", True) is not False

    def set_by_user(self) -> int | None:
        """See :meth:`_Draws.set_by_user`."""
        return self.draws.set_by_user()

    def length(self) -> int:
        """Return the positions in an epoch, according to the sampler.

        Raises:
            TypeError: it has no ``len()``.
        """
        return len(self.draws.sampler)  # type: ignore[arg-type]

    def reached(self, epoch: int, position: int) -> int:
        """Return ``position``, or the epoch's end if that comes first."""
        return self.draws.reached(epoch, position)

    def keys(self, positions: IdArray, epoch: int) -> list[Any]:
        """Return the draws at ``positions``, unchanged."""
        return self.draws.at(epoch, positions.tolist())

    def total(self, epoch: int) -> int:
        return self.draws.total(epoch)

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        return self.draws.checked(self.draws.at(epoch, positions.tolist()))


def _listed(batch: Any) -> Iterable[Any]:
    """Return a batch's keys: for a torch Dataset a batch may be anything, even one key."""
    return batch if isinstance(batch, Iterable) and not isinstance(batch, (str, bytes)) else [batch]


class DrawnBatches:
    """The batches of a user's batch sampler; sizes may differ, ids may repeat."""

    repeats = True
    is_drawn = True

    def __init__(self, sampler: Iterable[Any], n: int | None, seed: int) -> None:
        self._n = n
        self.draws = _Draws(sampler, n, seed, _POOL_BATCHES, self._counting)

    def _counting(self) -> Callable[[Any], Any]:
        """Return, for one epoch, a function that keeps a batch, its ids and the position of its first one."""
        position = 0

        def kept(batch: Any) -> tuple[Any, IdArray, int]:
            nonlocal position
            if self._n is not None and isinstance(batch, int):
                raise TypeError(
                    f"A batch_sampler must yield lists of sample ids. Found: {batch!r}, of type int. Pass "
                    "what yields ids one by one as sampler=."
                )
            ids = self.draws.checked(_listed(batch))
            first, position = position, position + len(ids)
            return batch, ids, first

        return kept

    def set_by_user(self) -> int | None:
        """See :meth:`_Draws.set_by_user`."""
        return self.draws.set_by_user()

    def length(self) -> int:
        """Return the number of batches in an epoch, according to the sampler.

        Raises:
            TypeError: it has no ``len()``.
        """
        return len(self.draws.sampler)  # type: ignore[arg-type]

    def reached(self, epoch: int, count: int) -> int:
        """Return ``count``, or the epoch's number of batches if that is less."""
        return self.draws.reached(epoch, count)

    def keys(self, number: int, epoch: int) -> Any:
        """Return the batch as it was drawn."""
        return self.draws.at(epoch, [number])[0][0]

    def count(self, epoch: int) -> int:
        """Return the epoch's number of batches, over all ranks."""
        return self.draws.total(epoch)

    def batch(self, number: int, epoch: int) -> tuple[IdArray, int]:
        """Return the ids of a batch, and the position of its first one in the epoch."""
        _, ids, first = self.draws.at(epoch, [number])[0]
        return ids, first

    def total(self, epoch: int) -> int:
        last = self.count(epoch) - 1
        return self._end(last, epoch)

    def _end(self, last: int, epoch: int) -> int:
        ids, first = self.batch(last, epoch) if last >= 0 else ((), 0)
        return first + len(ids)

    def pool(self, epoch: int) -> int:
        """Return the number of positions at the epoch's beginning for :meth:`ids`."""
        return self._end(self.reached(epoch, _POOL_BATCHES) - 1, epoch)

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the ids at positions of :meth:`pool`."""
        count = self.reached(epoch, _POOL_BATCHES)
        batches = [ids for _, ids, _ in self.draws.at(epoch, range(count))]
        return np.concatenate([np.empty(0, np.int64), *batches])[positions]
