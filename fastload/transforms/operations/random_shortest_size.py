"""The picture resized to one of several sizes."""

from __future__ import annotations

from collections.abc import Sequence
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

__all__ = ["OPERATION", "RandomShortestSize"]


@dataclass(frozen=True)
class RandomShortestSize:
    """Resize the picture in proportion, so that the shorter side has one of the sizes ``min_size``, drawn
    uniformly, and the longer side ``max_size`` at most: torchvision's ``RandomShortestSize``, as detectors
    are trained.

    As torchvision computes it, the shorter side may come out a pixel smaller.

    Args:
        min_size: the sizes, or one.
        max_size: of the longer side; None: no bound.
        interpolation: ``"bilinear"`` or ``"bicubic"``.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "RandomShortestSize"
        given = self.min_size if isinstance(self.min_size, Sequence) else (self.min_size,)
        if not given:
            raise ValueError(f"{where}.min_size must have at least one size. Found: none.")
        set_field(self, "min_size", tuple(arguments.side(f"{where}.min_size", size) for size in given))
        if self.max_size is not None:
            set_field(self, "max_size", arguments.side(f"{where}.max_size", self.max_size))
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add(draft: Draft, spec: RandomShortestSize, strict: bool) -> Draft:
    sizes = spec.min_size if isinstance(spec.min_size, Sequence) else (spec.min_size,)
    use = GeometryUse("random_shortest_size", (spec.max_size or 0, *sizes), drawn=True)
    return resize(draft, spec, spec.interpolation, use)


def _from_torchvision(item: Any) -> tuple[RandomShortestSize]:
    antialias = from_torchvision_antialias(item)
    return (RandomShortestSize(item.min_size, item.max_size, item.interpolation, antialias),)


OPERATION = Operation(RandomShortestSize, _add, {"RandomShortestSize": _from_torchvision})
