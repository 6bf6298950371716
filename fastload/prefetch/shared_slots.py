"""Slots that worker processes see, too: anonymous files in memory, one each."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch

from fastload.prefetch.slots import Slot, fields_in
from fastload.sample.layout import BatchLayout, SampleLayout

__all__ = ["SharedSlot", "SharedSlots"]

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
