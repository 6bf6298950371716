"""A loader's way through its epochs: which batch is next, and for which iterator."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from fastload.backends import Backend
from fastload.errors import StateError
from fastload.handshake import Handshake
from fastload.preemption import Callbacks
from fastload.prefetch import BatchKey
from fastload.ranges import profiled
from fastload.sampler import Sampler
from fastload.stats import ConsumerClock, batch_length

__all__ = ["EpochIterator", "Epochs"]

_LABEL = "enumerate(DataLoader)#fastload.DataLoader.__next__"  # torch.profiler files it under DataLoader


class Epochs:
    """One back end, started by the first batch, and the place in the epoch that its consumer has reached.

    Args:
        sampler: its ``epoch`` is the one that the next iteration runs.
        start: makes the back end.
        stream: the dataset decides itself when an epoch ends.
        batch_size: samples in a batch whose length cannot be seen.
        begin: called before each iteration; gives the handshake with the other ranks the first time.
    """

    def __init__(
        self,
        sampler: Sampler,
        start: Callable[[], Backend],
        stream: bool,
        batch_size: int,
        begin: Callable[[], Handshake | None],
    ) -> None:
        self._sampler = sampler
        self._start = start
        self._stream = stream
        self._batch_size = batch_size
        self._begin = begin
        self._handshake: Handshake | None = None
        self._resume: tuple[int, int] | None = None  # (epoch, position) of a loaded state
        self._cursor: BatchKey | None = None  # the next batch of an iteration that has begun
        self._active: weakref.ref[EpochIterator] | None = None
        self._closed = False
        self.clock = ConsumerClock()
        self.backend: Backend | None = None

    def started(self) -> Backend:
        """The back end; its threads begin now if they have not.

        Raises:
            StateError: after :meth:`close`.
        """
        if self._closed:
            raise StateError("The loader is closed. Create a new DataLoader.")
        if self.backend is None:
            self.backend = self._start()
            weakref.finalize(self, self.backend.close)
        return self.backend

    def close(self) -> None:
        """End all threads. Idempotent."""
        self._closed = True
        if self.backend is not None:
            self.backend.close()

    @property
    def place(self) -> tuple[int, int]:
        """Epoch, and the position in it, of the consumer's next batch."""
        if self._cursor is None:
            return self.upcoming()
        epoch, start, step = self._cursor
        return epoch, start + step if self._stream else self._sampler.consumed(epoch, start, step)

    def resume_at(self, epoch: int, position: int) -> None:
        """Let the next iteration begin there."""
        self._resume = (epoch, position)
        self._cursor = None
        self._sampler.set_epoch(epoch)

    def upcoming(self) -> tuple[int, int]:
        """Epoch, and position in it, at which the next iteration begins."""
        epoch = self._sampler.epoch
        return epoch, self._resume[1] if self._resume is not None and self._resume[0] == epoch else 0

    def begin(self, iterator: EpochIterator) -> None:
        """A new epoch for ``iterator``; one that has not ended, held or left by ``break``, is cancelled.

        What was left keeps its batches in work until then. A ``__del__`` would give them back at once, but a
        KeyboardInterrupt that comes in one is lost.
        """
        self._handshake = self._begin() or self._handshake
        if self._active is not None and self.backend is not None and not self._closed:
            self.backend.cancel()
        epoch, start = self.upcoming()
        self._active = weakref.ref(iterator)
        self._resume = None
        self._sampler.epoch = epoch + 1
        self._cursor = BatchKey(epoch, start, 0)

    def next(self, iterator: EpochIterator) -> Any:
        """The next batch; raises StopIteration after the epoch's last."""
        if self._active is None or self._active() is not iterator:
            raise StateError("Another iteration of this loader has begun; this one is over.")
        Callbacks.run_if_signalled()
        assert self._cursor is not None
        epoch, start, step = self._cursor
        assert self._handshake is not None
        self._handshake.meet(epoch, start)
        if not self._stream and step >= self._sampler.num_batches(epoch, start):
            raise StopIteration
        with profiled(_LABEL), self.clock.waiting():
            batch = self.started().batch(self._cursor)
        self._cursor = BatchKey(epoch, start, step + 1)
        self.clock.delivered(batch_length(batch, self._batch_size))
        return batch

    def fetch(self, key: BatchKey) -> Any:
        """The batch ``key`` outside of any iteration; the place moves behind it."""
        self._handshake = self._begin() or self._handshake
        assert self._handshake is not None
        self._handshake.meet(key.epoch, key.start)
        batch = self.started().batch(key)
        is_last = key.step + 1 >= self._sampler.num_batches(key.epoch, key.start)
        self._cursor = None if is_last else key._replace(step=key.step + 1)
        self._sampler.epoch = key.epoch + 1
        self._resume = None
        self.clock.delivered(batch_length(batch, self._batch_size))
        return batch

    def end(self, iterator: EpochIterator, exhausted: bool) -> None:
        """``iterator`` is over; unless it is ``exhausted``, its batches in work are dropped."""
        if self._active is None or self._active() is not iterator:
            return
        self._active = None
        if exhausted:
            self._cursor = None
        elif self.backend is not None and not self._closed:
            self.backend.cancel()


class EpochIterator:
    """One pass over an epoch."""

    def __init__(self, epochs: Epochs, length: Callable[[], int]) -> None:
        self._epochs = epochs
        self._length = length
        self._begun = False
        self._over = False

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        if not self._begun:
            self._epochs.begin(self)
            self._begun = True
        try:
            return self._epochs.next(self)
        except StopIteration:
            self._finish(exhausted=True)
            raise
        except BaseException:
            self._finish(exhausted=False)
            raise

    def __len__(self) -> int:
        return self._length()

    def _finish(self, exhausted: bool) -> None:
        self._over = True
        self._epochs.end(self, exhausted)
