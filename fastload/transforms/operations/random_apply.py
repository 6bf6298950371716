"""Several operations on pixels, or none of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.group import as_parts, uses_of
from fastload.transforms.operations.operation import Draft, Operation, set_field, use_of_pixels
from fastload.transforms.plan import PixelUse

__all__ = ["OPERATION", "RandomApply"]


@dataclass(frozen=True)
class RandomApply:
    """Apply all of ``transforms``, one after the other, with probability ``p``; else none of them.

    Args:
        transforms: operations on pixels, groups of them, ``Compose``, or torchvision's objects of them.
        p: in [0, 1].

    Raises:
        TypeError: an element is not such a transform.
        ValueError: the list is empty, or ``p`` outside its range.
    """

    transforms: Iterable[Any]
    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "transforms", as_parts("RandomApply", self.transforms))
        set_field(self, "p", arguments.probability("RandomApply.p", self.p))


def _add(draft: Draft, spec: RandomApply, strict: bool) -> Draft:
    return use_of_pixels(draft, spec, PixelUse("all", spec.p, (), uses_of(draft, spec, strict)))


OPERATION = Operation(
    RandomApply, _add, {"RandomApply": lambda item: (RandomApply(tuple(item.transforms), item.p),)}
)
