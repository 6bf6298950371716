"""Slots that worker processes see, too: anonymous files in memory, one each."""

from __future__ import annotations

import mmap
import os
from collections import deque
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch

from fastload.prefetch.feeder import Slot, SlotShape

__all__ = ["SharedSlot", "SharedSlots"]

_ALIGN = 64


@dataclass
class SharedSlot(Slot):
    """A slot by its number."""

    number: int = -1


class SharedMemory:
    """Bytes that this process and its children see; grows, and follows when another process made it grow."""

    def __init__(self) -> None:
        self._file = os.memfd_create("fastload-slot")
        self._map: mmap.mmap | None = None

    def __getstate__(self) -> Any:
        return reduction.DupFd(self._file)

    def __setstate__(self, state: Any) -> None:
        self._file, self._map = state.detach(), None

    def __del__(self) -> None:
        os.close(self._file)

    def bytes(self, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The first ``size`` bytes, (size,) uint8."""
        if self._map is None or len(self._map) < size:
            if os.fstat(self._file).st_size < size:
                os.ftruncate(self._file, size)
            self._map = mmap.mmap(self._file, size)  # the former one lives as long as arrays on it
        return np.frombuffer(self._map, np.uint8, size)


class SharedSlots:
    """Where the engine writes pictures for worker processes; see :class:`fastload.prefetch.feeder.Slots`.

    A slot is leased until :meth:`give_back`. Labels are shared, too.

    Args:
        shape: of the images.
        count: slots; memory is taken when a slot is first used.
    """

    def __init__(self, shape: SlotShape, count: int) -> None:
        self.shape = shape
        self.count = count
        self._memory = [SharedMemory() for _ in range(count)]
        self._free = deque(range(count))

    def lease(self, size: int, must: bool = False) -> SharedSlot | None:
        """A slot for ``size`` samples; its contents are undefined. None if all are leased."""
        if self._free:
            return self.view(self._free.popleft(), size)
        if must:
            raise RuntimeError(f"All {len(self._memory)} shared slots are in use; one must be free here.")
        return None

    def give_back(self, slot: Slot) -> None:
        """Nobody uses ``slot`` any more."""
        assert isinstance(slot, SharedSlot)
        self._free.append(slot.number)

    def view(self, number: int, size: int) -> SharedSlot:
        """The slot of that number, in any of the processes, for ``size`` samples."""
        shape = self.shape
        images_bytes = size * shape.sample_bytes
        start = -(-8 * size // _ALIGN) * _ALIGN
        whole = self._memory[number].bytes(start + images_bytes)
        labels = torch.from_numpy(whole[: 8 * size].view(np.int64))
        memory = whole[start : start + images_bytes]
        flat = torch.from_numpy(memory).view(shape.dtype)
        if shape.channels_last:
            images = flat.view(size, shape.height, shape.width, 3).permute(0, 3, 1, 2)
        else:
            images = flat.view(size, 3, shape.height, shape.width)
        return SharedSlot(memory, images, labels, number)
