"""The queue of batches that the engine fills ahead of the consumer, and the batches announced to it."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C, ERROR_CLASSES
from fastload.errors import NotDelivered, StateError
from fastload.prefetch.engine_calls import Filling
from fastload.prefetch.slots import Slot, Slots, fields_in
from fastload.sampler import BatchIds, Sampler
from fastload.sampler.order import IdArray

# ---- Announced batches, whose records are read before they are requested ----

Handle = TypeVar("Handle")  # of the reading that has begun

_AT_ONCE = 4  # batches


class BatchKey(NamedTuple):
    """The identity of a batch: the ``step``-th after position ``start`` of ``epoch``."""

    epoch: int
    start: int
    step: int


def following(sampler: Sampler, key: BatchKey) -> BatchKey | None:
    """Return the batch after ``key``, perhaps of the next epoch; None: not known yet."""
    after = key._replace(step=key.step + 1)
    if sampler.is_ready(*after):
        return after
    # A user's sampler may depend on anything until its epoch begins: it is not read early.
    if sampler.order.is_drawn or not sampler.has_batch(key.epoch + 1, 0, 0):
        return None
    return BatchKey(key.epoch + 1, 0, 0)


@dataclass(frozen=True)
class Announced(Generic[Handle]):
    """A batch; ``handle`` is the result of announcing it, or None."""

    key: BatchKey
    batch: BatchIds
    handle: Handle | None = None
    partners: IdArray | None = None  # those combined with each of its samples, (n, k) sample ids; -1: none


class Announcements(Generic[Handle]):
    """A queue that announces batches in the sampler's order, ``ahead`` samples beyond those in progress.

    Args:
        sampler: yields the samples of each batch.
        ahead: samples.
        announce: begins to read a batch's records; returns a handle.
        forget: called with a handle whose batch will not be requested.
        partners: returns, for an epoch and a batch, the other samples combined with each.
    """

    def __init__(
        self,
        sampler: Sampler,
        ahead: int,
        announce: Callable[[BatchKey, BatchIds, IdArray | None], Handle],
        forget: Callable[[Handle], None],
        partners: Callable[[int, BatchIds], IdArray] | None = None,
    ) -> None:
        self._sampler = sampler
        self._ahead = ahead
        self._announce = announce
        self._forget = forget
        self._partners = partners
        self._waiting: deque[Announced[Handle]] = deque()
        self._samples = 0  # of the announced batches

    def find(self, key: BatchKey) -> Announced[Handle]:
        """Return the batch ``key``. If another one was announced first, forget all."""
        if self._waiting and self._waiting[0].key != key:
            self.forget()
        if self._waiting:
            return self._waiting[0]
        batch = self._sampler.batch(*key)
        return Announced(key, batch, None, self.partners_of(key.epoch, batch))

    def partners_of(self, epoch: int, batch: BatchIds) -> IdArray | None:
        """Return the samples combined with a batch's; None: none."""
        return None if self._partners is None else self._partners(epoch, batch)

    def taken(self) -> None:
        """Note that the batch of :meth:`find` is in progress."""
        if self._waiting:
            self._samples -= len(self._waiting.popleft().batch.ids)

    def go_on(self, last: BatchKey | None) -> None:
        """Announce a few more batches at a time, so that the first one does not wait for all of them.

        Args:
            last: the last batch in progress.
        """
        if self._waiting:
            last = self._waiting[-1].key
        for _ in range(_AT_ONCE):
            if last is None or self._samples >= self._ahead:
                return
            key = following(self._sampler, last)
            if key is None:
                return
            batch = self._sampler.batch(*key)
            partners = self.partners_of(key.epoch, batch)
            self._waiting.append(Announced(key, batch, self._announce(key, batch, partners), partners))
            self._samples += len(batch.ids)
            last = key

    def forget(self) -> None:
        """Forget all announced batches: none will be requested."""
        while self._waiting:
            last = self._waiting.pop()
            self._samples -= len(last.batch.ids)
            assert last.handle is not None  # go_on() has announced it
            self._forget(last.handle)

    def clear(self) -> None:
        """Release all handles, when their issuer has ended."""
        self._waiting.clear()
        self._samples = 0


# ---- Bad samples, as reported by whoever decodes them ----


class Fault(NamedTuple):
    """A bad sample of a batch, as found by whoever decodes it."""

    position: int  # in the batch
    sample: int  # sample id
    kind: type[Exception]
    message: str


def faults_of_core(found: Iterable[tuple[int, int, int, str]]) -> list[Fault]:
    """Convert the faults from ``_C.Engine.collect()``: numbers of kinds become exception classes."""
    return [
        Fault(position, sample, ERROR_CLASSES[kind], message) for position, sample, kind, message in found
    ]


# ---- The queue ----

Ids = npt.NDArray[np.int64]

_log = logging.getLogger("fastload")

_ENOUGH = 256  # batches in progress, of whatever epochs
_POLL_SECONDS = 0.1  # how often a waiting consumer checks for signals


@dataclass(eq=False)
class Pending:
    """A batch that was requested from the engine."""

    key: BatchKey
    batch: BatchIds
    slot: Slot
    ticket: int
    reports: list[Any] = field(default_factory=list)  # of its bad samples, not published yet

    def is_of(self, epoch: int, batch: BatchIds) -> bool:
        """Whether it is this batch of an epoch, so that its pictures are the same."""
        mine = self.batch
        pairs = [(mine.ids, batch.ids), (mine.draws, batch.draws), (mine.positions, batch.positions)]
        return self.key.epoch == epoch and all(_equal(*pair) for pair in pairs)


def _equal(one: npt.NDArray[Any] | None, other: npt.NDArray[Any] | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


class Feeder:
    """A queue that keeps ``depth`` batches beyond the consumer's submitted to the engine, across epochs.

    After those, batches of ``ahead`` samples in total are announced: they have no slots yet, but their
    records are being read. Batches that differ in size are limited to ``ahead_bytes``, but to no fewer than
    ``floor``; 0: no limit.
    """

    def __init__(
        self,
        filling: Filling,
        sampler: Sampler,
        slots: Slots,
        depth: int,
        ahead: int = 0,
        partners: Callable[[int, BatchIds], Ids] | None = None,
        floor: int = 0,
        ahead_bytes: int = 0,
    ) -> None:
        self._filling = filling
        self._engine = filling.engine
        self._sampler = sampler
        self._slots = slots
        self.depth = depth
        self._floor = floor
        self._ahead_bytes = ahead_bytes if filling.layout.is_measured else 0
        self._queue: deque[Pending] = deque()
        engine = filling.engine
        self._announced = Announcements(
            sampler,
            ahead,
            lambda key, batch, partners: engine.announce(batch.ids, batch.draws, key.epoch, partners),
            engine.forget,
            partners,
        )
        self.waited = 0.0  # time for which wait() was blocked; only for the consumer's thread
        self._last: BatchKey | None = None  # the last one submitted
        self._losses = _C.loss_count()
        self._lost: set[str] = set()  # files already reported
        self._epoch = 0  # of the last batch taken
        #: Called with each batch before it is taken, or None.
        self.on_take: Callable[[BatchKey], None] | None = None
        self._kept: dict[BatchKey, Pending] = {}  # in work already, of :meth:`go_on_at`

    def take(self, key: BatchKey) -> Pending:
        """Return the batch ``key``, perhaps still being filled; the ones after it are submitted."""
        if self._queue and self._queue[0].key != key:
            self.cancel()
        if self.on_take is not None:
            self.on_take(key)
        if not self._queue:
            self._submit(key, must=True)
        self._epoch = key.epoch
        self._fill(self.depth + 1)
        self._announced.go_on(self._last)
        return self._queue.popleft()

    def take_if_complete(self) -> Pending | None:
        """Return the next batch if it is submitted and complete; does not block."""
        if self._queue and self._engine.wait(self._queue[0].ticket, 0.0):
            return self.take(self._queue[0].key)
        return None

    @property
    def complete(self) -> int:
        """Batches that are submitted and complete."""
        return sum(self._engine.wait(pending.ticket, 0.0) for pending in self._queue)

    def top_up(self) -> None:
        """Submit the next batches, as far as there are slots."""
        self._fill(self.depth)

    def _fill(self, count: int) -> None:
        while len(self._queue) < count and self._last is not None:
            coming = following(self._sampler, self._last)
            if coming is None or self._is_far(coming) or self._is_much(count - self.depth):
                break
            if not self._submit(coming):
                break

    def _is_much(self, taken: int) -> bool:
        """Return whether another batch like the largest exceeds the bound, without the first ``taken``."""
        if not self._ahead_bytes or len(self._queue) - taken < self._floor:
            return False
        sizes = [pending.slot.layout.nbytes for pending in islice(self._queue, taken, None)]
        return sum(sizes) + max(sizes) > self._ahead_bytes

    def _is_far(self, key: BatchKey) -> bool:
        """Return whether a batch can wait: it is of the epoch after the next, and enough work is queued for
        any number of threads. So the work there is bounds how far a huge depth looks ahead."""
        return key.epoch > self._epoch + 1 and len(self._queue) >= _ENOUGH

    def wait(self, pending: Pending, timeout: float = 0.0) -> list[Fault]:
        """Block until the batch is complete; return its faults.

        Raises:
            NotDelivered: it took more than ``timeout`` seconds (0: no limit), as in torch's DataLoader.
        """
        start = time.monotonic()
        limit = start + timeout if timeout > 0 else math.inf
        try:
            while not self._engine.wait(
                pending.ticket, min(_POLL_SECONDS, max(0.0, limit - time.monotonic()))
            ):
                # Back in the interpreter: signal handlers run here.
                if time.monotonic() >= limit:
                    raise NotDelivered(f"DataLoader timed out after {timeout} seconds: {pending.key}.")
        except BaseException:
            with suppress(StateError):  # closed meanwhile
                self._engine.cancel(pending.ticket)
            raise
        self.waited += time.monotonic() - start
        self._report_losses()
        return faults_of_core(self._engine.collect(pending.ticket))

    def _report_losses(self) -> None:
        """Report mapped files that were truncated. Records of a shard or the index also raise errors."""
        losses = _C.loss_count()
        if losses != self._losses:
            self._losses = losses
            paths = _C.lost_files()
            if set(paths) <= self._lost:  # these were reported before
                return
            self._lost.update(paths)
            _log.warning(
                "files were truncated while in use, or their disk fails: %s. Lost data is read from "
                "the shards; without entry points decoding is slower. Restore the files and restart.",
                ", ".join(paths),
            )

    def alone(self, pending: Pending, position: int, sample: int) -> tuple[dict[str, Any], list[Fault]]:
        """Return a raw batch of another sample, as at a position of a collected batch, and its faults."""
        draws, positions = pending.batch.draws, pending.batch.positions
        here = slice(position, position + 1)
        of_one = BatchIds(
            np.array([sample], dtype=np.int64),
            None if draws is None else draws[here],
            None if positions is None else positions[here],
        )
        epoch = pending.key.epoch
        partners = self._announced.partners_of(epoch, of_one)
        layout = self._filling.planned(of_one.ids, of_one.draws, epoch, partners)
        memory = np.empty(layout.nbytes, np.uint8)
        slot = Slot(memory, layout, fields_in(torch.from_numpy(memory), layout))
        ticket = self._filling.submit(slot, of_one.ids, of_one.draws, epoch, None, partners)
        return slot.fields, self.wait(Pending(pending.key, of_one, slot, ticket))

    def mend(self, pending: Pending, changes: Mapping[int, Mapping[str, Any] | None]) -> None:
        """Put other samples, or none, at positions of a collected batch; see :func:`mended`."""
        slot = pending.slot
        of = slot.layout.layout
        from fastload.sample.mended import mended  # rarely needed

        raw = mended(of, slot.fields, changes)
        if not of.is_measured:
            return  # written in place
        layout = of.of(slot.layout.size, of.measured_of(raw))
        memory = np.empty(layout.nbytes, np.uint8)
        layout.write(memory, raw)
        pending.slot = self._slots.exchange(slot, layout)
        pending.slot.memory[:] = memory

    def submit_share(self, key: BatchKey, batch: BatchIds, ids: Ids, slot: Slot | None) -> Pending:
        """Submit a part of a batch, outside the queue: positions whose id is ``_C.ELSEWHERE`` stay unchanged.

        Args:
            key, batch: which batch.
            ids: (n,) int64 sample ids.
            slot: memory that already holds other parts of the batch; None: a new one.
        """
        slot = slot or self._slots.lease(self._filling.planned(ids, batch.draws, key.epoch), must=True)
        assert slot is not None
        return Pending(key, batch, slot, self._filling.submit(slot, ids, batch.draws, key.epoch))

    def is_complete(self, pending: Pending) -> bool:
        """Return whether :meth:`wait` would return at once."""
        return bool(self._engine.wait(pending.ticket, 0.0))

    def drop(self, pending: Pending) -> None:
        """Drop a batch of :meth:`submit_share`; its memory is free afterwards."""
        self._engine.cancel(pending.ticket)

    def cancel(self) -> None:
        """Drop all submitted and announced batches; their slots are free afterwards."""
        self._last = None
        self._announced.forget()
        while self._queue:
            self._drop(self._queue.pop())
        while self._kept:
            self._drop(self._kept.popitem()[1])

    def go_on_at(self, key: BatchKey) -> None:
        """Go on at ``key`` after the ranks have changed. Batches in work that are due again are kept."""
        before = [*self._queue, *self._kept.values()]
        self._announced.forget()
        self._queue.clear()
        self._kept, self._last = {}, None
        due: BatchKey | None = key if self._sampler.has_batch(*key) else None
        for _ in range(len(before)):
            if due is None:
                break
            batch = self._sampler.batch(*due)
            same = next((one for one in before if one.is_of(due.epoch, batch)), None)
            if same is not None:
                before.remove(same)
                same.key, self._kept[due] = due, same
            due = following(self._sampler, due)
        for pending in before:
            self._drop(pending)

    def _drop(self, pending: Pending) -> None:
        self._engine.cancel(pending.ticket)
        self._slots.give_back(pending.slot)

    def _submit(self, key: BatchKey, must: bool = False) -> bool:
        if self._kept and key in self._kept:
            self._queue.append(self._kept.pop(key))
            self._last = key
            return True
        found = self._announced.find(key)
        batch = found.batch
        layout = self._filling.planned(batch.ids, batch.draws, key.epoch, found.partners)
        slot = self._slots.lease(layout, must)
        if slot is None:
            return False
        ticket = self._filling.submit(slot, batch.ids, batch.draws, key.epoch, found.handle, found.partners)
        self._announced.taken()
        self._queue.append(Pending(key, batch, slot, ticket))
        self._last = key
        return True
