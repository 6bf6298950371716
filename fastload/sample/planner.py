"""Where the fields of one batch lie: one behind the other, each where its size allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fastload.sample.layout import FieldLayout

__all__ = ["Measured", "Place", "Planner"]

_ALIGN = 64  # bytes; a cache line, and every dtype's

#: What the core has measured of a field of n samples: (n + 1,) offsets of rows or objects; (n, 2) height and
#: width of pictures; (n, 3) count, height and width of masks of objects; None where all are alike.
Measured: TypeAlias = "npt.NDArray[np.int64] | None"


@dataclass(frozen=True)
class Place:
    """Where a batch's part of one field lies.

    Args:
        begin: first byte.
        nbytes: bytes of all samples.
        stride: bytes from one sample to the next; 0 where they differ.
        size: height and width of pictures, or of objects' masks, in one tensor.
        offsets: (n + 1,) of rows or objects, in rows or bytes; of a list of pictures (n,), in bytes.
        sizes: (n, 2) height and width of pictures that differ; of objects' masks (n, 3), their count first.
        numbers_at: where ``offsets`` or ``sizes`` lie in the batch's memory.
    """

    begin: int
    nbytes: int
    stride: int = 0
    size: tuple[int, int] = (0, 0)
    offsets: Measured = None
    sizes: Measured = None
    numbers_at: int = 0

    @property
    def measured(self) -> Measured:
        """What the core has measured of it."""
        return self.offsets if self.sizes is None else self.sizes

    @property
    def numbers(self) -> Measured:
        """What the batch's memory has of it, in one dimension."""
        if self.sizes is None or self.offsets is None:
            known = self.measured
            return None if known is None else known.reshape(-1)
        if self.sizes.shape[1] == 2:
            return self.sizes.reshape(-1)
        return np.concatenate([self.offsets, self.sizes[:, 1:].reshape(-1)])


class Planner:
    """Takes memory for one field after the other of a batch of ``size`` samples."""

    def __init__(self, size: int) -> None:
        self.end = 0
        self._size = size

    def take(self, nbytes: int) -> int:
        """The first byte of ``nbytes`` that nobody else has."""
        begin = self.end
        self.end = _aligned(begin + nbytes)
        return begin

    def numbers(self, field: FieldLayout, known: npt.NDArray[np.int64]) -> Place:
        """Room for what the batch's memory has of a field that is measured."""
        count = known.size if field.form != "masks" or field.has_offsets else 3 * self._size + 1
        return Place(0, 0, numbers_at=self.take(8 * count))

    def equal(self, stride: int, size: tuple[int, int] = (0, 0), **more: Any) -> Place:
        """Samples of ``stride`` bytes."""
        nbytes = self._size * stride
        return Place(self.take(nbytes), nbytes, stride, size, **more)

    def place(self, field: FieldLayout, known: Measured, at: int) -> Place:
        """Rows, objects, masks or pictures of a field, of which ``known`` was measured; its numbers lie at
        ``at``.

        Raises:
            ValueError: a picture is larger than there is room for.
        """
        if field.form == "masks":
            assert known is not None
            return self._masks(field, known, at)
        if field.form != "picture":
            assert known is not None
            nbytes = int(known[-1]) * field.item_bytes
            return Place(self.take(nbytes), nbytes, offsets=known, numbers_at=at)
        if field.mode == "stack":
            return self.equal(field.item_bytes, (field.shape[-2], field.shape[-1]))
        assert known is not None
        if field.mode == "pad":
            size = field.padded_size(known)
            return self.equal(field.picture_bytes(*size), size, sizes=known, numbers_at=at)
        offsets, nbytes = _listed(known[:, 0] * known[:, 1] * field.channels * field.dtype.itemsize)
        return Place(self.take(nbytes), nbytes, offsets=offsets, sizes=known, numbers_at=at)

    def _masks(self, field: FieldLayout, known: npt.NDArray[np.int64], at: int) -> Place:
        if field.mode == "stack":
            nbytes = int(known[-1]) * field.item_bytes
            height, width = field.shape
            return Place(self.take(nbytes), nbytes, 0, (height, width), offsets=known, numbers_at=at)
        if field.mode == "list":
            offsets, nbytes = _listed(known.prod(1))
            return Place(self.take(nbytes), nbytes, offsets=offsets, sizes=known, numbers_at=at)
        height, width = field.padded_size(known[:, 1:])
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(known[:, 0])])
        nbytes = int(offsets[-1]) * height * width
        begin = self.take(nbytes)
        return Place(begin, nbytes, 0, (height, width), offsets=offsets, sizes=known, numbers_at=at)


def _aligned(nbytes: Any) -> Any:
    return -(-nbytes // _ALIGN) * _ALIGN


def _listed(lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Where samples of these bytes begin, and the bytes of all."""
    lengths = _aligned(lengths)
    return np.cumsum(lengths) - lengths, int(lengths.sum())
