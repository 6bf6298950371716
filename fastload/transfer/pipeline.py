"""Host slot, copy stream, device slot, consumer: the order of things for one loader.

DESIGN. One copy stream; ``DEVICE_SLOTS`` preallocated buffers on the device. For each batch:

    copy stream        wait(device slot released) -> copy host slot to device slot -> record(copied)
    consumer's stream  wait(copied) -> convert into the consumer's tensors -> record(released)
    host               the host slot is free once ``copied`` has passed

Only the device waits; the host looks at ``copied`` when it needs a slot. Everything happens inside
``next()``, on the consumer's thread: no other thread ever calls CUDA, so none can disturb a graph capture
(whose global mode forbids other threads much) or fight for the GIL. When ``next()`` returns batch i, the
copies of all batches up to i + DEVICE_SLOTS that have been decoded are under way; the copy engine works on
them while the step runs.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fastload.errors import StateError
from fastload.prefetch.fault import Fault
from fastload.prefetch.feeder import BatchKey, Feeder, Pending
from fastload.prefetch.slots import in_steps
from fastload.transfer.ring import HostSlots, RingSlot
from fastload.transfer.streams import CAPTURING, FORKED, Gpu

__all__ = ["DEVICE_SLOTS", "Pipeline", "TransferClock"]

DEVICE_SLOTS = 2  # one that the consumer reads, one that the next batch is copied to

#: Makes the consumer's batch, by work on the current stream, of the bytes that a batch has in a device slot.
Deliver = Callable[[Pending, torch.Tensor], Any]


class HostBatches(Protocol):
    """Where host batches come from; see :class:`fastload.backends.native.NativeBackend`."""

    def wait(self, pending: Pending) -> list[Fault]:
        """Block until it is complete."""

    def resolve(self, pending: Pending, faults: list[Fault]) -> None:
        """Apply the error policy to a complete batch."""


@dataclass
class TransferClock:
    """What was moved."""

    count: int = 0  # copies issued, one a batch
    bytes: int = 0
    seconds: float = 0.0  # of the copy engine
    host_copies: int = 0  # between the core's last write and the bus: the driver's, from pageable memory


@dataclass
class DeviceSlot:
    """A preallocated buffer on the device, and the event after its last reader."""

    bytes: torch.Tensor  # uint8, at least as many as a batch has
    released: Any


@dataclass
class Flight:
    """A batch whose copy has been issued."""

    pending: Pending
    to: DeviceSlot
    copied: Any


class Pipeline:
    """Batches of one loader, on the device.

    Args:
        gpu: the device.
        feeder: gives filled host slots, in order; its slots are the ring's.
        ring: the host slots.
        host: waits for host batches and applies the error policy.
        prepare: writes a complete host batch's parameters.
        deliver: see :data:`Deliver`.
    """

    def __init__(
        self,
        gpu: Gpu,
        feeder: Feeder,
        ring: HostSlots,
        host: HostBatches,
        prepare: Callable[[Pending], None],
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
        self._faulty: tuple[Pending, list[Fault]] | None = None  # complete, but the policy has not seen it

    def _memory(self, size: int = 0) -> torch.Tensor:
        # Memory of the copy stream: no kernel of the consumer's can still be using it.
        with torch.inference_mode(False), self._gpu.on_stream(self._stream):
            return self._gpu.empty((max(size, self._ring.slot_bytes),), torch.uint8)

    def _slot_for(self, size: int) -> DeviceSlot:
        """The device slot whose turn it is, large enough for a batch of so many bytes."""
        slot = self._slots[self._issued % DEVICE_SLOTS]
        if slot.bytes.numel() < size:
            self._gpu.wait(self._stream, slot.released)  # what it had goes back to the stream's pool
            slot.bytes = self._memory(in_steps(size))
        return slot

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key`` as ``deliver`` makes it, for use on the current stream.

        Work on the device slot that ``deliver`` was given ends with :meth:`release`.

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
        """The host batch ``key``, after the error policy; blocks."""
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
        """Start the copy of a complete batch. Its device slot's last reader has been told of in time."""
        slot = pending.slot
        assert isinstance(slot, RingSlot)
        to = self._slot_for(len(slot.bytes))
        started, copied = self._gpu.new_event(timed=True), self._gpu.new_event(timed=True)
        try:
            self._prepare(pending)
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
        except BaseException:  # the copy may be under way: the slot is not free before it is done
            with suppress(RuntimeError):
                self._gpu.record(copied, self._stream)
            self._ring.copying(slot, copied)
            raise
        self._ring.copying(slot, copied, lambda: self._timed(started, copied))
        self._issued += 1
        self.clock.count += 1
        self.clock.bytes += len(slot.bytes)
        self.clock.host_copies += not self._ring.pinned
        self._flights.append(Flight(pending, to, copied))

    def _timed(self, started: Any, copied: Any) -> None:
        self.clock.seconds += self._gpu.seconds_between(started, copied)

    def _hand_over(self, flight: Flight) -> Any:
        self._gpu.wait(self._gpu.current_stream(), flight.copied)
        with self._gpu.range("fastload.transfer.convert", flight.pending.key.step):
            batch = self._deliver(flight.pending, flight.to.bytes)
        self._last = flight
        return batch

    def release(self) -> None:
        """The current stream has been given all its work on the device slot of the last batch."""
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
                self._faulty = pending, faults  # the policy raises, or decodes: when it is this batch's turn
                break
            self._issue(pending)
        self._feeder.top_up()

    def _drop_faulty(self) -> None:
        if self._faulty is not None:
            self._ring.give_back(self._faulty[0].slot)
            self._faulty = None

    def counts(self) -> dict[str, float]:
        """What was moved, for ``stats()``."""
        return {
            "seconds": self.clock.seconds,
            "count": self.clock.count,
            "bytes": self.clock.bytes,
            "host_copies": self.clock.host_copies,
            "blocked_seconds": self._ring.blocked_seconds,
            "pinned_bytes": self._ring.nbytes if self._ring.pinned else 0,
        }

    def cancel(self) -> None:
        """Drop everything that is under way. Slots that are being copied come back by themselves."""
        self._feeder.cancel()
        self._drop_faulty()
        self._flights.clear()

    def close(self) -> None:
        """Wait for the copies under way, unless the device is lost, and unpin their memory.

        The engine must be closed, for it writes to the same memory.
        """
        self._flights.clear()
        if os.getpid() != self._pid:
            return  # CUDA cannot be called, and all of it is the parent's
        with suppress(RuntimeError):
            for slot in self._slots:  # their memory goes back to the copy stream's pool: after its readers
                self._gpu.wait(self._stream, slot.released)
        self._ring.close()
        self._slots.clear()
