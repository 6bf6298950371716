"""Operations on a sample's objects: boxes are clamped, converted or sanitized, crowds dropped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, misplaced, set_field, with_objects

# ---- Clamping boxes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClampBoundingBoxes:
    """Clamp boxes to the picture: at each crop, at each operation that moves pixels, and at this place in the
    chain. Boxes that lie entirely outside get zero width or height."""


def _add_clamp_bounding_boxes(draft: Draft, spec: ClampBoundingBoxes, strict: bool) -> Draft:
    objects = draft.plan.objects
    sanitized = objects is not None and objects.inside  # nothing that reaches out is left
    return with_objects(draft, spec, clip=True, clamp=not sanitized, closed=True)


def _clamp_bounding_boxes_of_torchvision(item: Any) -> tuple[ClampBoundingBoxes]:
    mode = getattr(item, "clamping_mode", "auto")
    if mode not in ("auto", "soft", "hard"):  # which differ for rotated boxes alone
        raise ValueError(f"its clamping_mode is {mode!r}, by which nothing is cut off")
    return (ClampBoundingBoxes(),)


CLAMP_BOUNDING_BOXES = Operation(
    ClampBoundingBoxes,
    _add_clamp_bounding_boxes,
    {"ClampBoundingBoxes": _clamp_bounding_boxes_of_torchvision},
)


# ---- Dropping crowds --------------------------------------------------------------------------------


@dataclass(frozen=True)
class DropCrowds:
    """Drop the objects that ``field`` marks: COCO's crowds, which nobody trains on.

    Args:
        field: the name of an array of bools with a row for each box.

    Raises:
        TypeError: ``field`` is not a str.
    """

    field: str = "iscrowd"

    def __post_init__(self) -> None:
        if not isinstance(self.field, str):
            raise TypeError(f"DropCrowds.field must be the name of a field. Found: {self.field!r}.")


def _add_drop_crowds(draft: Draft, spec: DropCrowds, strict: bool) -> Draft:
    return with_objects(draft, spec, without=spec.field, needed=True)


DROP_CROWDS = Operation(DropCrowds, _add_drop_crowds, {})


# ---- Dropping small objects -------------------------------------------------------------------------

_LABELS = "default"


@dataclass(frozen=True)
class SanitizeBoundingBoxes:
    """Drop objects whose boxes are narrower or lower than ``min_size`` pixels, smaller than ``min_area``
    pixels, or reach over the picture's border. Crops and operations that move pixels clamp boxes to it; if
    there are none before, put :class:`ClampBoundingBoxes` first to keep boxes that reach over the border of
    the stored picture. It may stand anywhere in a chain, and judges boxes as they are there.

    A dropped object leaves all fields that belong to the boxes: labels, areas, keypoints, outlines, masks.

    Args:
        boxes: the field, if the dataset has several of boxes.
        labels_getter: only torchvision's default: the dataset defines which labels follow the boxes.

    Raises:
        ValueError: a number is below 1, or ``labels_getter`` is not the default.
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
                "SanitizeBoundingBoxes.labels_getter must be 'default': the dataset ('labels of boxes') or "
                f"Fields.rows_of defines which fields follow the boxes. Found: {self.labels_getter!r}."
            )


def _add_sanitize_bounding_boxes(draft: Draft, spec: SanitizeBoundingBoxes, strict: bool) -> Draft:
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


def _sanitize_bounding_boxes_of_torchvision(item: Any) -> tuple[SanitizeBoundingBoxes]:
    area = getattr(item, "min_area", 1.0)  # releases before 0.20 have none
    return (SanitizeBoundingBoxes(item.min_size, area, item.labels_getter),)


SANITIZE_BOUNDING_BOXES = Operation(
    SanitizeBoundingBoxes,
    _add_sanitize_bounding_boxes,
    {"SanitizeBoundingBoxes": _sanitize_bounding_boxes_of_torchvision},
)


# ---- Formats of boxes -------------------------------------------------------------------------------

_FORMATS = ("xyxy", "xywh", "cxcywh")


@dataclass(frozen=True)
class ConvertBoundingBoxFormat:
    """Deliver boxes in another format: torchvision's ``ConvertBoundingBoxFormat``. Relative boxes stay
    relative.

    Args:
        format: "xyxy", "xywh" or "cxcywh", in any case, or torchvision's ``BoundingBoxFormat``.

    Raises:
        ValueError: the format is not one of these.
    """

    format: Any

    def __post_init__(self) -> None:
        word = getattr(self.format, "value", self.format)
        name = word.lower() if isinstance(word, str) else None
        if name not in _FORMATS:
            raise ValueError(
                f"ConvertBoundingBoxFormat.format must be one of {', '.join(_FORMATS)}. Found: "
                f"{self.format!r}."
            )
        set_field(self, "format", name)


def _add_convert_bounding_box_format(draft: Draft, spec: ConvertBoundingBoxFormat, strict: bool) -> Draft:
    if draft.in_group:
        raise misplaced(spec)
    return replace(draft, plan=replace(draft.plan, box_format=spec.format))


CONVERT_BOUNDING_BOX_FORMAT = Operation(
    ConvertBoundingBoxFormat,
    _add_convert_bounding_box_format,
    {"ConvertBoundingBoxFormat": lambda item: (ConvertBoundingBoxFormat(item.format),)},
)
