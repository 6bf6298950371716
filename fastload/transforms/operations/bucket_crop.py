"""The picture in the size of the bucket that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, resize, set_field
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "BucketCrop"]


@dataclass(frozen=True)
class BucketCrop:
    """Resize the picture in proportion until it covers the bucket of the nearest aspect ratio, and crop it
    to that size. With :class:`fastload.BucketSampler` of the same sizes each batch has pictures of one size,
    so that ``sizes="pad"`` pads nothing.

    Args:
        sizes: ``(height, width)`` of the buckets; ties go to the first.
        anywhere: crop at a uniformly random position; False: centre crop.
        interpolation: ``"bilinear"`` or ``"bicubic"``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    sizes: Sequence[Sequence[int]]
    anywhere: bool = False
    interpolation: Any = "bilinear"

    def __post_init__(self) -> None:
        sizes = tuple(arguments.pair("BucketCrop.sizes", size) for size in self.sizes)
        if not sizes:
            raise ValueError("BucketCrop.sizes must have at least one (height, width). Found: none.")
        set_field(self, "sizes", sizes)
        name = arguments.interpolation_name("BucketCrop.interpolation", self.interpolation)
        set_field(self, "interpolation", name)


def _add(draft: Draft, spec: BucketCrop, strict: bool) -> Draft:
    sides = tuple(side for size in spec.sizes for side in size)
    size = (spec.sizes[0][0], spec.sizes[0][1]) if len(set(spec.sizes)) == 1 else None
    use = GeometryUse("bucket_cover", (float(spec.anywhere), *sides), size, drawn=bool(spec.anywhere))
    return resize(draft, spec, spec.interpolation, use)


OPERATION = Operation(BucketCrop, _add, {})
