"""The queue of batches that the engine fills ahead of the consumer."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C
from fastload.errors import NotDelivered, StateError
from fastload.prefetch.announcing import Announcements, BatchKey, following
from fastload.prefetch.fault import Fault, faults_of_core
from fastload.prefetch.filling import Filling
from fastload.prefetch.slots import Slot, Slots, fields_in
from fastload.sampler import BatchIds, Sampler

__all__ = ["BatchKey", "Feeder", "Pending"]

Ids = npt.NDArray[np.int64]

_log = logging.getLogger("fastload")

_ENOUGH = 256  # batches in work, whichever epochs they are of
_POLL_SECONDS = 0.1  # how often a waiting consumer looks for signals


@dataclass
class Pending:
    """A batch that the engine has been asked for."""

    key: BatchKey
    batch: BatchIds
    slot: Slot
    ticket: int


class Feeder:
    """Keeps ``depth`` batches beyond the consumer's submitted to the engine, across the end of an epoch.

    Behind those, batches of ``ahead`` samples in all are announced: they have no slots yet, but their records
    are being read. Batches that differ in size are no more than ``ahead_bytes`` hold, but at least ``floor``;
    0: no bound.
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
        self.waited = 0.0  # seconds in which wait() was blocked; for the consumer's thread alone
        self._last: BatchKey | None = None  # the last one submitted
        self._losses = _C.loss_count()
        self._lost: set[str] = set()  # files that were named
        self._epoch = 0  # of the batch taken last
        #: Told of each batch before it is taken; None: nobody is.
        self.on_take: Callable[[BatchKey], None] | None = None
        #: Told of each batch when it is submitted, in that order; None: nobody is.
        self.on_submit: Callable[[BatchKey, BatchIds], None] | None = None

    def take(self, key: BatchKey) -> Pending:
        """The batch ``key``, perhaps still being filled; the ones after it are submitted."""
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
        """The next batch, if it is submitted and complete; does not block."""
        if self._queue and self._engine.wait(self._queue[0].ticket, 0.0):
            return self.take(self._queue[0].key)
        return None

    @property
    def complete(self) -> int:
        """Batches that are submitted and complete."""
        return sum(self._engine.wait(pending.ticket, 0.0) for pending in self._queue)

    def top_up(self) -> None:
        """Submit the batches that come next, as far as there are slots."""
        self._fill(self.depth)

    def _fill(self, count: int) -> None:
        while len(self._queue) < count and self._last is not None:
            coming = following(self._sampler, self._last)
            if coming is None or self._is_far(coming) or self._is_much(count - self.depth):
                break
            if not self._submit(coming):
                break

    def _is_much(self, taken: int) -> bool:
        """One more like the largest would be beyond the bound; the first ``taken`` do not count."""
        if not self._ahead_bytes or len(self._queue) - taken < self._floor:
            return False
        sizes = [pending.slot.layout.nbytes for pending in islice(self._queue, taken, None)]
        return sum(sizes) + max(sizes) > self._ahead_bytes

    def _is_far(self, key: BatchKey) -> bool:
        """A batch of the epoch after the next has time, once there is enough to do for any number of threads:
        how far a huge depth looks ahead is bounded by the work there is."""
        return key.epoch > self._epoch + 1 and len(self._queue) >= _ENOUGH

    def wait(self, pending: Pending, timeout: float = 0.0) -> list[Fault]:
        """Block until the batch is complete; its faults.

        Raises:
            NotDelivered: it took more than ``timeout`` seconds (0: no bound), as torch's DataLoader does.
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
        """Say which mapped files were cut. A shard's or the index's records are errors besides."""
        losses = _C.loss_count()
        if losses != self._losses:
            self._losses = losses
            paths = _C.lost_files()
            if set(paths) <= self._lost:  # more of what was said
                return
            self._lost.update(paths)
            _log.warning(
                "files were cut while they were in use, or their disk fails: %s. What is gone is read from "
                "the shards; without entry points decoding is slower. Restore the files, and begin again.",
                ", ".join(paths),
            )

    def alone(self, pending: Pending, position: int, sample: int) -> tuple[dict[str, Any], list[Fault]]:
        """Another sample as it would be at a position of a collected batch: a raw batch of it, its faults."""
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
        from fastload.sample.mending import mended  # rarely needed

        raw = mended(of, slot.fields, changes)
        if not of.is_measured:
            return  # written where they are
        layout = of.of(slot.layout.size, of.measured_of(raw))
        memory = np.empty(layout.nbytes, np.uint8)
        layout.write(memory, raw)
        pending.slot = self._slots.exchange(slot, layout)
        pending.slot.memory[:] = memory

    def submit_share(self, key: BatchKey, batch: BatchIds, ids: Ids, slot: Slot | None) -> Pending:
        """A part of a batch, outside of the queue: positions whose id is ``_C.ELSEWHERE`` are left alone.

        Args:
            key, batch: which batch.
            ids: (n,) int64 sample ids.
            slot: memory that other parts of the batch are in already; None: a new one.
        """
        slot = slot or self._slots.lease(self._filling.planned(ids, batch.draws, key.epoch), must=True)
        assert slot is not None
        return Pending(key, batch, slot, self._filling.submit(slot, ids, batch.draws, key.epoch))

    def is_complete(self, pending: Pending) -> bool:
        """Whether :meth:`wait` would return at once."""
        return bool(self._engine.wait(pending.ticket, 0.0))

    def drop(self, pending: Pending) -> None:
        """A batch of :meth:`submit_share` is not wanted; its memory is free afterwards."""
        self._engine.cancel(pending.ticket)

    def cancel(self) -> None:
        """Drop all submitted and announced batches; their slots are free afterwards."""
        self._last = None
        self._announced.forget()
        while self._queue:
            pending = self._queue.pop()
            self._engine.cancel(pending.ticket)
            self._slots.give_back(pending.slot)

    def _submit(self, key: BatchKey, must: bool = False) -> bool:
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
        if self.on_submit is not None:
            self.on_submit(key, batch)
        return True
