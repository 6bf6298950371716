"""Host slots of batches that differ in size: memory of torch's pinned pool, as much as a batch needs.

A ring would need a slot's size beforehand, and a bound for the longest text of a set may be a hundred times
what a batch has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from fastload.prefetch.slots import Slot, SlotPool
from fastload.sample.layout import BatchLayout
from fastload.transfer.ring import RingSlot
from fastload.transfer.streams import Gpu

__all__ = ["PooledSlots"]


class PooledSlots:
    """See :class:`fastload.transfer.ring.HostSlots`. All calls on the consumer's thread.

    Args:
        gpu: who reads them.
        pool: where they come from; a slot's memory is given out again when nobody holds it.
        most: slots that are in use at a time.
    """

    slot_bytes = 0
    blocked_seconds = 0.0

    def __init__(self, gpu: Gpu, pool: SlotPool, most: int) -> None:
        self._gpu = gpu
        self._pool = pool
        self._free = most
        self._copying: deque[tuple[RingSlot, Any, Callable[[], None] | None]] = deque()
        self.pinned = pool.pins
        self.nbytes = 0  # of the largest batches so far, one for each slot
        self._most = most

    def lease(self, layout: BatchLayout, must: bool = False) -> RingSlot | None:
        """A slot for a batch, contents undefined; None if all are in use and it is not a ``must``."""
        self.reclaim()
        if self._free <= 0 and not must:
            return None
        self._free -= 1
        return self._slot(self._pool.lease(layout))

    def _slot(self, slot: Slot) -> RingSlot:
        self.nbytes = max(self.nbytes, self._most * slot.layout.nbytes)
        whole = torch.from_numpy(slot.memory)
        return RingSlot(slot.memory, slot.layout, slot.fields, whole[: slot.layout.device_bytes])

    def collected(self, slot: RingSlot) -> None:
        """Nothing to do: who leased it fills it."""

    def copying(self, slot: RingSlot, event: Any, done: Callable[[], None] | None = None) -> None:
        """The device reads it until ``event`` passes; then ``done`` is called."""
        self._copying.append((slot, event, done))

    def give_back(self, slot: Slot) -> None:
        """It was cancelled; nobody writes it any more."""
        self._free += 1

    def exchange(self, slot: Slot, layout: BatchLayout) -> RingSlot:
        """The same slot for the batch as it is now."""
        return self._slot(self._pool.exchange(slot, layout))

    def reclaim(self) -> None:
        """Let go of the slots whose copies are done; does not block."""
        while self._copying and self._gpu.passed(self._copying[0][1]):
            _, _, done = self._copying.popleft()
            self._free += 1
            if done is not None:
                done()

    def close(self) -> None:
        """Nothing to do: torch's pinned pool waits for the copies of what it gave out."""
