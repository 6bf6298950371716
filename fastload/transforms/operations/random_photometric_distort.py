"""Colours distorted as the detector SSD was trained with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    colour_name,
    drawn_between,
    set_field,
    use_of_pixels,
)
from fastload.transforms.operations.random_channel_permutation import PERMUTED
from fastload.transforms.plan import PixelUse

__all__ = ["OPERATION", "RandomPhotometricDistort"]


@dataclass(frozen=True)
class RandomPhotometricDistort:
    """Change brightness, contrast, saturation and hue by drawn factors, and permute the channels, each with
    probability ``p``; contrast comes second or after the hue, equally likely.

    Args:
        brightness, contrast, saturation: (least, greatest) factor; at least 0.
        hue: (least, greatest) shift in turns of the colour circle; within [-0.5, 0.5].
        p: in [0, 1].

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    brightness: Sequence[float] = (0.875, 1.125)
    contrast: Sequence[float] = (0.5, 1.5)
    saturation: Sequence[float] = (0.5, 1.5)
    hue: Sequence[float] = (-0.05, 0.05)
    p: float = 0.5

    def __post_init__(self) -> None:
        where = "RandomPhotometricDistort"
        for name in ("brightness", "contrast", "saturation", "hue"):
            value = arguments.floats(f"{where}.{name}", getattr(self, name), 2)
            low, high = (-0.5, 0.5) if name == "hue" else (0.0, math.inf)
            set_field(self, name, arguments.spread(f"{where}.{name}", value, 0.0, low, high))
        set_field(self, "p", arguments.probability(f"{where}.p", self.p))


def _add(draft: Draft, spec: RandomPhotometricDistort, strict: bool) -> Draft:
    def changed(name: str) -> PixelUse:
        return PixelUse(colour_name(draft, name), spec.p, (drawn_between(*getattr(spec, name)),))

    colours = (changed("saturation"), changed("hue"))
    before = PixelUse("all", 1.0, (), (changed("contrast"), *colours))
    behind = PixelUse("all", 1.0, (), (*colours, changed("contrast")))
    permuted = PixelUse("channel_permutation", spec.p, (PERMUTED,))
    parts = (changed("brightness"), PixelUse("choice", 1.0, (1.0, 1.0), (before, behind)), permuted)
    return use_of_pixels(draft, spec, PixelUse("all", 1.0, (), parts))


OPERATION = Operation(
    RandomPhotometricDistort,
    _add,
    {
        "RandomPhotometricDistort": lambda item: (
            RandomPhotometricDistort(item.brightness, item.contrast, item.saturation, item.hue, item.p),
        )
    },
    pictures_only=True,
    knows_tensors=True,
)
