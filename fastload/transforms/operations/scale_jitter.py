"""The picture resized by a random factor."""

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

__all__ = ["OPERATION", "ScaleJitter"]


@dataclass(frozen=True)
class ScaleJitter:
    """Resize the picture in proportion, to a random factor of the size at which it fits ``target_size``:
    torchvision's ``ScaleJitter``, the first half of large scale jitter
    (:class:`FixedSizeCrop` is the second).

    As torchvision, it takes the height of ``target_size`` for the width and its width for the height; squares
    do not tell. A side is at least 1 pixel.

    Args:
        target_size: ``(height, width)``; an int for a square.
        scale_range: least and greatest factor, uniform between them.
        interpolation: ``"bilinear"`` or ``"bicubic"``.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    target_size: int | Sequence[int]
    scale_range: Sequence[float] = (0.1, 2.0)
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "ScaleJitter"
        set_field(self, "target_size", arguments.pair(f"{where}.target_size", self.target_size))
        low, high = arguments.floats(f"{where}.scale_range", self.scale_range, 2)
        if not 0.0 < low <= high:
            raise ValueError(
                f"{where}.scale_range must be (least, greatest), 0 < least <= greatest. Found: {(low, high)}."
            )
        set_field(self, "scale_range", (low, high))
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add(draft: Draft, spec: ScaleJitter, strict: bool) -> Draft:
    use = GeometryUse("scale_jitter", (*as_pair(spec.target_size), *spec.scale_range), drawn=True)
    return resize(draft, spec, spec.interpolation, use)


def _from_torchvision(item: Any) -> tuple[ScaleJitter]:
    antialias = from_torchvision_antialias(item)
    return (ScaleJitter(item.target_size, item.scale_range, item.interpolation, antialias),)


OPERATION = Operation(ScaleJitter, _add, {"ScaleJitter": _from_torchvision})
