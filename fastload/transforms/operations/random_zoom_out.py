"""The picture on a larger canvas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    geometry,
    set_field,
)
from fastload.transforms.operations.pad import fill_of_torchvision
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomZoomOut"]


@dataclass(frozen=True)
class RandomZoomOut:
    """With probability ``p``, place the picture at a random position on a canvas of one colour whose sides
    are ``r`` times as long, ``r`` uniform in ``side_range``: torchvision's ``RandomZoomOut``. The fill is not
    decoded, nor resized: it costs next to nothing.

    Args:
        fill: as :class:`Pad` has it.
        side_range: least and greatest factor, ``1 <= least <= greatest``.
        p: the probability.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    fill: Any = 0
    side_range: Sequence[float] = (1.0, 4.0)
    p: float = 0.5

    def __post_init__(self) -> None:
        where = "RandomZoomOut"
        arguments.fill_of(f"{where}.fill", self.fill)
        low, high = arguments.floats(f"{where}.side_range", self.side_range, 2)
        if not 1.0 <= low <= high:
            raise ValueError(
                f"{where}.side_range must be (least, greatest), 1 <= least <= greatest. Found: {(low, high)}."
            )
        set_field(self, "side_range", (low, high))
        set_field(self, "p", arguments.probability(f"{where}.p", self.p))


def _add(draft: Draft, spec: RandomZoomOut, strict: bool) -> Draft:
    low, high = spec.side_range
    fill = arguments.fill_of("RandomZoomOut.fill", spec.fill)
    use = GeometryUse("random_zoom_out", (low, high, spec.p), drawn=True, fill=fill)
    return geometry(draft, spec, use)


def _from_torchvision(item: Any) -> tuple[RandomZoomOut]:
    return (RandomZoomOut(fill_of_torchvision(item), item.side_range, item.p),)


OPERATION = Operation(RandomZoomOut, _add, {"RandomZoomOut": _from_torchvision})
