"""Some pictures solarised."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "RandomSolarize"]


@dataclass(frozen=True)
class RandomSolarize:
    """With probability ``p``, in [0, 1], invert the values that are not below ``threshold``: 255 - value.

    Raises:
        TypeError, ValueError: a threshold that is not a finite number, or ``p`` outside its range.
    """

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        (threshold,) = arguments.floats("RandomSolarize.threshold", (self.threshold,), 1)
        set_field(self, "threshold", threshold)
        set_field(self, "p", arguments.probability("RandomSolarize.p", self.p))


def _add(draft: Draft, spec: RandomSolarize, strict: bool) -> Draft:
    return pixels(draft, spec, "solarize", spec.p, spec.threshold)


OPERATION = Operation(
    RandomSolarize, _add, {"RandomSolarize": lambda item: (RandomSolarize(item.threshold, item.p),)}
)
