"""Some pictures with fewer bits."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "RandomPosterize"]


@dataclass(frozen=True)
class RandomPosterize:
    """With probability ``p``, in [0, 1], keep only the upper ``bits``, in [1, 8], of each value: Pillow's
    ``ImageOps.posterize``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int):
            raise TypeError(f"RandomPosterize.bits must be an int in [1, 8]. Found: {self.bits!r}.")
        if not 1 <= self.bits <= 8:
            raise ValueError(f"RandomPosterize.bits must be in [1, 8]. Found: {self.bits}.")
        set_field(self, "p", arguments.probability("RandomPosterize.p", self.p))


def _add(draft: Draft, spec: RandomPosterize, strict: bool) -> Draft:
    return pixels(draft, spec, "posterize", spec.p, float(spec.bits))


OPERATION = Operation(
    RandomPosterize, _add, {"RandomPosterize": lambda item: (RandomPosterize(item.bits, item.p),)}
)
