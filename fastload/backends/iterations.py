"""The back ends of one loader: one for each of its simultaneous iterations.

A lane is a back end and the iteration that it works for. Iterations of one loader are independent, as torch's
are, so two that alternate need two queues of batches. Almost always there is only one, and often somebody
still holds an older iterator that is never used again (``batch = next(iterator)`` to look at one). So a new
iteration takes over the previous one's lane, whose batches in work are dropped. Batches of packed data are
pure functions of their key, so an iteration that comes back (a nested loop, ``zip(loader, loader)``) just
gets another lane; from then on nothing is taken over before ``MOST_LANES`` are in use.

torch's own iterators cannot be recreated at their place, so nothing is ever taken from one (each may have
worker processes, as with torch's loader). With ``persistent_workers`` there is one set of workers: the
previous iteration is then over, and raises, which torch's does not.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from fastload.backends.protocol import go_on_at
from fastload.backends.stats import Counts
from fastload.errors import StateError
from fastload.machine.threads import ForkSafeLock
from fastload.prefetch.feeder import BatchKey

if TYPE_CHECKING:
    from fastload.backends.protocol import Backend, PlacedBackend
MOST_LANES = 4

_OVER = (
    "Another iteration of this loader has begun and took over its workers (persistent_workers=True); this "
    "one is over. Pass persistent_workers=False for several iterations at the same time."
)


_RESTARTED = (
    "This iteration is over: a state of a run with another seed, generation, mix or global batch was loaded "
    "since it began. Iterate anew."
)


class _BackendSlot:
    """One back end, and the iteration whose batches it makes."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.lock = ForkSafeLock()
        self.user: weakref.ref[Any] | None = None
        self.is_left = False  # a user went away in the middle of an epoch
        self.pending: tuple[BatchKey, dict[str, Any]] | None = None  # where to go on, and with which state
        self.used = 0  # the number of the last use

    def user_now(self) -> Any:
        return self.user() if self.user is not None else None


class Iterations:
    """The loader's iterations, each with its own back end.

    Args:
        start: makes a back end.
        movable: whether batches are pure functions of their key, so that lanes may be taken over.
        single: whether there is one lane only, which the newest iteration has.
    """

    def __init__(self, start: Callable[[], Backend], movable: bool, single: bool = False) -> None:
        self._start = start
        self.movable = movable
        self._single = single
        self._lock = ForkSafeLock()
        self._lanes: list[_BackendSlot] = []
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()  # iterations that have had a lane
        self._alternate = False  # an iteration came back after another one had taken its lane
        self._pending: tuple[BatchKey, dict[str, Any]] | None = None
        self._over: weakref.WeakSet[Any] = weakref.WeakSet()
        self._takes = 0
        self._closed = False

    @property
    def backends(self) -> list[Backend]:
        """All back ends that were started, in order."""
        return [lane.backend for lane in self._lanes]

    def first(self) -> Backend:
        """Return the first back end, and start its threads if they have not started.

        Raises:
            StateError: after :meth:`close`.
        """
        with self._lock.held():
            self._check_open()
            return (self._lanes[0] if self._lanes else self._open()).backend

    def take(self, user: Any, key: BatchKey) -> Any:
        """Return the batch ``key`` for the iteration ``user``, which is referenced weakly.

        Raises:
            StateError: after :meth:`close`, or when another iteration has the only lane.
            StopIteration: a stream is over.
        """
        lane = self._lane_of(user)
        with lane.lock.held():
            if lane.is_left:
                lane.backend.cancel()
                lane.is_left = False
            if lane.pending is not None:
                pending, lane.pending = lane.pending, None
                cast("PlacedBackend", lane.backend).load_place_state(*pending)
            return lane.backend.batch(key)

    def _lane_of(self, user: Any) -> _BackendSlot:
        with self._lock.held():
            self._check_open()
            self._takes += 1
            lane = next((lane for lane in self._lanes if lane.user_now() is user), None)
            if lane is None:
                if user in self._over:
                    raise StateError(_RESTARTED)
                if user in self._known and self._single:
                    raise StateError(_OVER)
                self._alternate = self._alternate or user in self._known
                self._known.add(user)
                lane = self._free() or self._taken() or self._open()
                lane.is_left = lane.is_left or lane.user is not None
                lane.user = weakref.ref(user)
                lane.pending, self._pending = self._pending, None
            lane.used = self._takes
            return lane

    def _free(self) -> _BackendSlot | None:
        return next((lane for lane in self._lanes if lane.user_now() is None), None)

    def _taken(self) -> _BackendSlot | None:
        """Return a lane that is in use, if no other is to be opened."""
        if not self._lanes or not (self.movable or self._single):
            return None
        if self._single or len(self._lanes) == MOST_LANES:
            return min(self._lanes, key=lambda lane: lane.used)
        return None if self._alternate else max(self._lanes, key=lambda lane: lane.used)

    def _open(self) -> _BackendSlot:
        backend = self._start()
        weakref.finalize(self, backend.close)
        self._lanes.append(_BackendSlot(backend))
        if self._closed:  # meanwhile, by another thread
            backend.close()
        return self._lanes[-1]

    def place_state(self, user: Any, key: BatchKey) -> dict[str, Any]:
        """Return what a torch Dataset and its workers know of their place before ``key``, the next batch of
        ``user`` or, if that is None, of the next iteration."""
        with self._lock.held():
            self._check_open()
            own = [lane for lane in self._lanes if user is not None and lane.user_now() is user]
            lane = own[0] if own else max(self._lanes, key=lambda lane: lane.used, default=None)
            lane = lane or self._open()
        with lane.lock.held():
            return cast("PlacedBackend", lane.backend).place_state(key)

    def go_on_with(self, key: BatchKey, state: dict[str, Any]) -> None:
        """Let the next iteration, at ``key``, go on with a state of :meth:`place_state`."""
        self._pending = key, state

    def restart(self) -> None:
        """End all iterations; later ones get new back ends."""
        with self._lock.held():
            left, self._lanes = self._lanes, []
            for user in self._known:
                self._over.add(user)
            self._known.clear()
        for lane in left:
            lane.backend.close()

    def go_on_at(self, keys: Mapping[Any, BatchKey]) -> None:
        """Let the iterations go on at other keys, after the ranks have changed.

        Args:
            keys: of each iteration that is under way; of None: where the next one begins.
        """
        for lane in list(self._lanes):
            with lane.lock.held():
                go_on_at(lane.backend, None if lane.is_left else keys.get(lane.user_now()))

    def drop(self, user: Any, of_batch: bool = False) -> None:
        """Drop the work for ``user`` after an error, if it can be made again.

        Args:
            of_batch: whether the error belongs to one batch, so that later ones may stay in work.
        """
        for lane in self._lanes if self.movable else ():
            if lane.user_now() is user and not self._closed:
                if of_batch and getattr(lane.backend, "goes_on", False):
                    continue
                with lane.lock.held(), suppress(StateError):
                    lane.backend.cancel()

    def release(self, user: Any) -> None:
        """Note that ``user`` has had its epoch's last batch."""
        with self._lock.held():
            lanes = [lane for lane in self._lanes if lane.user_now() is user]
            for lane in lanes:
                lane.user = None
            self._known.discard(user)
        if not self.movable and not self._closed:  # torch's workers end; ours are ahead in the next epoch
            for lane in lanes:
                with lane.lock.held():
                    lane.backend.cancel()

    def counts(self) -> Counts:
        """Return the sum of what the back ends counted."""
        return Counts.sum([backend.counts() for backend in self.backends])

    def close(self) -> None:
        """End all threads. Idempotent; waits for no lock, because it may run in a garbage collection."""
        self._closed = True
        for lane in list(self._lanes):
            lane.backend.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("The loader is closed. Create a new DataLoader.")
