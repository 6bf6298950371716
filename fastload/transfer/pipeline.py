"""From a host slot over the copy stream to the consumer: pinned rings, pooled slots, order of events."""

from __future__ import annotations

import ctypes
import enum
import mmap
import os
import resource
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fastload.errors import NotDelivered, StateError
from fastload.prefetch.feeder import BatchKey, Fault, Feeder, Pending
from fastload.prefetch.slots import Slot, SlotPool, fields_in, in_steps
from fastload.sample.layout import BatchLayout
from fastload.transfer.streams import CAPTURING, FORKED, Gpu

# ---- The ring of slots in pinned memory ----
# torch's pinned allocator is not used here: it rounds every block up to a power of two, which for 256
# pictures of 224x224 is 64 MiB instead of 36.75. The ring is one anonymous mapping, registered with the
# driver (cudaHostRegister) and known to nobody else, so the only copies from it are the ones that the
# pipeline issues.

_ALIGN = 512  # bytes; divides the page, and no two slots share a cache line
_POLL_SECONDS = 1e-4  # between checks of an event
_DRAIN_SECONDS = 10.0  # how long close() waits for the device
_ABANDONED: list[mmap.mmap] = []  # mappings of rings whose device never came back
_MAPPINGS: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def _leak_in_child() -> None:
    """Let a forked child never unmap what it does not have: other memory may be in that place by then."""
    for mapping in _MAPPINGS:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapping))


os.register_at_fork(after_in_child=_leak_in_child)


class SlotState(enum.Enum):
    """The states of a slot."""

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
    """Round ``n`` up to a multiple of ``unit``."""
    return -(-n // unit) * unit


@dataclass
class RingSlot(Slot):
    """A slot of the ring."""

    bytes: torch.Tensor  # (layout.device_bytes,) uint8: what crosses the bus
    number: int = -1  # in the ring


def slot_bytes(layout: BatchLayout) -> int:
    """Return the size in bytes of a slot for such batches."""
    return round_up(layout.nbytes, _ALIGN)


def ring_bytes(layout: BatchLayout, slots: int) -> int:
    """Return the size in bytes of a ring, in whole pages, as pinning counts them."""
    return round_up(slots * slot_bytes(layout), mmap.PAGESIZE)


def _mapping(size: int) -> mmap.mmap:
    """Map anonymous memory of exactly ``size`` bytes, not inherited by forked children."""
    try:
        mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise StateError(
            f"No memory for slots of {size} bytes: {error.strerror}. Lower batch_size or prefetch_factor."
        ) from error
    _MAPPINGS.add(mapping)
    with suppress(OSError):  # a kernel may lack either
        # After fork() the first write by either process would move the page away from what the device reads.
        mapping.madvise(mmap.MADV_DONTFORK)
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


class HostSlots(Protocol):
    """Host memory that a device reads: the ring, or memory for batches that differ in size."""

    slot_bytes: int  # maximum over all batches; 0: they differ
    nbytes: int
    pinned: bool
    blocked_seconds: float

    def collected(self, slot: RingSlot) -> None:
        """Mark the slot as filled by the core."""

    def copying(self, slot: RingSlot, event: Any, done: Callable[[], None] | None = None) -> None:
        """Mark the slot as read by the device until ``event`` passes; then call ``done``."""

    def give_back(self, slot: Slot) -> None:
        """Free a cancelled slot, which nobody writes any more."""

    def close(self) -> None:
        """Close: no more batches are wanted."""


class Ring:
    """Slots for the engine to fill and the copy stream to read. All calls are on the consumer's thread.

    Args:
        gpu: its driver pins the memory.
        layout: of a full batch; no other may need more memory.
        slots: their number.
    """

    def __init__(self, gpu: Gpu, layout: BatchLayout, slots: int) -> None:
        self.slot_bytes = slot_bytes(layout)
        self._gpu = gpu
        self._states = [SlotState.FREE] * slots
        self._events: list[Any] = [None] * slots  # of the copy that reads the slot
        self._done: list[Callable[[], None] | None] = [None] * slots  # called when the copy is done
        self.blocked_seconds = 0.0  # time waiting for the device to release a slot
        self.timeout = 0.0  # seconds; 0: no limit
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
        """Return a free slot for a batch, contents undefined.

        Args:
            layout: of the batch.
            must: wait for the device to release one, instead of returning None.

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
            time.sleep(_POLL_SECONDS)  # not in the driver: signal handlers run here
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
        """Mark the slot as filled by the core."""
        self._move(slot.number, SlotState.READY)

    def copying(self, slot: RingSlot, event: Any, done: Callable[[], None] | None = None) -> None:
        """Mark the slot as read by the device until ``event`` passes; then call ``done``."""
        self._move(slot.number, SlotState.COPYING)
        self._events[slot.number] = event
        self._done[slot.number] = done

    def give_back(self, slot: Slot) -> None:
        """Free a cancelled slot, which nobody writes any more."""
        assert isinstance(slot, RingSlot)
        self._move(slot.number, SlotState.FREE)

    def exchange(self, slot: Slot, layout: BatchLayout) -> RingSlot:
        """Return the same slot for the batch as it is now."""
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
        """Wait for the copies, unpin and release the memory. The engine must be closed. Idempotent.

        If the device does not end its copies within some seconds, the memory stays as it is until the process
        ends: pages that a device may still read are not released.
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
                return True  # the device is lost: nothing reads any more
            if time.monotonic() > limit:
                return False
            time.sleep(_POLL_SECONDS)
        return True


# ---- Host slot, copy stream, device slot, consumer ----
# DESIGN. One copy stream; ``DEVICE_SLOTS`` preallocated buffers on the device. For each batch:
#
#   copy stream        wait(device slot released), copy host slot to device slot, record(copied)
#   consumer's stream  wait(copied), convert into the consumer's tensors, record(released)
#   host               the host slot is free once ``copied`` has passed
#
# Only the device waits; the host checks ``copied`` when it needs a slot. Everything happens inside
# ``next()``, on the consumer's thread: no other thread ever calls CUDA, so none can disturb a graph capture
# (whose global mode restricts other threads) or compete for the GIL. When ``next()`` returns batch i, the
# copies of all decoded batches up to i + DEVICE_SLOTS are in progress; the copy engine works on them while
# the step runs.

DEVICE_SLOTS = 2  # one that the consumer reads, one that the next batch is copied to

#: Makes the consumer's batch from a batch's bytes in a device slot, by work on the current stream; the last
#: argument is what was prepared for it.
Deliver = Callable[[Pending, torch.Tensor, Any], Any]


class HostBatches(Protocol):
    """The source of host batches; see :class:`fastload.backends.native.NativeBackend`."""

    def wait(self, pending: Pending) -> list[Fault]:
        """Block until the batch is complete; return its faults."""

    def resolve(self, pending: Pending, faults: list[Fault]) -> None:
        """Apply the error policy to a complete batch."""


@dataclass
class TransferClock:
    """Counts and times of the transfers."""

    count: int = 0  # copies issued, one per batch
    bytes: int = 0
    seconds: float = 0.0  # of the copy engine
    host_copies: int = 0  # between the core's last write and the bus: the driver's, from pageable memory


@dataclass
class DeviceSlot:
    """A preallocated buffer on the device, and the event after its last reader."""

    bytes: torch.Tensor  # uint8, at least as large as a batch
    released: Any


@dataclass
class Flight:
    """A batch whose copy has been issued."""

    pending: Pending
    prepared: Any
    to: DeviceSlot
    copied: Any


class Pipeline:
    """Batches of one loader, on the device.

    Args:
        gpu: the device.
        feeder: returns filled host slots, in order; its slots are the ring's.
        ring: the host slots.
        host: waits for host batches and applies the error policy.
        prepare: completes a host batch; returns what else ``deliver`` needs of it, for its slot is filled
            again once it is copied.
        deliver: see :data:`Deliver`.
    """

    def __init__(
        self,
        gpu: Gpu,
        feeder: Feeder,
        ring: HostSlots,
        host: HostBatches,
        prepare: Callable[[Pending], Any],
        deliver: Deliver,
    ) -> None:
        self.clock = TransferClock()
        self._pid = os.getpid()
        self._gpu = gpu
        self._feeder = feeder
        self._ring = ring
        self._host = host
        self._prepare = prepare
        self._deliver = deliver
        self._stream = gpu.new_stream()
        self._slots = [DeviceSlot(self._memory(), gpu.new_event()) for _ in range(DEVICE_SLOTS)]
        self._issued = 0
        self._flights: deque[Flight] = deque()
        self._faulty: tuple[Pending, list[Fault]] | None = None  # complete, but not yet seen by the policy

    def _memory(self, size: int = 0) -> torch.Tensor:
        # Memory of the copy stream: no kernel of the consumer's can still be using it.
        with torch.inference_mode(False), self._gpu.on_stream(self._stream):
            return self._gpu.empty((max(size, self._ring.slot_bytes),), torch.uint8)

    def _slot_for(self, size: int) -> DeviceSlot:
        """Return the next device slot, enlarged to a batch of ``size`` bytes if necessary."""
        slot = self._slots[self._issued % DEVICE_SLOTS]
        if slot.bytes.numel() < size:
            self._gpu.wait(self._stream, slot.released)  # its old memory returns to the stream's pool
            slot.bytes = self._memory(in_steps(size))
        return slot

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key`` as ``deliver`` makes it, for use on the current stream.

        ``deliver``'s work on the device slot ends with :meth:`release`.

        Raises:
            StateError: the current stream records a CUDA graph, or the process is a fork.
        """
        if os.getpid() != self._pid:
            raise StateError(FORKED)
        if self._gpu.capturing():
            raise StateError(CAPTURING)
        if self._flights and self._flights[0].pending.key != key:
            self.cancel()
        if not self._flights:
            self._issue(self._complete(key))
        return self._hand_over(self._flights.popleft())

    def _complete(self, key: BatchKey) -> Pending:
        """Return the host batch ``key``, after the error policy; blocks."""
        if self._faulty is not None and self._faulty[0].key == key:
            pending, faults = self._faulty
        else:
            self._drop_faulty()
            with self._gpu.range("fastload.prefetch.wait", key.step):
                pending = self._feeder.take(key)
                faults = self._wait(pending)
            self._faulty = pending, faults  # whatever happens next, its slot is not lost
        self._host.resolve(pending, faults)
        self._faulty = None
        return pending

    def _wait(self, pending: Pending) -> list[Fault]:
        try:
            return self._host.wait(pending)
        except BaseException:  # the engine no longer writes it
            self._ring.give_back(pending.slot)
            raise

    def _issue(self, pending: Pending) -> None:
        """Start the copy of a complete batch. Its device slot's last reader was recorded in time."""
        slot = pending.slot
        assert isinstance(slot, RingSlot)
        to = self._slot_for(len(slot.bytes))
        started, copied = self._gpu.new_event(timed=True), self._gpu.new_event(timed=True)
        try:
            prepared = self._prepare(pending)
        except BaseException:
            self._ring.give_back(slot)
            raise
        self._ring.collected(slot)
        try:
            with self._gpu.range("fastload.transfer.copy", pending.key.step):
                self._gpu.wait(self._stream, to.released)
                self._gpu.record(started, self._stream)
                self._gpu.copy(to.bytes[: len(slot.bytes)], slot.bytes, self._stream)
                self._gpu.record(copied, self._stream)
        except BaseException:  # the copy may be in progress: the slot is free only when it is done
            with suppress(RuntimeError):
                self._gpu.record(copied, self._stream)
            self._ring.copying(slot, copied)
            raise
        self._ring.copying(slot, copied, lambda: self._timed(started, copied))
        self._issued += 1
        self.clock.count += 1
        self.clock.bytes += len(slot.bytes)
        self.clock.host_copies += not self._ring.pinned
        self._flights.append(Flight(pending, prepared, to, copied))

    def _timed(self, started: Any, copied: Any) -> None:
        self.clock.seconds += self._gpu.seconds_between(started, copied)

    def _hand_over(self, flight: Flight) -> Any:
        self._gpu.wait(self._gpu.current_stream(), flight.copied)
        with self._gpu.range("fastload.transfer.convert", flight.pending.key.step):
            batch = self._deliver(flight.pending, flight.to.bytes, flight.prepared)
        self._last = flight
        return batch

    def release(self) -> None:
        """Record that the current stream has all its work on the last batch's device slot."""
        self._gpu.record(self._last.to.released, self._gpu.current_stream())

    def look_ahead(self) -> None:
        """Issue the copies of batches that are complete, as far as there are device slots. Does not block."""
        self._feeder.top_up()
        while len(self._flights) < DEVICE_SLOTS and self._faulty is None:
            pending = self._feeder.take_if_complete()
            if pending is None:
                break
            faults = self._wait(pending)
            if faults:
                self._faulty = pending, faults  # the policy raises or decodes when it is this batch's turn
                break
            self._issue(pending)
        self._feeder.top_up()

    def _drop_faulty(self) -> None:
        if self._faulty is not None:
            self._ring.give_back(self._faulty[0].slot)
            self._faulty = None

    def counts(self) -> dict[str, float]:
        """Return what was moved, for ``stats()``."""
        return {
            "seconds": self.clock.seconds,
            "count": self.clock.count,
            "bytes": self.clock.bytes,
            "host_copies": self.clock.host_copies,
            "blocked_seconds": self._ring.blocked_seconds,
            "pinned_bytes": self._ring.nbytes if self._ring.pinned else 0,
        }

    def cancel(self) -> None:
        """Drop all batches in progress. Slots that are being copied come back by themselves."""
        self._feeder.cancel()
        self._drop_faulty()
        self._flights.clear()

    def close(self) -> None:
        """Wait for the copies in progress, unless the device is lost, and unpin their memory.

        The engine must be closed, because it writes to the same memory.
        """
        self._flights.clear()
        if os.getpid() != self._pid:
            return  # CUDA cannot be called, and all of it is the parent's
        with suppress(RuntimeError):
            for slot in self._slots:  # their memory returns to the copy stream's pool after its readers
                self._gpu.wait(self._stream, slot.released)
        self._ring.close()
        self._slots.clear()


# ---- Pooled slots for batches that differ in size ----
# A ring would need a slot's size in advance, and the bound for a set's longest text may be a hundred times
# the size of an actual batch.


class PooledSlots:
    """See :class:`fastload.transfer.pipeline.HostSlots`. All calls are on the consumer's thread.

    Args:
        gpu: the device that reads them.
        pool: their source; a slot's memory is reused when nobody holds it.
        most: maximum number of slots in use.
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
        """Return a slot for a batch, contents undefined; None if all are in use and it is not a ``must``."""
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
        """Do nothing: the lessee fills it."""

    def copying(self, slot: RingSlot, event: Any, done: Callable[[], None] | None = None) -> None:
        """Mark the slot as read by the device until ``event`` passes; then call ``done``."""
        self._copying.append((slot, event, done))

    def give_back(self, slot: Slot) -> None:
        """Free a cancelled slot, which nobody writes any more."""
        self._free += 1

    def exchange(self, slot: Slot, layout: BatchLayout) -> RingSlot:
        """Return the same slot for the batch as it is now."""
        return self._slot(self._pool.exchange(slot, layout))

    def reclaim(self) -> None:
        """Release the slots whose copies are done; does not block."""
        while self._copying and self._gpu.passed(self._copying[0][1]):
            _, _, done = self._copying.popleft()
            self._free += 1
            if done is not None:
                done()

    def close(self) -> None:
        """Do nothing: torch's pinned pool waits for the copies from its memory."""
