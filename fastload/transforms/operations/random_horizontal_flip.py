"""The picture mirrored, or not."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, flip, set_field

__all__ = ["OPERATION", "RandomHorizontalFlip"]


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirror the picture left to right with probability ``p``, in [0, 1].

    Raises:
        ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomHorizontalFlip.p", self.p))


def _add(draft: Draft, spec: RandomHorizontalFlip, strict: bool) -> Draft:
    return flip(draft, spec, "horizontal_flip")


OPERATION = Operation(
    RandomHorizontalFlip, _add, {"RandomHorizontalFlip": lambda item: (RandomHorizontalFlip(item.p),)}
)
