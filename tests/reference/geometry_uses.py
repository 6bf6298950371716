"""Steps of the geometry as the core takes them, for expected plans and for specs that tests make by hand."""

from __future__ import annotations

from typing import Any

from fastload._native import _C
from fastload.transforms.plan import Fill, GeometryUse

__all__ = ["center", "crop", "exact", "flip", "given", "shorter", "spec_of", "window"]


def crop(
    height: int,
    width: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> GeometryUse:
    return GeometryUse("random_resized_crop", (height, width, *scale, *ratio))


def shorter(size: int, max_size: int | None = None) -> GeometryUse:
    return GeometryUse("resize_shorter", (size, max_size or 0))


def exact(height: int, width: int) -> GeometryUse:
    return GeometryUse("resize_exact", (height, width))


def center(height: int, width: int) -> GeometryUse:
    return GeometryUse("center_crop", (height, width), fill=Fill())


def window(height: int, width: int) -> GeometryUse:
    return GeometryUse("random_crop", (height, width))


def flip(probability: float) -> GeometryUse:
    return GeometryUse("horizontal_flip", (probability,))


def given(*uses: GeometryUse) -> dict[str, Any]:
    """The arguments of ``_C.GeometrySpec``."""
    return {"steps": [(use.name, list(use.numbers)) for use in uses]}


def spec_of(*uses: GeometryUse, filter: str = "bilinear") -> Any:
    return _C.GeometrySpec(**given(*uses), filter=filter)
