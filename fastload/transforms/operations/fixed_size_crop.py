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
    """Crop at random along sides longer than ``size``, and pad shorter sides at the right and below.

    ``FixedSizeCrop`` of torchvision's detection references, the second half of large scale jitter behind
    :class:`ScaleJitter`. As there, one random number places the crop along both sides, boxes are clipped to
    it, and objects whose box lies outside are dropped.

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
