"""What specs of operations that move pixels have in common."""

from __future__ import annotations

from typing import Any

from fastload.transforms import arguments
from fastload.transforms.plan import Drawn

__all__ = ["as_center", "center_numbers", "drawn_in"]


def as_center(where: str, value: Any) -> tuple[float, float] | None:
    """The checked point (x, y) about which a picture is turned; None: its middle."""
    if value is None:
        return None
    x, y = arguments.floats(where, value, 2)
    return x, y


def center_numbers(center: tuple[float, float] | None) -> tuple[float, float, float]:
    """A centre as the core takes it."""
    return (0.0, 0.0, 0.0) if center is None else (1.0, *center)


def drawn_in(span: tuple[float, float]) -> float | Drawn:
    """A number that is uniform in a range; a range of one number is that."""
    return span[0] if span[0] == span[1] else Drawn("uniform", span)
