"""Boxes in another format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fastload.transforms.operations.operation import Draft, Operation, misplaced, set_field

__all__ = ["OPERATION", "ConvertBoundingBoxFormat"]

_FORMATS = ("xyxy", "xywh", "cxcywh")


@dataclass(frozen=True)
class ConvertBoundingBoxFormat:
    """Deliver boxes in another format: torchvision's ``ConvertBoundingBoxFormat``. Boxes in parts of the
    picture stay in parts of it.

    Args:
        format: "xyxy", "xywh" or "cxcywh", in any case, or torchvision's ``BoundingBoxFormat``.

    Raises:
        ValueError: another one.
    """

    format: Any

    def __post_init__(self) -> None:
        given = getattr(self.format, "value", self.format)
        name = given.lower() if isinstance(given, str) else None
        if name not in _FORMATS:
            raise ValueError(
                f"ConvertBoundingBoxFormat.format must be one of {', '.join(_FORMATS)}. Found: "
                f"{self.format!r}."
            )
        set_field(self, "format", name)


def _add(draft: Draft, spec: ConvertBoundingBoxFormat, strict: bool) -> Draft:
    if draft.in_group:
        raise misplaced(spec)
    return replace(draft, plan=replace(draft.plan, box_format=spec.format))


OPERATION = Operation(
    ConvertBoundingBoxFormat,
    _add,
    {"ConvertBoundingBoxFormat": lambda item: (ConvertBoundingBoxFormat(item.format),)},
)
