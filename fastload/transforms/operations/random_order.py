"""Several operations on pixels in an order that is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastload.transforms.operations.group import as_parts, uses_of
from fastload.transforms.operations.operation import Draft, Operation, set_field, use_of_pixels
from fastload.transforms.plan import PixelUse

__all__ = ["OPERATION", "RandomOrder"]


@dataclass(frozen=True)
class RandomOrder:
    """Apply all of ``transforms``, in an order that is drawn for each sample.

    Args:
        transforms: as :class:`RandomApply`'s.

    Raises:
        TypeError: an element is not such a transform.
        ValueError: the list is empty.
    """

    transforms: Iterable[Any]

    def __post_init__(self) -> None:
        set_field(self, "transforms", as_parts("RandomOrder", self.transforms))


def _add(draft: Draft, spec: RandomOrder, strict: bool) -> Draft:
    return use_of_pixels(draft, spec, PixelUse("order", 1.0, (), uses_of(draft, spec, strict)))


OPERATION = Operation(RandomOrder, _add, {"RandomOrder": lambda item: (RandomOrder(tuple(item.transforms)),)})
