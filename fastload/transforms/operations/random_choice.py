"""One of several operations on pixels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.group import as_parts, uses_of
from fastload.transforms.operations.operation import Draft, Operation, set_field, use_of_pixels
from fastload.transforms.plan import PixelUse

__all__ = ["OPERATION", "RandomChoice"]


@dataclass(frozen=True)
class RandomChoice:
    """Apply one of ``transforms``, drawn for each sample; each of them may be a ``Compose``.

    Args:
        transforms: as :class:`RandomApply`'s.
        p: their weights, at least 0, not all of them 0; None: all the same.

    Raises:
        TypeError: an element is not such a transform.
        ValueError: the list is empty, or other weights.
    """

    transforms: Iterable[Any]
    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        parts = as_parts("RandomChoice", self.transforms)
        set_field(self, "transforms", parts)
        if self.p is None:
            return
        weights = arguments.floats("RandomChoice.p", self.p, len(parts))
        if min(weights) < 0 or sum(weights) <= 0:
            raise ValueError(
                f"RandomChoice.p must be weights of at least 0, not all of them 0. Found: {self.p!r}."
            )
        set_field(self, "p", weights)


def _add(draft: Draft, spec: RandomChoice, strict: bool) -> Draft:
    parts = uses_of(draft, spec, strict)
    weights = (1.0,) * len(parts) if spec.p is None else tuple(spec.p)
    return use_of_pixels(draft, spec, PixelUse("choice", 1.0, weights, parts))


def _of_torchvision(item: Any) -> tuple[RandomChoice]:
    weights = getattr(item, "probabilities", None) or item.p  # of v2, of v1
    return (RandomChoice(tuple(item.transforms), weights),)


OPERATION = Operation(RandomChoice, _add, {"RandomChoice": _of_torchvision})
