"""Slots: the memory that batches are filled into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C
from fastload.sample.delivery import IMAGE, LABEL
from fastload.sample.layout import BatchLayout, FieldLayout, SampleLayout

__all__ = ["PARAMETERS", "Slot", "SlotPool", "SlotShape", "Slots", "in_steps"]

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
