"""A picture of one size: what is too large is cut, what is too small gets fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.of_objects import with_objects
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_pair,
    geometry,
    set_field,
)
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "FixedSizeCrop"]


@dataclass(frozen=True)
class FixedSizeCrop:
    """``(height, width)`` pixels: along a side that is longer a random part of it, at the right of and below
    one that is shorter fill. ``FixedSizeCrop`` of torchvision's detection references, the second half of
    large scale jitter behind :class:`ScaleJitter`; as there, one number says how far the part lies along both
    sides, boxes are cut off, and objects go of whose box nothing is left.

    Args:
        size: of the result; an int for a square.
        fill: as :class:`Pad` has it.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int | Sequence[int]
    fill: Any = 0

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("FixedSizeCrop.size", self.size))
        arguments.fill_of("FixedSizeCrop.fill", self.fill)


def _add(draft: Draft, spec: FixedSizeCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    fill = arguments.fill_of("FixedSizeCrop.fill", spec.fill)
    use = GeometryUse("fixed_size_crop", size, size, drawn=True, fill=fill)
    draft = geometry(draft, spec, use)
    return with_objects(draft, spec, clip=True, drop=True, min_size=0.0, min_area=0.0)


OPERATION = Operation(FixedSizeCrop, _add, {})
