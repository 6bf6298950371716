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
from fastload.sample.delivery import IMAGE, LABEL
from fastload.sample.layout import BatchLayout, FieldLayout, SampleLayout

# ---- Slots ------------------------------------------------------------------------------------------
# The memory that batches are filled into.

#: In slots of batches for a device: what augmentation there has drawn for each sample.
PARAMETERS = "parameters"
_IGNORE_LABEL: int = _C.IGNORE_LABEL
_STEPS = 8  # sizes of leases from one power of two to the next, where batches differ in size


@dataclass(frozen=True)
class SlotShape:
    """Batches of one image and one label a sample, all images of one size."""

    batch_size: int
    height: int
    width: int
    dtype: torch.dtype

    @property
    def sample_bytes(self) -> int:
        """Bytes of an image."""
        return 3 * self.height * self.width * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of a batch's images."""
        return self.batch_size * self.sample_bytes

    def layout(self, parameters: int = 0) -> SampleLayout:
        """What a batch holds of each sample.

        Args:
            parameters: float32 numbers of augmentation on the device.
        """
        fields = [
            FieldLayout(IMAGE, "picture", self.dtype, (3, self.height, self.width)),
            FieldLayout(LABEL, "fixed", torch.int64, blank=_IGNORE_LABEL),
        ]
        if parameters:
            fields.append(FieldLayout(PARAMETERS, "fixed", torch.float32, (parameters,)))
        return SampleLayout(tuple(fields))


@dataclass
class Slot:
    """One batch's memory.

    Args:
        memory: (layout.nbytes,) uint8, what the core writes into.
        layout: where the fields lie in it.
        fields: views of it, by :meth:`fastload.sample.layout.BatchLayout.raw`.
    """

    memory: npt.NDArray[np.uint8]
    layout: BatchLayout
    fields: dict[str, Any]

    @property
    def images(self) -> torch.Tensor:
        """Of batches of one image and one label: (n, 3, height, width)."""
        images: torch.Tensor = self.fields[IMAGE]
        return images

    @property
    def labels(self) -> torch.Tensor:
        """Of such batches: (n,) int64."""
        labels: torch.Tensor = self.fields[LABEL]
        return labels


def fields_in(whole: torch.Tensor, layout: BatchLayout) -> dict[str, Any]:
    """The fields of a batch as views of its memory, (layout.nbytes,) uint8."""
    return layout.raw(lambda begin, end: whole[begin:end])


class Slots(Protocol):
    """Where slots come from: memory of the consumer's (:class:`SlotPool`), or the ring of a transfer."""

    def lease(self, layout: BatchLayout, must: bool = False) -> Slot | None:
        """A slot for a batch; None if there is none now, and it is not a ``must``."""

    def give_back(self, slot: Slot) -> None:
        """Nobody will use ``slot``: its batch was cancelled."""

    def exchange(self, slot: Slot, layout: BatchLayout) -> Slot:
        """A slot for the same batch, whose samples have changed; nobody will use the first one."""


class SlotPool:
    """Hands out slots; a slot's memory comes back when nobody holds a tensor of it any more.

    torch's storage holds the array that the core leased, so the memory outlives every tensor and view on it,
    and the loader too. Pinned memory is torch's own, which it keeps and reuses when its copies are done.
    """

    def __init__(self, keep: int, pin: bool = False) -> None:
        self.pins = pin
        self._pool = _C.SlotPool(keep)  # more free buffers than ``keep`` go back to the system

    def lease(self, layout: BatchLayout, must: bool = False) -> Slot:
        """A slot for a batch; its contents are undefined. There always is one."""
        nbytes = in_steps(layout.nbytes) if layout.layout.is_measured else layout.nbytes
        if self.pins:
            # Fields are views of this tensor, not of an array over it: torch knows the memory of a copy that
            # has not run yet by its storage. The address of a field it knows only where the memory begins.
            whole = torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        else:
            whole = torch.from_numpy(self._pool.lease(nbytes))
        whole = whole[: layout.nbytes]
        return Slot(whole.numpy(), layout, fields_in(whole, layout))

    def give_back(self, slot: Slot) -> None:
        """Nothing to do: the memory comes back when nobody holds it."""

    def exchange(self, slot: Slot, layout: BatchLayout) -> Slot:
        """See :class:`Slots`."""
        return self.lease(layout)


def in_steps(nbytes: int) -> int:
    """A little more than ``nbytes``, so that batches of about one size can have the same memory."""
    step = max(1, (1 << (nbytes - 1).bit_length()) // (2 * _STEPS)) if nbytes > 1 else 1
    return -(-nbytes // step) * step


# ---- Slots that worker processes see, too -----------------------------------------------------------
# Anonymous files in memory, one each.

_ALIGN = 64  # bytes; before the batch, how many it has, and how many follow it


@dataclass
class SharedSlot(Slot):
    """A slot by its number."""

    number: int = -1


class SharedMemory:
    """Bytes that this process and its children see; grows, and follows when another process made it grow."""

    _file: int | None = None  # no more descriptors: there is nothing to close

    def __init__(self) -> None:
        self._file = os.memfd_create("fastload-slot")
        self._map: mmap.mmap | None = None

    def __getstate__(self) -> Any:
        assert self._file is not None
        return reduction.DupFd(self._file)

    def __setstate__(self, state: Any) -> None:
        self._file, self._map = state.detach(), None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """``close`` is a default because a loader that a program keeps is deleted after modules' globals."""
        if self._file is not None:
            close(self._file)

    def bytes(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The first ``size`` bytes, (size,) uint8."""
        assert self._file is not None
        if self._map is None or len(self._map) < size:
            if os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)
            self._map = mmap.mmap(self._file, size)  # the former one lives as long as arrays on it
        return np.frombuffer(self._map, np.uint8, size)


class SharedSlots:
    """Where the engine writes batches for worker processes; see :class:`fastload.prefetch.slots.Slots`.

    A slot is leased until :meth:`give_back`. What was measured of its samples lies in it, too, so that a
    worker finds the fields where this process put them, also after a bad sample was replaced.

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
        """A slot for a batch; its contents are undefined. None if all are leased."""
        if self._free:
            return self._laid_out(self._free.popleft(), layout)
        if must:
            raise RuntimeError(f"All {len(self._memory)} shared slots are in use; one must be free here.")
        return None

    def give_back(self, slot: Slot) -> None:
        """Nobody uses ``slot`` any more."""
        assert isinstance(slot, SharedSlot)
        self._free.append(slot.number)

    def exchange(self, slot: Slot, layout: BatchLayout) -> SharedSlot:
        """The same slot for the batch as it is now."""
        assert isinstance(slot, SharedSlot)
        return self._laid_out(slot.number, layout)

    def view(self, number: int, size: int) -> SharedSlot:
        """The slot of that number, in any of the processes, for the ``size`` samples it was leased for."""
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
