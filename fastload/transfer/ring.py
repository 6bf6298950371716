"""The ring: pinned memory of exactly the planned size, cut into slots with one state each.

torch's pinned allocator is not used here: it rounds every block up to a power of two, which for 256 pictures
of 224x224 is 64 MiB instead of 36.75. The ring is one anonymous mapping, registered with the driver
(cudaHostRegister) and known to nobody else, so the only copies from it are the ones that the pipeline issues.
"""

from __future__ import annotations

import enum
import mmap
import resource
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fastload.errors import NotDelivered, StateError
from fastload.prefetch.slots import Slot, fields_in
from fastload.sample.layout import BatchLayout
from fastload.transfer.streams import Gpu

__all__ = ["HostSlots", "Ring", "RingSlot", "SlotState", "ring_bytes", "slot_bytes"]

_ALIGN = 512  # bytes; divides the page, and no two slots share a cache line
_POLL_SECONDS = 1e-4  # between looks at an event
_DRAIN_SECONDS = 10.0  # how long close() waits for the device
_ABANDONED: list[mmap.mmap] = []  # mappings of rings whose device never came back


class SlotState(enum.Enum):
    """What a slot is doing."""

    FREE = "free"
    FILLING = "filling"  # the core writes it
    READY = "ready"  # complete, not yet given to the copy stream
    COPYING = "copying"  # the device reads it


_LEGAL = {
    (SlotState.FREE, SlotState.FILLING),  # leased
    (SlotState.FILLING, SlotState.READY),  # collected
    (SlotState.FILLING, SlotState.FREE),  # cancelled
    (SlotState.READY, SlotState.COPYING),  # issued
    (SlotState.READY, SlotState.FREE),  # cancelled
    (SlotState.COPYING, SlotState.FREE),  # the copy's event has passed
}


def round_up(n: int, unit: int) -> int:
    """The least multiple of ``unit`` that is not below ``n``."""
    return -(-n // unit) * unit


@dataclass
class RingSlot(Slot):
    """A slot of the ring."""

    bytes: torch.Tensor  # (layout.device_bytes,) uint8: what crosses the bus
    number: int = -1  # in the ring


def slot_bytes(layout: BatchLayout) -> int:
    """Bytes of a slot for such batches."""
    return round_up(layout.nbytes, _ALIGN)


def ring_bytes(layout: BatchLayout, slots: int) -> int:
    """Bytes of a ring: whole pages, which is what pinning counts."""
    return round_up(slots * slot_bytes(layout), mmap.PAGESIZE)


def _mapping(size: int) -> mmap.mmap:
    """Anonymous memory of exactly ``size`` bytes, not given to forked children."""
    try:
        mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise StateError(
            f"No memory for slots of {size} bytes: {error.strerror}. Lower batch_size or prefetch_factor."
        ) from error
    with suppress(OSError):  # kernels may lack either
        # After fork() the first write of either process would move the page away from what the device reads.
        mapping.madvise(mmap.MADV_DONTFORK)
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


class HostSlots(Protocol):
    """Host memory that a device reads: the ring, or memory for batches that differ in size."""

    slot_bytes: int  # of every batch, at most; 0: they differ
    nbytes: int
    pinned: bool
    blocked_seconds: float

    def collected(self, slot: RingSlot) -> None:
        """The core has filled it."""

    def copying(self, slot: RingSlot, event: Any, done: Callable[[], None] | None = None) -> None:
        """The device reads it until ``event`` passes; then ``done`` is called."""

    def give_back(self, slot: Slot) -> None:
        """It was cancelled; nobody writes it any more."""

    def close(self) -> None:
        """No more batches are wanted."""


class Ring:
    """Slots for the engine to fill and the copy stream to read. All calls on the consumer's thread.

    Args:
        gpu: whose driver pins the memory.
        layout: of a full batch; no other may need more memory.
        slots: how many.
    """

    def __init__(self, gpu: Gpu, layout: BatchLayout, slots: int) -> None:
        self.slot_bytes = slot_bytes(layout)
        self._gpu = gpu
        self._states = [SlotState.FREE] * slots
        self._events: list[Any] = [None] * slots  # of the copy that reads the slot
        self._done: list[Callable[[], None] | None] = [None] * slots  # told when the copy is done
        self.blocked_seconds = 0.0  # spent waiting for the device to let go of a slot
        self.timeout = 0.0  # seconds, 0: no bound
        size = ring_bytes(layout, slots)
        self._map = _mapping(size)
        memory = np.frombuffer(self._map, np.uint8)
        self._memory: npt.NDArray[np.uint8] | None = memory
        self._address = int(memory.__array_interface__["data"][0])
        self.nbytes = size
        self.pinned = self._pin()

    def _pin(self) -> bool:
        reason = self._gpu.pin(self._address, self.nbytes)
        if reason is None:
            return True
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        text = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit} bytes"
        warnings.warn(
            f"{self.nbytes} bytes could not be pinned ({reason}; RLIMIT_MEMLOCK is {text}): batches are "
            f"copied from pageable memory, which the training step waits for. Raise the limit (ulimit -l; "
            f"docker run --ulimit memlock=-1), or lower batch_size or prefetch_factor.",
            stacklevel=2,
        )
        return False

    @property
    def states(self) -> tuple[SlotState, ...]:
        """Each slot's state."""
        return tuple(self._states)

    def _move(self, number: int, to: SlotState) -> None:
        if (self._states[number], to) not in _LEGAL:
            raise StateError(f"Slot {number} is {self._states[number].value}: it cannot become {to.value}.")
        self._states[number] = to

    def lease(self, layout: BatchLayout, must: bool = False) -> RingSlot | None:
        """A free slot for a batch, contents undefined.

        Args:
            layout: of the batch.
            must: wait for the device to let go of one, instead of returning None.

        Raises:
            RuntimeError: that takes longer than ``timeout``.
        """
        number = self._free(must)
        if number is None or self._memory is None:
            return None
        self._move(number, SlotState.FILLING)
        return self._slot(number, layout)

    def _slot(self, number: int, layout: BatchLayout) -> RingSlot:
        assert self._memory is not None
        begin = number * self.slot_bytes
        memory = self._memory[begin : begin + layout.nbytes]
        whole = torch.from_numpy(memory)
        return RingSlot(memory, layout, fields_in(whole, layout), whole[: layout.device_bytes], number)

    def _free(self, must: bool) -> int | None:
        self.reclaim()
        if must and SlotState.FREE not in self._states:
            self._wait_for_a_slot()
        return self._states.index(SlotState.FREE) if SlotState.FREE in self._states else None

    def _wait_for_a_slot(self) -> None:
        start = time.monotonic()
        while SlotState.COPYING in self._states and SlotState.FREE not in self._states:
            time.sleep(_POLL_SECONDS)  # and not in the driver: signal handlers run here
            self.reclaim()
            waited = time.monotonic() - start
            if self.timeout and waited > self.timeout:
                raise NotDelivered(
                    f"DataLoader timed out after {waited:.1f} seconds: the device is not done."
                )
        self.blocked_seconds += time.monotonic() - start
        if SlotState.FREE not in self._states:
            raise StateError("All slots were lost by interrupts. Create a new DataLoader.")

    def collected(self, slot: RingSlot) -> None:
        """The core has filled it."""
        self._move(slot.number, SlotState.READY)

    def copying(self, slot: RingSlot, event: Any, done: Callable[[], None] | None = None) -> None:
        """The device reads it until ``event`` passes; then ``done`` is called."""
        self._move(slot.number, SlotState.COPYING)
        self._events[slot.number] = event
        self._done[slot.number] = done

    def give_back(self, slot: Slot) -> None:
        """It was cancelled; nobody writes it any more."""
        assert isinstance(slot, RingSlot)
        self._move(slot.number, SlotState.FREE)

    def exchange(self, slot: Slot, layout: BatchLayout) -> RingSlot:
        """The same slot for the batch as it is now."""
        assert isinstance(slot, RingSlot)
        return self._slot(slot.number, layout)

    def reclaim(self) -> None:
        """Free the slots whose copies are done; does not block."""
        for number, state in enumerate(self._states):
            if state is SlotState.COPYING and self._gpu.passed(self._events[number]):
                self._move(number, SlotState.FREE)
                done, self._done[number], self._events[number] = self._done[number], None, None
                if done is not None:
                    done()

    def close(self) -> None:
        """Let the copies end, unpin and let go of the memory. The engine must be closed. Idempotent.

        If the device does not end its copies within some seconds, the memory stays as it is until the process
        ends: pages that a device may still read are not given away.
        """
        if self._memory is None:
            return
        self._memory = None
        if self._drained() and self.pinned:
            self._gpu.unpin(self._address)
        elif self.pinned:
            _ABANDONED.append(self._map)
        self.pinned = False

    def _drained(self) -> bool:
        limit = time.monotonic() + _DRAIN_SECONDS
        while SlotState.COPYING in self._states:
            try:
                self.reclaim()
            except RuntimeError:
                return True  # the device is lost: nobody reads any more
            if time.monotonic() > limit:
                return False
            time.sleep(_POLL_SECONDS)
        return True
