"""Boxes cut off at the picture's border."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms.operations.of_objects import with_objects
from fastload.transforms.operations.operation import Draft, Operation

__all__ = ["OPERATION", "ClampBoundingBoxes"]


@dataclass(frozen=True)
class ClampBoundingBoxes:
    """Cut boxes off where the picture ends: by each crop, by each operation that moves pixels, and where it
    stands. What lies outside altogether has no width or height then."""


def _add(draft: Draft, spec: ClampBoundingBoxes, strict: bool) -> Draft:
    objects = draft.plan.objects
    sanitized = objects is not None and objects.inside  # nothing that reaches out is left
    return with_objects(draft, spec, clip=True, clamp=not sanitized, closed=True)


def _of_torchvision(item: Any) -> tuple[ClampBoundingBoxes]:
    mode = getattr(item, "clamping_mode", "auto")
    if mode not in ("auto", "soft", "hard"):  # which differ for rotated boxes alone
        raise ValueError(f"its clamping_mode is {mode!r}, by which nothing is cut off")
    return (ClampBoundingBoxes(),)


OPERATION = Operation(ClampBoundingBoxes, _add, {"ClampBoundingBoxes": _of_torchvision})
