"""The picture resized to a random size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    from_torchvision_antialias,
    resize,
    set_field,
)
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomResize"]


@dataclass(frozen=True)
class RandomResize:
    """Resize the picture so that its shorter side is a uniformly random whole number of pixels in
    ``[min_size, max_size)``: torchvision's ``RandomResize``, as segmentation is trained.

    Args:
        min_size: least size of the shorter side.
        max_size: one more than the greatest.
        interpolation: ``"bilinear"`` or ``"bicubic"``.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    min_size: int
    max_size: int
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "RandomResize"
        least = arguments.side(f"{where}.min_size", self.min_size)
        end = arguments.side(f"{where}.max_size", self.max_size)
        if not least < end:
            raise ValueError(f"{where}: min_size < max_size. Found: {(least, end)}.")
        set_field(self, "min_size", least)
        set_field(self, "max_size", end)
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add(draft: Draft, spec: RandomResize, strict: bool) -> Draft:
    use = GeometryUse("random_resize", (spec.min_size, spec.max_size), drawn=True)
    return resize(draft, spec, spec.interpolation, use)


def _from_torchvision(item: Any) -> tuple[RandomResize]:
    antialias = from_torchvision_antialias(item)
    return (RandomResize(item.min_size, item.max_size, item.interpolation, antialias),)


OPERATION = Operation(RandomResize, _add, {"RandomResize": _from_torchvision})
