"""Slots: the memory that batches are filled into, private or shared with worker processes."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C
from fastload.sample.layout import BatchLayout, SampleLayout

# ---- Slots ----

_STEPS = 8  # lease sizes from one power of two to the next, if batches differ in size


@dataclass
class Slot:
    """One batch's memory.

    Args:
        memory: (layout.nbytes,) uint8, which the core writes.
        layout: where the fields are in it.
        fields: views of it, by :meth:`fastload.sample.layout.BatchLayout.raw`.
    """

    memory: npt.NDArray[np.uint8]
    layout: BatchLayout
    fields: dict[str, Any]


def fields_in(whole: torch.Tensor, layout: BatchLayout) -> dict[str, Any]:
    """Return the fields of a batch as views of its memory, (layout.nbytes,) uint8."""
    return layout.raw(lambda begin, end: whole[begin:end])


class Slots(Protocol):
    """A source of slots: the consumer's memory (:class:`SlotPool`), or the ring of a transfer."""

    def lease(self, layout: BatchLayout, must: bool = False) -> Slot | None:
        """Return a slot for a batch; None if none is free now and it is not a ``must``."""

    def give_back(self, slot: Slot) -> None:
        """Return ``slot`` unused: its batch was cancelled."""

    def exchange(self, slot: Slot, layout: BatchLayout) -> Slot:
        """Return a slot for the same batch after its samples have changed; the first one is free."""


class SlotPool:
    """A pool whose slots get their memory back when nobody holds a tensor of it any more.

    torch's storage holds the array that the core leased, so the memory outlives every tensor and view on it,
    and the loader too. Pinned memory is torch's own, which it keeps and reuses when its copies are done.
    """

    def __init__(self, keep: int, pin: bool = False) -> None:
        self.pins = pin
        self._pool = _C.SlotPool(keep)  # further free buffers return to the system

    def lease(self, layout: BatchLayout, must: bool = False) -> Slot:
        """Return a slot for a batch; its contents are undefined. There always is one."""
        nbytes = in_steps(layout.nbytes) if layout.layout.is_measured else layout.nbytes
        if self.pins:
            # Fields are views of this tensor, not of an array over it: torch recognises the memory of a
            # pending copy by its storage, and a field's address only where the memory begins.
            memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        else:
            memory = torch.from_numpy(self._pool.lease(nbytes))
        memory = memory[: layout.nbytes]
        return Slot(memory.numpy(), layout, fields_in(memory, layout))

    def give_back(self, slot: Slot) -> None:
        """Do nothing: the memory comes back when nobody holds it."""

    def exchange(self, slot: Slot, layout: BatchLayout) -> Slot:
        """See :class:`Slots`."""
        return self.lease(layout)


def in_steps(nbytes: int) -> int:
    """Round ``nbytes`` up a little, so that batches of similar size can share memory."""
    step = max(1, (1 << (nbytes - 1).bit_length()) // (2 * _STEPS)) if nbytes > 1 else 1
    return -(-nbytes // step) * step


# ---- Slots shared with worker processes: one anonymous file in memory each ----

_ALIGN = 64  # bytes; before the batch: its size, and the size of what follows it


@dataclass
class SharedSlot(Slot):
    """A slot by its number."""

    number: int = -1


class SharedMemory:
    """Bytes shared by this process and its children; grows, and follows when another process made it grow."""

    _file: int | None = None  # None: no descriptors were left, so there is nothing to close

    def __init__(self) -> None:
        self._file = os.memfd_create("fastload-slot")
        self._map: mmap.mmap | None = None

    def __getstate__(self) -> Any:
        assert self._file is not None
        return reduction.DupFd(self._file)

    def __setstate__(self, state: Any) -> None:
        self._file, self._map = state.detach(), None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close the file. ``close`` is a default because a kept loader is deleted after modules' globals."""
        if self._file is not None:
            close(self._file)

    def bytes(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the first ``size`` bytes, (size,) uint8."""
        assert self._file is not None
        if self._map is None or len(self._map) < size:
            if os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)
            self._map = mmap.mmap(self._file, size)  # the former one lives as long as arrays on it
        return np.frombuffer(self._map, np.uint8, size)


class SharedSlots:
    """:class:`Slots` in which the engine writes batches for worker processes.

    A slot is leased until :meth:`give_back`. It also holds the measurements of its samples, so that a worker
    finds the fields where this process put them, even after a bad sample was replaced.

    Args:
        layout: of a sample.
        count: slots; memory is taken when a slot is first used.
    """

    def __init__(self, layout: SampleLayout, count: int) -> None:
        self.count = count
        self._layout = layout
        self._memory = [SharedMemory() for _ in range(count)]
        self._free = deque(range(count))

    def lease(self, layout: BatchLayout, must: bool = False) -> SharedSlot | None:
        """Return a slot for a batch; its contents are undefined. None if all are leased."""
        if self._free:
            return self._laid_out(self._free.popleft(), layout)
        if must:
            raise RuntimeError(f"All {len(self._memory)} shared slots are in use; one must be free here.")
        return None

    def give_back(self, slot: Slot) -> None:
        """Return ``slot``, which nobody uses any more."""
        assert isinstance(slot, SharedSlot)
        self._free.append(slot.number)

    def exchange(self, slot: Slot, layout: BatchLayout) -> SharedSlot:
        """Return the same slot for the batch as it is now."""
        assert isinstance(slot, SharedSlot)
        return self._laid_out(slot.number, layout)

    def view(self, number: int, size: int) -> SharedSlot:
        """Return the slot of that number, in any of the processes, for the ``size`` samples of its lease."""
        nbytes, known = self._memory[number].bytes(_ALIGN)[:16].view(np.int64).tolist()
        whole = self._memory[number].bytes(_ALIGN + nbytes + known)
        measured = self._layout.split(size, whole[_ALIGN + nbytes :].copy().view(np.int64))
        return _slot_in(whole, self._layout.of(size, measured), number)

    def _laid_out(self, number: int, layout: BatchLayout) -> SharedSlot:
        known = layout.measured.view(np.uint8)
        whole = self._memory[number].bytes(_ALIGN + layout.nbytes + len(known))
        whole[:16].view(np.int64)[:] = layout.nbytes, len(known)
        whole[_ALIGN + layout.nbytes :] = known
        return _slot_in(whole, layout, number)


def _slot_in(whole: np.ndarray[Any, np.dtype[np.uint8]], layout: BatchLayout, number: int) -> SharedSlot:
    memory = whole[_ALIGN : _ALIGN + layout.nbytes]
    return SharedSlot(memory, layout, fields_in(torch.from_numpy(memory), layout), number)
