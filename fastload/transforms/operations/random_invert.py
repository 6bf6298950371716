"""Some pictures inverted."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "RandomInvert"]


@dataclass(frozen=True)
class RandomInvert:
    """With probability ``p``, in [0, 1], make the picture's negative: 255 - value.

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomInvert.p", self.p))


def _add(draft: Draft, spec: RandomInvert, strict: bool) -> Draft:
    return pixels(draft, spec, "invert", spec.p)


OPERATION = Operation(RandomInvert, _add, {"RandomInvert": lambda item: (RandomInvert(item.p),)})
