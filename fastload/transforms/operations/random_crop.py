"""A part of the picture, anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    Stage,
    as_pair,
    geometry,
    set_field,
)
from fastload.transforms.operations.pad import constant_fill, sides_of
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomCrop"]


@dataclass(frozen=True)
class RandomCrop:
    """``(height, width)`` pixels at a random place of the picture, every place as likely.

    torchvision's ``RandomCrop``. A picture that is smaller is an error of the batch, unless it is padded: put
    a :class:`Resize` to at least this size before it, or say ``pad_if_needed``.

    Args:
        size: of the crop; an int for a square.
        padding: pixels added around the picture before: one number, (left and right, top and bottom), or
            (left,
            top, right, bottom).
        pad_if_needed: what is missing of the size is added on both sides, as torchvision does.
        fill: what is added, as :class:`Pad` has it.

    Raises:
        TypeError, ValueError: a side outside [1, 65500] pixels; a padding or fill that :class:`Pad` refuses.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: Any = 0

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("RandomCrop.size", self.size))
        if self.padding is not None:
            set_field(self, "padding", sides_of("RandomCrop.padding", self.padding))
        arguments.fill_of("RandomCrop.fill", self.fill)


def _add(draft: Draft, spec: RandomCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    fill = arguments.fill_of("RandomCrop.fill", spec.fill) if spec.padding or spec.pad_if_needed else None
    crop = GeometryUse("random_crop", size, size, drawn=True, fill=fill)
    found = geometry(draft, spec, Stage.WINDOW, crop)
    before: list[GeometryUse] = []
    if spec.padding is not None:
        before.append(GeometryUse("pad", tuple(sides_of("RandomCrop.padding", spec.padding)), fill=fill))
    if spec.pad_if_needed:
        before.append(GeometryUse("pad_to", size, fill=fill))
    *others, last = found.plan.geometry
    return found.then(found.stage, geometry=(*others, *before, last))


def _from_torchvision(item: Any) -> tuple[RandomCrop]:
    if item.padding is None and not item.pad_if_needed:
        return (RandomCrop(item.size),)
    padding = item.padding
    if isinstance(padding, (list, tuple)) and len(padding) == 4 and _is_parsed(item):
        left, right, top, bottom = padding  # torchvision v2 keeps them so
        padding = (left, top, right, bottom)
    return (RandomCrop(item.size, padding, bool(item.pad_if_needed), constant_fill(item)),)


def _is_parsed(item: Any) -> bool:
    return type(item).__module__.startswith("torchvision.transforms.v2")


OPERATION = Operation(
    RandomCrop,
    _add,
    {"RandomCrop": _from_torchvision},
    advice={"RandomCrop": "a RandomCrop with padding_mode='constant'"},
)
