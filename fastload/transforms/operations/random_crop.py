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
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomCrop"]


@dataclass(frozen=True)
class RandomCrop:
    """``(height, width)`` pixels at a random place of the picture, every place as likely.

    torchvision's ``RandomCrop`` without padding. A picture that is smaller is an error of the batch: put a
    :class:`Resize` to at least this size before it.

    Raises:
        TypeError, ValueError: a side outside [1, 65500] pixels.
    """

    size: int | Sequence[int]

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("RandomCrop.size", self.size))


def _add(draft: Draft, spec: RandomCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    return geometry(draft, spec, Stage.WINDOW, GeometryUse("random_crop", size, size, drawn=True))


def _from_torchvision(item: Any) -> tuple[RandomCrop]:
    if item.padding is not None or item.pad_if_needed:
        raise ValueError("RandomCrop pads nothing here. Found padding or pad_if_needed")
    return (RandomCrop(item.size),)


OPERATION = Operation(
    RandomCrop,
    _add,
    {"RandomCrop": _from_torchvision},
    advice={"RandomCrop": "a RandomCrop without padding, behind a Resize to at least its size"},
)
