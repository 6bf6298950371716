"""The picture turned upside down, or not."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, flip, set_field

__all__ = ["OPERATION", "RandomVerticalFlip"]


@dataclass(frozen=True)
class RandomVerticalFlip:
    """Flip the picture top to bottom with probability ``p``, in [0, 1].

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomVerticalFlip.p", self.p))


def _add(draft: Draft, spec: RandomVerticalFlip, strict: bool) -> Draft:
    return flip(draft, spec, "vertical_flip")


OPERATION = Operation(
    RandomVerticalFlip, _add, {"RandomVerticalFlip": lambda item: (RandomVerticalFlip(item.p),)}
)
