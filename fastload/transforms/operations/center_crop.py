"""The middle of the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_pair,
    geometry,
    set_field,
)
from fastload.transforms.plan import Fill, GeometryUse

__all__ = ["OPERATION", "CenterCrop"]


@dataclass(frozen=True)
class CenterCrop:
    """Crop the middle ``(height, width)`` pixels; smaller pictures are padded with zeros, as in torchvision.

    Raises:
        TypeError, ValueError: a side outside [1, 65500] pixels.
    """

    size: int | Sequence[int]

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("CenterCrop.size", self.size))


def _add(draft: Draft, spec: CenterCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    return geometry(draft, spec, GeometryUse("center_crop", size, size, fill=Fill()))


OPERATION = Operation(CenterCrop, _add, {"CenterCrop": lambda item: (CenterCrop(item.size),)})
