"""The whole picture in one size, its shape kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_pair,
    resize,
    set_field,
)
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "Letterbox"]

_RULES = ("dataset", "letterbox")


@dataclass(frozen=True)
class Letterbox:
    """Resize the whole picture in proportion to fit ``size``, and fill around it. Positions of pictures
    and boxes are those of Ultralytics (8.4); pixels are Pillow's antialiased bilinear ones, not OpenCV's.

    Args:
        size: of the result; an int for a square. Two ints, ``(height, width)``, that differ: only by the
            rule "letterbox".
        fill: as :class:`Pad` has it.
        rule: ``"dataset"``: what its data set gives in validation, where pictures are resized as they are
            read: the longer side gets ``size`` pixels, the other one is rounded up. ``"letterbox"``: its
            LetterBox of a picture as it is, as its predictor does: sides are rounded, halves to even.
        scaleup: whether smaller pictures are enlarged; False only by the rule "letterbox".
        center: whether the picture lies in the middle (the odd pixel of fill at the right, or below), or at
            the top left.

    Raises:
        TypeError, ValueError: an argument outside its range, or that the rule does not have.
    """

    size: int | Sequence[int] = 640
    fill: Any = 114
    rule: str = "dataset"
    scaleup: bool = True
    center: bool = True

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("Letterbox.size", self.size))
        arguments.fill_of("Letterbox.fill", self.fill)
        if self.rule not in _RULES:
            raise ValueError(f"Letterbox.rule must be 'dataset' or 'letterbox'. Found: {self.rule!r}.")
        for name in ("scaleup", "center"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"Letterbox.{name} must be True or False. Found: {getattr(self, name)!r}.")
        height, width = as_pair(self.size)
        if self.rule == "dataset" and (height != width or not self.scaleup):
            raise ValueError(
                "Letterbox by the rule 'dataset' has one size for both sides, and enlarges smaller pictures. "
                f"Found: size {(height, width)}, scaleup {self.scaleup}. Give rule='letterbox'."
            )


def _add(draft: Draft, spec: Letterbox, strict: bool) -> Draft:
    size = as_pair(spec.size)
    numbers = *size, spec.rule == "dataset", spec.scaleup, spec.center
    fill = arguments.fill_of("Letterbox.fill", spec.fill)
    use = GeometryUse("letterbox", tuple(map(float, numbers)), size, fill=fill)
    return resize(draft, spec, "bilinear", use)


OPERATION = Operation(Letterbox, _add, {})
