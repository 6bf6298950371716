"""A part of the picture, anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_pair,
    geometry,
    set_field,
)
from fastload.transforms.operations.pad import border_number, fill_of_torchvision, sides_of
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomCrop"]


@dataclass(frozen=True)
class RandomCrop:
    """Crop ``(height, width)`` pixels at a uniformly random position of the picture.

    torchvision's ``RandomCrop``. A picture that is smaller is an error of the batch, unless it is padded: put
    a :class:`Resize` to at least this size before it, or say ``pad_if_needed``.

    Args:
        size: of the crop; an int for a square.
        padding: pixels added around the picture before: one number, (left and right, top and bottom), or
            (left,
            top, right, bottom).
        pad_if_needed: what is missing of the size is added on both sides, as torchvision does.
        fill, padding_mode: what is added, as :class:`Pad` has it.

    Raises:
        TypeError, ValueError: a side outside [1, 65500] pixels; a padding or fill that :class:`Pad` refuses;
            a ``padding_mode`` other than "constant" with both ``padding`` and ``pad_if_needed``.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: Any = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("RandomCrop.size", self.size))
        if self.padding is not None:
            set_field(self, "padding", sides_of("RandomCrop.padding", self.padding))
        arguments.fill_of("RandomCrop.fill", self.fill)
        border = border_number("RandomCrop.padding_mode", self.padding_mode)
        if border and self.padding is not None and self.pad_if_needed:
            raise ValueError(
                f"RandomCrop.padding_mode={self.padding_mode!r} goes with padding or with pad_if_needed. "
                "Found: both. Leave one out, or pad by a callable."
            )


def _add(draft: Draft, spec: RandomCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    border = border_number("RandomCrop.padding_mode", spec.padding_mode)
    pads = bool(spec.padding or spec.pad_if_needed) and not border
    fill = arguments.fill_of("RandomCrop.fill", spec.fill) if pads else None
    uses: list[GeometryUse] = []
    if spec.padding is not None:
        sides = sides_of("RandomCrop.padding", spec.padding)
        bordered = GeometryUse("pad_border", (*sides, border))
        uses.append(bordered if border else GeometryUse("pad", sides, fill=fill))
    if spec.pad_if_needed:
        bordered = GeometryUse("pad_border_to", (*size, border))
        uses.append(bordered if border else GeometryUse("pad_to", size, fill=fill))
    return geometry(draft, spec, *uses, GeometryUse("random_crop", size, size, drawn=True, fill=fill))


def _from_torchvision(item: Any) -> tuple[RandomCrop]:
    if item.padding is None and not item.pad_if_needed:
        return (RandomCrop(item.size),)
    padding = item.padding
    if isinstance(padding, (list, tuple)) and len(padding) == 4 and _is_parsed(item):
        left, right, top, bottom = padding  # torchvision v2 keeps them so
        padding = (left, top, right, bottom)
    mode = getattr(item, "padding_mode", "constant")
    return (RandomCrop(item.size, padding, bool(item.pad_if_needed), fill_of_torchvision(item), mode),)


def _is_parsed(item: Any) -> bool:
    return type(item).__module__.startswith("torchvision.transforms.v2")


OPERATION = Operation(RandomCrop, _add, {"RandomCrop": _from_torchvision})
