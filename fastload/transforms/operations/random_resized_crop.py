"""A random part of the picture, resized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_pair,
    from_torchvision_antialias,
    resize,
    set_field,
)
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomResizedCrop"]


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crop a random part of the picture and resize it to ``size``.

    The crop is drawn by torchvision's ``RandomResizedCrop.get_params``: ten tries at an area of ``scale``
    times the picture's and a ratio (width over height) uniform in logarithm over ``ratio``, then the
    central crop. The resize equals Pillow 13's on uint8, bit for bit.

    Args:
        size: ``(height, width)`` of the result in pixels; an int for a square.
        scale: least and greatest share of the picture's area, ``0 < least <= greatest``.
        ratio: least and greatest width over height, ``0 < least <= greatest``.
        interpolation: ``"bilinear"`` or ``"bicubic"`` (or torchvision's ``InterpolationMode``), or as timm
            has it ``"random"``: one of the two, drawn for each sample.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "RandomResizedCrop"
        set_field(self, "size", arguments.pair(f"{where}.size", self.size))
        for name in ("scale", "ratio"):
            low, high = arguments.floats(f"{where}.{name}", getattr(self, name), 2)
            if not 0 < low <= high:
                raise ValueError(
                    f"{where}.{name} must be (least, greatest) with 0 < least <= greatest. "
                    f"Found: {(low, high)}."
                )
            set_field(self, name, (low, high))
        if self.interpolation != "random":
            name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
            set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add(draft: Draft, spec: RandomResizedCrop, strict: bool) -> Draft:
    size = as_pair(spec.size)
    use = GeometryUse("random_resized_crop", (*size, *spec.scale, *spec.ratio), size, drawn=True)
    if spec.interpolation != "random":
        return resize(draft, spec, spec.interpolation, use)
    return resize(draft, spec, None, use, GeometryUse("random_filter", (), keeps_size=True, drawn=True))


def _from_torchvision(item: Any) -> tuple[RandomResizedCrop]:
    antialias = from_torchvision_antialias(item)
    return (RandomResizedCrop(item.size, item.scale, item.ratio, item.interpolation, antialias),)


def _from_timm(item: Any) -> tuple[RandomResizedCrop]:
    given = item.interpolation
    if isinstance(given, (tuple, list)):
        names = sorted(arguments.interpolation_name("interpolation", one) for one in given)
        if names != ["bicubic", "bilinear"]:
            raise ValueError(f"it draws its interpolation from {given}")
        given = "random"
    return (RandomResizedCrop(item.size, item.scale, item.ratio, given),)


OPERATION = Operation(
    RandomResizedCrop,
    _add,
    {
        "RandomResizedCrop": _from_torchvision,
        "timm.data.transforms.RandomResizedCropAndInterpolation": _from_timm,
    },
)
