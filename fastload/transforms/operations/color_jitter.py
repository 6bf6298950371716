"""Brightness, contrast, saturation and hue changed at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_torch_draws,
    colour_name,
    drawn_between,
    set_field,
    use_of_pixels,
)
from fastload.transforms.plan import PixelUse

__all__ = ["OPERATION", "ColorJitter"]

Spread = float | Sequence[float] | None


@dataclass(frozen=True)
class ColorJitter:
    """Change brightness, contrast, saturation and hue by factors that are drawn for each sample, in an order
    that is also drawn; what cannot change anything is left out.

    Equal to Pillow's ImageEnhance and torchvision's ``adjust_hue`` of a PIL picture, bit for bit.

    Args:
        brightness, contrast, saturation: the factor is uniform in [max(0, 1 - x), 1 + x], or in (least,
            greatest); at least 0.
        hue: the shift, in turns of the colour circle, is uniform in [-x, x], or in (least, greatest); within
            [-0.5, 0.5].

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    brightness: Spread = 0.0
    contrast: Spread = 0.0
    saturation: Spread = 0.0
    hue: Spread = 0.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            value = arguments.spread(f"ColorJitter.{name}", getattr(self, name) or 0.0, 1.0, 0.0, math.inf)
            set_field(self, name, value)
        set_field(self, "hue", arguments.spread("ColorJitter.hue", self.hue or 0.0, 0.0, -0.5, 0.5))


def _add(draft: Draft, spec: ColorJitter, strict: bool) -> Draft:
    neutral = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
    parts = tuple(
        PixelUse(colour_name(draft, name), 1.0, (drawn_between(*getattr(spec, name)),))
        for name, value in neutral.items()
        if getattr(spec, name) != (value, value)
    )
    return use_of_pixels(draft, spec, PixelUse("order", 1.0, (), parts)) if parts else draft


def _of_torchvision(item: Any) -> tuple[ColorJitter]:
    spreads = item.brightness, item.contrast, item.saturation, item.hue
    return (ColorJitter(*map(as_torch_draws, spreads)),)


OPERATION = Operation(
    ColorJitter,
    _add,
    {"ColorJitter": _of_torchvision},
    pictures_only=True,
    knows_tensors=True,
)
