"""The picture turned, moved, scaled and sheared."""

from __future__ import annotations

from collections.abc import Sequence
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

__all__ = ["OPERATION", "RandomAffine"]


@dataclass(frozen=True)
class RandomAffine:
    """Turn, move, scale and shear the picture about its centre, each by a number that is uniform in a range:
    as torchvision does a Pillow picture, bit for bit.

    Args:
        degrees: the range (low, high) of the angle, clockwise, or one number for (-number, number).
        translate: the largest parts of the width and the height, in [0, 1]; None: not moved.
        scale: the range (low, high), above 0; None: 1.
        shear: the range of the angle along x, as degrees, or four numbers, for x and y; None: not sheared.
        interpolation: "nearest", "bilinear" or "bicubic", torchvision's or Pillow's.
        fill: of what comes from outside: a number in [0, 255], or one for each channel.
        center: (x, y) in pixels of the cut picture, from its upper left corner; None: its middle.
        version: 1 or 2: ``torchvision.transforms`` or ``torchvision.transforms.v2``, which round otherwise.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    degrees: Any
    translate: Any = None
    scale: Any = None
    shear: Any = None
    interpolation: Any = "nearest"
    fill: Any = 0
    center: Any = None
    version: int = 1

    def __post_init__(self) -> None:
        set_field(self, "degrees", arguments.span("RandomAffine.degrees", self.degrees))
        if self.translate is not None:
            translate = arguments.floats("RandomAffine.translate", self.translate, 2)
            if not all(0 <= part <= 1 for part in translate):
                raise ValueError(f"RandomAffine.translate must be in [0, 1]. Found: {self.translate!r}.")
            set_field(self, "translate", translate)
        if self.scale is not None:
            scale = arguments.ordered(
                "RandomAffine.scale", *arguments.floats("RandomAffine.scale", self.scale, 2)
            )
            if scale[0] <= 0:
                raise ValueError(f"RandomAffine.scale must be above 0. Found: {self.scale!r}.")
            set_field(self, "scale", scale)
        set_field(self, "shear", _shear(self.shear))
        set_field(
            self, "interpolation", arguments.filter_name("RandomAffine.interpolation", self.interpolation)
        )
        set_field(self, "fill", arguments.colour("RandomAffine.fill", self.fill))
        set_field(self, "center", as_center("RandomAffine.center", self.center))
        set_field(self, "version", arguments.whole("RandomAffine.version", self.version, 1, 2))


def _shear(given: Any) -> tuple[float, ...] | None:
    """The ranges along x and y."""
    where = "RandomAffine.shear"
    if given is None:
        return None
    if isinstance(given, Sequence) and len(given) == 4:
        numbers = arguments.floats(where, given, 4)
        return *arguments.ordered(where, *numbers[:2]), *arguments.ordered(where, *numbers[2:])
    return *arguments.span(where, given), 0.0, 0.0


def _add(draft: Draft, spec: RandomAffine, strict: bool) -> Draft:
    share_x, share_y = spec.translate or (0.0, 0.0)
    low_x, high_x, low_y, high_y = spec.shear or (0.0,) * 4
    ranges = (
        spec.degrees,
        (-share_x, share_x),
        (-share_y, share_y),
        spec.scale or (1.0, 1.0),
        (low_x, high_x),
        (low_y, high_y),
    )
    last = arguments.filter_and_fill(spec.interpolation, spec.fill)
    numbers = (*map(drawn_in, ranges), *center_numbers(spec.center), float(spec.version), *last)
    return pixels(draft, spec, "affine", 1.0, *numbers)


def _from_torchvision(item: Any) -> tuple[RandomAffine]:
    version = 2 if type(item).__module__.startswith("torchvision.transforms.v2") else 1
    degrees, scale, shear = map(as_torch_draws, (item.degrees, item.scale, item.shear))
    drawn = degrees, item.translate, scale, shear
    return (RandomAffine(*drawn, item.interpolation, item.fill, item.center, version),)


OPERATION = Operation(RandomAffine, _add, {"RandomAffine": _from_torchvision}, pictures_only=True)
