"""Pixels in units of the channels' standard deviations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Misplaced,
    Operation,
    Stage,
    misplaced,
    set_field,
)

__all__ = ["OPERATION", "Normalize"]


@dataclass(frozen=True)
class Normalize:
    """Compute ``(x - mean) / std`` for each channel, as float32; uint8 values are scaled to [0, 1] first.

    Unlike torchvision's, it may stand directly after the geometric transforms: then it means
    ``(x / 255 - mean) / std``. Computed in float32 and rounded once if :class:`ToDtype` asks for less.

    Raises:
        TypeError, ValueError: not three finite numbers each, or a ``std`` of 0.
    """

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        set_field(self, "mean", arguments.floats("Normalize.mean", self.mean, 3))
        std = arguments.floats("Normalize.std", self.std, 3)
        if 0.0 in std:
            raise ValueError(f"Normalize.std must not be 0. Found: {std}.")
        set_field(self, "std", std)


def _add(draft: Draft, spec: Normalize, strict: bool) -> Draft:
    if draft.stage >= Stage.NORMALIZE:
        raise misplaced(spec)
    plan, converted = draft.plan, draft.stage == Stage.DTYPE
    if strict and plan.dtype != "float32":
        raise Misplaced("torchvision normalises float tensors, in their own dtype.")
    # After ToDtype without scale x is in [0, 255]: the same line, with mean and std in units of 255.
    unit = 255.0 if converted and not plan.scale else 1.0
    return draft.then(
        Stage.NORMALIZE,
        scale=True,
        normalize=True,
        dtype=plan.dtype if converted else "float32",
        mean=tuple(value / unit for value in spec.mean),
        std=tuple(value / unit for value in spec.std),
    )


OPERATION = Operation(
    Normalize, _add, {"Normalize": lambda item: (Normalize(item.mean, item.std),)}, makes_tensor=True
)
