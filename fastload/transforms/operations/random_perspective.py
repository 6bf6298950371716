"""Some pictures as if seen from the side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "RandomPerspective"]


@dataclass(frozen=True)
class RandomPerspective:
    """With probability ``p``, pull the picture's corners inwards, each by up to ``distortion_scale`` of half
    the sides, as torchvision does a Pillow picture. A picture one pixel wide or high stays as it is.

    Args:
        distortion_scale: in [0, 1].
        p: in [0, 1].
        interpolation: "nearest", "bilinear" or "bicubic", torchvision's or Pillow's.
        fill: of what comes from outside: a number in [0, 255], or one for each channel.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Any = "bilinear"
    fill: Any = 0

    def __post_init__(self) -> None:
        scale = arguments.probability("RandomPerspective.distortion_scale", self.distortion_scale)
        set_field(self, "distortion_scale", scale)
        set_field(self, "p", arguments.probability("RandomPerspective.p", self.p))
        name = arguments.filter_name("RandomPerspective.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        set_field(self, "fill", arguments.colour("RandomPerspective.fill", self.fill))


def _add(draft: Draft, spec: RandomPerspective, strict: bool) -> Draft:
    last = arguments.filter_and_fill(spec.interpolation, spec.fill)
    return pixels(draft, spec, "perspective", spec.p, spec.distortion_scale, *last)


OPERATION = Operation(
    RandomPerspective,
    _add,
    {
        "RandomPerspective": lambda item: (
            RandomPerspective(item.distortion_scale, item.p, item.interpolation, item.fill),
        )
    },
    pictures_only=True,
)
