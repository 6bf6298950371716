"""Slots, and the queue of batches that the engine fills ahead of the consumer."""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C
from fastload.errors import StateError
from fastload.sampler import BatchIds, Sampler

__all__ = ["BatchKey", "Feeder", "Pending", "Slot", "SlotPool", "SlotShape"]

_POLL_SECONDS = 0.1  # how often a waiting consumer looks for signals


class BatchKey(NamedTuple):
    """Which batch: the ``step``-th after position ``start`` of ``epoch``."""

    epoch: int
    start: int
    step: int


@dataclass(frozen=True)
class SlotShape:
    """The memory of one batch."""

    batch_size: int
    height: int
    width: int
    dtype: torch.dtype
    channels_last: bool = True

    @property
    def sample_bytes(self) -> int:
        return 3 * self.height * self.width * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.batch_size * self.sample_bytes


@dataclass
class Slot:
    """One batch's memory. ``memory`` and ``images`` are two views of the same bytes."""

    memory: npt.NDArray[np.uint8]  # (n * sample_bytes,), what the core writes into
    images: torch.Tensor  # (n, 3, height, width)
    labels: torch.Tensor  # (n,) int64


class SlotPool:
    """Hands out slots; a slot's memory comes back when nobody holds a tensor of it any more.

    torch's storage holds the array that the core leased, so the memory outlives every tensor and view on it,
    and the loader too. Pinned memory is torch's own, which it keeps and reuses when its copies are done.
    """

    def __init__(self, shape: SlotShape, keep: int, pin: bool = False) -> None:
        self.shape = shape
        self._pin = pin
        self._pool = _C.SlotPool(keep)  # more free buffers than ``keep`` go back to the system

    def lease(self, size: int) -> Slot:
        """A slot for ``size`` samples; its contents are undefined."""
        nbytes = size * self.shape.sample_bytes
        if self._pin:
            memory = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).numpy()
        else:
            memory = self._pool.lease(nbytes)
        flat = torch.from_numpy(memory).view(self.shape.dtype)
        height, width = self.shape.height, self.shape.width
        if self.shape.channels_last:
            images = flat.view(size, height, width, 3).permute(0, 3, 1, 2)
        else:
            images = flat.view(size, 3, height, width)
        return Slot(memory, images, torch.empty(size, dtype=torch.int64))


@dataclass
class Pending:
    """A batch that the engine has been asked for."""

    key: BatchKey
    batch: BatchIds
    slot: Slot
    ticket: int


class Feeder:
    """Keeps ``depth`` batches beyond the consumer's submitted to the engine, across the end of an epoch."""

    def __init__(self, engine: Any, sampler: Sampler, slots: SlotPool, depth: int) -> None:
        self._engine = engine
        self._sampler = sampler
        self._slots = slots
        self._depth = depth
        self._queue: deque[Pending] = deque()

    def take(self, key: BatchKey) -> Pending:
        """The batch ``key``, perhaps still being filled; the ones after it are submitted."""
        if self._queue and self._queue[0].key != key:
            self.cancel()
        if not self._queue:
            self._submit(key)
        while len(self._queue) <= self._depth:
            following = self._following(self._queue[-1].key)
            if following is None:
                break
            self._submit(following)
        return self._queue.popleft()

    def wait(self, pending: Pending, timeout: float = 0.0) -> list[tuple[int, int, int, str]]:
        """Block until the batch is complete; its faults as (position, sample id, error kind, message).

        Raises:
            RuntimeError: it took more than ``timeout`` seconds (0: no bound), as torch's DataLoader does.
        """
        limit = time.monotonic() + timeout if timeout > 0 else math.inf
        try:
            while not self._engine.wait(pending.ticket, _POLL_SECONDS):
                # Back in the interpreter: signal handlers run here.
                if time.monotonic() > limit:
                    raise RuntimeError(f"DataLoader timed out after {timeout} seconds: {pending.key}.")
        except BaseException:
            with suppress(StateError):  # closed meanwhile
                self._engine.cancel(pending.ticket)
            raise
        faults: list[tuple[int, int, int, str]] = self._engine.collect(pending.ticket)
        return faults

    def refill(self, pending: Pending, position: int, sample: int) -> list[tuple[int, int, int, str]]:
        """Fill one position of a collected batch again, with another sample."""
        size = self._slots.shape.sample_bytes
        draws = pending.batch.draws
        ticket = self._engine.submit(
            pending.slot.memory[position * size : (position + 1) * size],
            pending.slot.labels.numpy()[position : position + 1],
            np.array([sample], dtype=np.int64),
            None if draws is None else draws[position : position + 1],
            pending.key.epoch,
        )
        return self.wait(Pending(pending.key, pending.batch, pending.slot, ticket))

    def cancel(self) -> None:
        """Drop all submitted batches; their slots are free afterwards."""
        while self._queue:
            self._engine.cancel(self._queue.pop().ticket)

    def _submit(self, key: BatchKey) -> None:
        batch = self._sampler.batch(*key)
        slot = self._slots.lease(len(batch.ids))
        ticket = self._engine.submit(slot.memory, slot.labels.numpy(), batch.ids, batch.draws, key.epoch)
        self._queue.append(Pending(key, batch, slot, ticket))

    def _following(self, key: BatchKey) -> BatchKey | None:
        if key.step + 1 < self._sampler.num_batches(key.epoch, key.start):
            return key._replace(step=key.step + 1)
        # A user's sampler may depend on what happens until its epoch begins: it is not asked early.
        if self._sampler.order.repeats or self._sampler.num_batches(key.epoch + 1) == 0:
            return None
        return BatchKey(key.epoch + 1, 0, 0)
