"""Some pictures sharper, or less sharp."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "RandomAdjustSharpness"]


@dataclass(frozen=True)
class RandomAdjustSharpness:
    """With probability ``p``, in [0, 1], apply Pillow's ``ImageEnhance.Sharpness`` by a factor of at least 0:
    0 smooths, 1 changes nothing, 2 sharpens.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        where = "RandomAdjustSharpness"
        (factor,) = arguments.floats(f"{where}.sharpness_factor", (self.sharpness_factor,), 1)
        if factor < 0:
            raise ValueError(
                f"{where}.sharpness_factor must be at least 0. Found: {self.sharpness_factor!r}."
            )
        set_field(self, "sharpness_factor", factor)
        set_field(self, "p", arguments.probability(f"{where}.p", self.p))


def _add(draft: Draft, spec: RandomAdjustSharpness, strict: bool) -> Draft:
    return pixels(draft, spec, "sharpness", spec.p, spec.sharpness_factor)


OPERATION = Operation(
    RandomAdjustSharpness,
    _add,
    {"RandomAdjustSharpness": lambda item: (RandomAdjustSharpness(item.sharpness_factor, item.p),)},
    pictures_only=True,
)
