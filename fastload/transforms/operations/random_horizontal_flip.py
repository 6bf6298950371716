"""The picture mirrored, or not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    misplaced,
    pixels,
    set_field,
)
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomHorizontalFlip"]


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """The picture mirrored left to right with probability ``p``, in [0, 1].

    Raises:
        ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomHorizontalFlip.p", self.p))


def _add(draft: Draft, spec: RandomHorizontalFlip, strict: bool) -> Draft:
    """At any stage: the core's is the last thing done to the geometry, which equals one at any place where
    no pixels were moved."""
    if draft.moved:
        return pixels(draft, spec, "horizontal_flip", spec.p)
    if draft.flipped:
        raise misplaced(spec)
    use = GeometryUse("horizontal_flip", (spec.p,), keeps_size=True, drawn=0.0 < spec.p < 1.0)
    return replace(draft.then(draft.stage, geometry=(*draft.plan.geometry, use)), flipped=True)


OPERATION = Operation(
    RandomHorizontalFlip, _add, {"RandomHorizontalFlip": lambda item: (RandomHorizontalFlip(item.p),)}
)
