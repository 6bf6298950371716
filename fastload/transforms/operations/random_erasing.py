"""Rectangles of some pictures filled, behind normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Misplaced,
    Operation,
    Stage,
    misplaced,
    set_field,
)
from fastload.transforms.plan import Erasing

__all__ = ["OPERATION", "RandomErasing"]

_MOST = 255  # rectangles; the core draws with numbers of their own for each


@dataclass(frozen=True)
class RandomErasing:
    """Fill random rectangles of a picture, as torchvision and timm do on the normalised picture.

    Zhong et al., "Random Erasing Data Augmentation" (2017). For each rectangle ten tries at an area of
    ``scale`` times the picture's, divided by their number, and a height over width uniform in logarithm over
    ``ratio``; if none fits, there is none.

    In a transform it comes last, and draws for each sample: the core erases what it stores; where
    normalisation is the device's, so is erasing. In ``batch_transform`` it does the same to whole batches,
    with the same rectangles. Noise of the core is a table's, 65,536 equally likely quantiles of the normal
    distribution; that of a batch is torch's.

    Args:
        p: probability, in [0, 1].
        scale: least and greatest share of the area, ``0 <= least <= greatest <= 1``.
        ratio: least and greatest height over width, ``0 < least <= greatest``.
        value: a number, or three, in the units of the delivered images; ``"random"``: a standard normal
            number for each value (timm's mode ``pixel``); ``"color"``: three for each rectangle (``rand``).
        count: rectangles, from 1 to 255, or ``(least, greatest)``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0.0
    count: int | Sequence[int] = 1

    def __post_init__(self) -> None:
        where = "RandomErasing"
        set_field(self, "p", arguments.probability(f"{where}.p", self.p))
        low, high = arguments.floats(f"{where}.scale", self.scale, 2)
        if not 0 <= low <= high <= 1:
            raise ValueError(f"{where}.scale must be 0 <= least <= greatest <= 1. Found: {(low, high)}.")
        set_field(self, "scale", (low, high))
        low, high = arguments.floats(f"{where}.ratio", self.ratio, 2)
        if not 0 < low <= high:
            raise ValueError(f"{where}.ratio must be 0 < least <= greatest. Found: {(low, high)}.")
        set_field(self, "ratio", (low, high))
        set_field(self, "value", _values(self.value))
        set_field(self, "count", _counts(self.count))

    @property
    def planned(self) -> Erasing:
        """As the core takes it."""
        least, greatest = self.ratio
        fill = {"random": "noise", "color": "color"}.get(str(self.value), "value")
        value: Any = (0.0, 0.0, 0.0) if isinstance(self.value, str) else self.value
        scale: Any = self.scale
        count: Any = self.count
        return Erasing(self.p, scale, (math.log(least), math.log(greatest)), count, fill, value)


def _values(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("random", "color"):
            raise ValueError(
                f"RandomErasing.value must be one or three numbers, 'random' or 'color'. Found: {value!r}."
            )
        return value
    values = value if isinstance(value, Sequence) else (value,) * 3
    return arguments.floats("RandomErasing.value", values, 3)


def _counts(count: Any) -> tuple[int, int]:
    least, greatest = count if isinstance(count, Sequence) else (count, count)
    for number in (least, greatest):
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"RandomErasing.count must be an int or two. Found: {count!r}.")
    if not 1 <= least <= greatest <= _MOST:
        raise ValueError(f"RandomErasing.count must be 1 <= least <= greatest <= {_MOST}. Found: {count!r}.")
    return least, greatest


def _add(draft: Draft, spec: RandomErasing, strict: bool) -> Draft:
    if draft.stage >= Stage.ERASED:
        raise misplaced(spec)
    if draft.plan.dtype == "uint8":
        whole = not isinstance(spec.value, str) and all(
            value in range(256)
            for value in spec.value  # type: ignore[union-attr]
        )
        if not whole:
            raise Misplaced(
                f"{spec!r} fills uint8 pictures with what uint8 does not hold: put ToDtype or Normalize "
                "before it."
            )
    return draft.then(Stage.ERASED, erase=spec.planned)


def _of_torchvision(item: Any) -> tuple[RandomErasing]:
    value = item.value
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = float(value[0])
    return (
        RandomErasing(item.p, tuple(item.scale), tuple(item.ratio), "random" if value is None else value),
    )


def _of_timm(item: Any) -> tuple[RandomErasing]:
    value = "random" if item.per_pixel else "color" if item.rand_color else 0.0
    low, high = item.log_aspect_ratio
    return (
        RandomErasing(
            item.probability,
            (item.min_area, item.max_area),
            (math.exp(low), math.exp(high)),
            value,
            (item.min_count, item.max_count),
        ),
    )


OPERATION = Operation(
    RandomErasing,
    _add,
    {"RandomErasing": _of_torchvision, "timm.data.random_erasing.RandomErasing": _of_timm},
)
