"""A loader's way through its epochs: which batch is next, and for which iterator."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fastload.backends.iterations import Iterations
from fastload.backends.protocol import Backend
from fastload.backends.stats import ConsumerClock, batch_length
from fastload.errors import BackendError, DeviceError, NotDelivered, StateError, WorldError
from fastload.machine.generators import profiled
from fastload.machine.interrupts import interrupts_kept, raised_by_a_handler
from fastload.machine.threads import ForkSafeLock, may_be_abandoned
from fastload.prefetch.feeder import BatchKey
from fastload.ranks.handshake import Handshake
from fastload.ranks.preemption import Callbacks
from fastload.sampler import Sampler, check_begun

_LABEL = "enumerate(DataLoader)#fastload.DataLoader.__next__"  # torch.profiler files it under DataLoader
# Errors that say nothing about the batch: after them next() asks for the same batch again.
_NOT_OF_THE_BATCH = (BackendError, DeviceError, NotDelivered, StateError, WorldError)


class Epochs:
    """The back ends, started by the first batch, and the consumer's place in the epoch.

    Each iteration is an epoch, independent of the others (:mod:`fastload.backends.iterations`). The place is
    that of the iteration that was last asked for a batch.

    Args:
        sampler: its ``epoch`` is the one that the next iteration runs.
        lanes: the back ends.
        stream: whether the dataset itself decides when an epoch ends.
        batch_size: samples in a batch whose length cannot be determined.
        begin: called before each iteration; returns the handshake with the other ranks the first time.
    """

    def __init__(
        self,
        sampler: Sampler,
        lanes: Iterations,
        stream: bool,
        batch_size: int,
        begin: Callable[[], Handshake | None],
    ) -> None:
        self._sampler = sampler
        self.lanes = lanes
        self._stream = stream
        self._batch_size = batch_size
        self._begin = begin
        self._handshake: Handshake | None = None
        self._lock = ForkSafeLock()
        self._resume: tuple[int, int] | None = None  # (epoch, position) of a loaded state
        self._place_state: dict[str, Any] = {}  # of a loaded state
        self._cursor: BatchKey | None = None  # the next batch of the iteration that was asked last
        self._asked: weakref.ref[EpochIterator] | None = None  # that iteration, unless it is over
        self._under_way: weakref.WeakSet[EpochIterator] = weakref.WeakSet()  # those that have begun an epoch
        self._outside = _Outside()
        self._fetched: tuple[int, int] | None = None  # epoch and start of the pass that fetch() is in
        self.clock = ConsumerClock()

    @property
    def backend(self) -> Backend | None:
        """The first back end, if it was started."""
        started = self.lanes.backends
        return started[0] if started else None

    def started(self) -> Backend:
        """Return the back end, and start its threads if they have not started.

        Raises:
            StateError: after :meth:`close`.
        """
        return self.lanes.first()

    def close(self) -> None:
        """End all threads. Idempotent."""
        self.lanes.close()

    @property
    def place(self) -> tuple[int, int]:
        """Epoch, and the position in it, of the consumer's next batch."""
        if self._cursor is None:
            return self.upcoming()
        epoch, start, step = self._cursor
        return (epoch, start + step) if self._stream else self._place_of(self._cursor)

    def place_state(self) -> dict[str, Any]:
        """Return what a torch Dataset and its workers know of the place; starts the workers if needed."""
        if self._place_state:
            return dict(self._place_state)
        with self._lock.held():
            self._handshake = self._begin() or self._handshake
        asked = self._asked() if self._asked is not None else None
        return self.lanes.place_state(asked, self._cursor or BatchKey(*self.upcoming(), 0))

    def pending_state(self) -> dict[str, Any]:
        """Return the part of a loaded state that no iteration has taken yet."""
        return dict(self._place_state)

    def resume_at(self, epoch: int, position: int, place_state: dict[str, Any]) -> None:
        """Let the next iteration begin there, with a state of :meth:`place_state` or an empty one."""
        self._place_state = place_state
        self._resume = (epoch, position)
        self._cursor = self._asked = None
        self._sampler.set_epoch(epoch)

    @property
    def resumed(self) -> int | None:
        """The epoch of a loaded state, until its iteration begins."""
        return None if self._resume is None else self._resume[0]

    def upcoming(self) -> tuple[int, int]:
        """Return the epoch, and the position in it, at which the next iteration begins."""
        epoch = self._sampler.epoch
        return epoch, self._resume[1] if self._resume is not None and self._resume[0] == epoch else 0

    def begin(self, iterator: EpochIterator, skip: int | None = None) -> BatchKey:
        """Begin an epoch, and return its first batch: where a loaded state says, or batch ``skip``.

        Batches in work for an iteration that was left by ``break`` stay until another one's next batch.
        A ``__del__`` would give them back at once, but would lose a KeyboardInterrupt that comes in it.

        A signal's handler may raise in here: then the epoch has begun for loader and iterator or neither.
        CPython handles signals when functions are called or have returned, so the last lines call none.
        """
        with self._lock.held():
            self._handshake = self._begin() or self._handshake
            epoch, start = self.upcoming()
            if skip is not None:
                start = self._sampler.consumed(epoch, 0, skip)
                check_begun(self._sampler, epoch, start)
            fix_length = getattr(self._sampler.order, "begin", None)
            if fix_length is not None:
                fix_length(epoch)
            key, asked = BatchKey(epoch, start, 0), weakref.ref(iterator)
            self._under_way.add(iterator)
            core = getattr(self._sampler, "core", self._sampler)  # its epoch is a plain attribute
            if self._place_state:
                self.lanes.go_on_with(key, self._place_state)
            self._place_state, self._resume = {}, None
            self._cursor, self._asked, iterator._key = key, asked, key
            core.epoch = epoch + 1
            return key

    def next(self, iterator: EpochIterator, key: BatchKey) -> Any:
        """Return the batch ``key``; raise StopIteration after the epoch's last."""
        Callbacks.run_if_signalled()
        self._cursor, self._asked = key, weakref.ref(iterator)
        self._meet(key)
        # A torch loader's iterator finds out by itself, as it has workers to end.
        if self.lanes.movable and not self._sampler.has_batch(*key):
            raise StopIteration
        with profiled(_LABEL), self.clock.waiting():
            return self.lanes.take(iterator, key)

    def _meet(self, key: BatchKey) -> None:
        with self._lock.held():
            assert self._handshake is not None
            self._handshake.meet(key.epoch, key.start)

    def fetch(self, key: BatchKey) -> Any:
        """Return the batch ``key`` outside of any iteration; the place moves past it."""
        if key[:2] != self._fetched:  # a pass begins; later batches may show the next epoch's state
            with self._lock.held():
                self._handshake = self._begin() or self._handshake
            self._fetched = key[:2]
        self._meet(key)
        batch = self.lanes.take(self._outside, key)
        is_last = not self._sampler.has_batch(*key._replace(step=key.step + 1))
        if is_last:
            self.lanes.release(self._outside)
            self._fetched = None
        self._cursor, self._asked = None if is_last else key._replace(step=key.step + 1), None
        self._sampler.epoch = key.epoch + 1
        self._resume = None
        self.delivered(batch)
        return batch

    def go_on(
        self,
        divide: Callable[[list[tuple[int, int]]], Handshake],
        at: tuple[int, int] | None,
        keep: bool = True,
    ) -> None:
        """Let each iteration go on where it is, after ``divide`` has changed the ranks.

        Args:
            divide: changes them, and returns the handshake with the new ones, who compare at the next batch;
                called with epoch and position of each iteration, and of the next one.
            at: epoch and position at which the iteration that was last asked for a batch goes on; None: where
                it is. If there is none, the next iteration begins there.
            keep: whether batches in work that are due again may be kept.

        Raises:
            StateError: called from within next(), or while a framework asks for batches of an epoch.
        """
        with ExitStack() as held:
            under_way = list(self._under_way)
            for iterator in under_way:
                held.enter_context(iterator.between_batches())
            held.enter_context(self._lock.held())
            if self._fetched is not None:
                raise StateError(
                    "A framework takes this epoch's batches by their numbers, which are those of the ranks "
                    "before. Call reshard() between two epochs, or iterate over the loader itself."
                )
            asked = self._asked() if self._asked is not None else None
            places = {one: self._place_of(one.key) for one in under_way if one.key is not None}
            begins = self.upcoming()
            if at is not None and asked in places:
                places[asked] = at
            elif at is not None:
                begins = at
            held.enter_context(interrupts_kept())  # else the ranks would be new, and the keys old
            self._handshake = divide([*places.values(), begins])
            keys: dict[Any, BatchKey] = {one: BatchKey(*place, 0) for one, place in places.items()}
            for iterator in places:
                iterator._key = keys[iterator]
            self._cursor = keys.get(asked) if asked is not None else None
            core = getattr(self._sampler, "core", self._sampler)
            if at is not None and asked in places:
                core.epoch = at[0] + 1
            elif begins[1]:
                core.epoch, self._resume = begins[0], begins
            elif at is not None:
                core.epoch, self._resume = at[0], None
            self.lanes.go_on_at({**keys, None: BatchKey(*begins, 0)} if keep else {})

    def _place_of(self, key: BatchKey) -> tuple[int, int]:
        return key.epoch, self._sampler.consumed(*key)

    def passed(self, iterator: EpochIterator, key: BatchKey) -> None:
        """Note that ``iterator`` has had all batches before ``key``, or the error in place of one."""
        if self._asked is not None and self._asked() is iterator:
            self._cursor = key

    def delivered(self, batch: Any) -> None:
        """Count a batch."""
        self.clock.delivered(batch_length(batch, self._batch_size))

    def end(self, iterator: EpochIterator) -> None:
        """Note that ``iterator`` has had its last batch."""
        if self._asked is not None and self._asked() is iterator:
            self._cursor = self._asked = None
        self._under_way.discard(iterator)
        self.lanes.release(iterator)


def _is_of_the_batch(error: BaseException) -> bool:
    """Whether the error belongs to the batch itself, so that the next batch follows."""
    if not isinstance(error, Exception) or isinstance(error, _NOT_OF_THE_BATCH):
        return False
    return not raised_by_a_handler(error)


class _Outside:
    """A stand-in for whoever asks for batches without one of our iterators."""


class EpochIterator:
    """One pass over an epoch. Threads may share it: each batch goes to one of them.

    After an error of a batch (a bad sample, an exception in a dataset or collate function) the next batch
    follows, as with torch's loader.
    """

    def __init__(self, epochs: Epochs, loader: Any, skip: int | None = None) -> None:
        self._epochs = epochs
        #: The loader that is iterated over, which lives as long as this.
        self.loader = loader
        self._skip = skip  # batches to leave out at the epoch's beginning
        self._lock = ForkSafeLock()
        self._busy = 0  # the process in which a next() is under way
        self._key: BatchKey | None = None  # the next batch, once the first has been asked for
        self._over = False

    @property
    def key(self) -> BatchKey | None:
        """The next batch; None before the first one is requested."""
        return self._key

    def __iter__(self) -> EpochIterator:
        return self

    @contextmanager
    def between_batches(self) -> Iterator[None]:
        """Wait until no thread is in next(), and keep all out of it in the block.

        Raises:
            StateError: this thread is.
        """
        with self._lock.held():
            if self._busy == os.getpid():
                raise StateError("reshard() was called from within next(). Call it between two batches.")
            yield

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StateError: the loader is closed; or next() was called from within next(), as a signal handler or
                a dataset may do.
            NotDelivered: the batch did not come within ``timeout``, or a worker died.
            SystemExit: the interpreter exits, and this is a daemon thread, which this ends.
        """
        if threading.current_thread() is threading.main_thread():
            return self._next_locked()
        with may_be_abandoned():
            return self._next_locked()

    def _next_locked(self) -> Any:
        came: list[BatchKey | None] = [None]
        try:
            with self._lock.held():
                if self._busy == os.getpid():
                    raise StateError("next() of this iterator is under way in the same thread.")
                self._busy = os.getpid()
                try:
                    return self._next(came)
                finally:
                    self._busy = 0
        except BaseException:
            if came[0] is not None:
                self._take_back(came[0])
            raise

    def _next(self, came: list[BatchKey | None]) -> Any:
        if self._over:
            raise StopIteration
        key = self._key or self._epochs.begin(self, self._skip)
        try:
            batch = self._epochs.next(self, key)
        except StopIteration:
            self._over = True
            self._epochs.end(self)
            raise
        except BaseException as error:
            of_batch = _is_of_the_batch(error)
            if of_batch:
                self._go_on(key)
            self._epochs.lanes.drop(self, of_batch)
            raise
        self._epochs.delivered(batch)
        came[0] = key
        self._go_on(key)
        return batch

    def _go_on(self, key: BatchKey) -> None:
        self._key = key._replace(step=key.step + 1)
        self._epochs.passed(self, self._key)

    def _take_back(self, key: BatchKey) -> None:
        """Let a batch come again next: a signal's handler raised before anybody had it."""
        with self._lock.held():
            if self._key in (key, key._replace(step=key.step + 1)):  # else another thread has gone on
                self._key = key
                self._epochs.passed(self, key)

    def __len__(self) -> int:
        return len(self.loader)
