"""Objects dropped whose boxes are too small, with all that is said of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.of_objects import with_objects
from fastload.transforms.operations.operation import Draft, Operation, set_field

__all__ = ["OPERATION", "SanitizeBoundingBoxes"]

_LABELS = "default"


@dataclass(frozen=True)
class SanitizeBoundingBoxes:
    """Drop objects of whose boxes less is left than ``min_size`` pixels of width and height, or ``min_area``
    of both, or whose boxes reach over the picture's border. Crops and what moves pixels cut boxes off there;
    where nothing of these stands before it, put :class:`ClampBoundingBoxes` before it to keep what reaches
    over the border of the stored picture. It may stand anywhere: boxes are looked at as they are there.

    An object leaves all fields that are of its boxes: labels, areas, keypoints, outlines, masks.

    Args:
        boxes: the field, where the dataset has several of boxes.
        labels_getter: torchvision's way to say which labels follow: the dataset says it here.

    Raises:
        ValueError: a number below 1, or another ``labels_getter``.
    """

    min_size: float = 1.0
    min_area: float = 1.0
    labels_getter: Any = _LABELS
    boxes: str | None = None

    def __post_init__(self) -> None:
        for name in ("min_size", "min_area"):
            (number,) = arguments.floats(f"SanitizeBoundingBoxes.{name}", (getattr(self, name),), 1)
            if number < 1:
                raise ValueError(f"SanitizeBoundingBoxes.{name} must be at least 1. Found: {number}.")
            set_field(self, name, number)
        if self.labels_getter != _LABELS:
            raise ValueError(
                "SanitizeBoundingBoxes.labels_getter must be 'default': which fields follow the boxes is "
                f"said by the dataset ('labels of boxes'), or by objects=. Found: {self.labels_getter!r}."
            )


def _add(draft: Draft, spec: SanitizeBoundingBoxes, strict: bool) -> Draft:
    before = draft.plan.objects
    again = before is not None and before.inside  # nothing but flips stands between
    least = (before.min_size, before.min_area) if before is not None and again else (0.0, 0.0)
    return with_objects(
        draft,
        spec,
        clip=True,
        drop=True,
        inside=True,
        min_size=max(spec.min_size, least[0]),
        min_area=max(spec.min_area, least[1]),
        boxes=spec.boxes,
        closed=True,
        needed=True,
    )


def _of_torchvision(item: Any) -> tuple[SanitizeBoundingBoxes]:
    area = getattr(item, "min_area", 1.0)  # releases before 0.20 have none
    return (SanitizeBoundingBoxes(item.min_size, area, item.labels_getter),)


OPERATION = Operation(SanitizeBoundingBoxes, _add, {"SanitizeBoundingBoxes": _of_torchvision})
