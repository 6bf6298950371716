"""The picture turned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.moving import as_center, center_numbers, drawn_in
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_torch_draws,
    pixels,
    set_field,
)

__all__ = ["OPERATION", "RandomRotation"]


@dataclass(frozen=True)
class RandomRotation:
    """Turn the picture counter-clockwise by an angle that is uniform in a range: Pillow's ``Image.rotate``,
    bit for bit.

    Args:
        degrees: the range (low, high), or one number for (-number, number).
        interpolation: "nearest", "bilinear" or "bicubic", torchvision's or Pillow's.
        expand: only False: pictures keep their size.
        center: (x, y) in pixels of the cut picture, from its upper left corner; None: its middle.
        fill: of what comes from outside: a number in [0, 255], or one for each channel.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    degrees: Any
    interpolation: Any = "nearest"
    expand: bool = False
    center: Any = None
    fill: Any = 0

    def __post_init__(self) -> None:
        set_field(self, "degrees", arguments.span("RandomRotation.degrees", self.degrees))
        name = arguments.filter_name("RandomRotation.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        if self.expand:
            raise ValueError(
                "RandomRotation.expand must be False: pictures of a batch keep their size. Found: "
                f"{self.expand!r}. Use torchvision's RandomRotation, which runs in Python."
            )
        set_field(self, "expand", False)
        set_field(self, "center", as_center("RandomRotation.center", self.center))
        set_field(self, "fill", arguments.colour("RandomRotation.fill", self.fill))


def _add(draft: Draft, spec: RandomRotation, strict: bool) -> Draft:
    last = arguments.filter_and_fill(spec.interpolation, spec.fill)
    return pixels(draft, spec, "rotate", 1.0, drawn_in(spec.degrees), *center_numbers(spec.center), *last)


OPERATION = Operation(
    RandomRotation,
    _add,
    {
        "RandomRotation": lambda item: (
            RandomRotation(
                as_torch_draws(item.degrees), item.interpolation, item.expand, item.center, item.fill
            ),
        )
    },
    pictures_only=True,
)
