"""Objects of a table's samples: of which form their boxes are, and which of them cannot be packed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastload.packing.samples.encode import Lessened
from fastload.sample.fields import Boxes, Labels
from fastload.sample.schema import Field, Schema

__all__ = ["format_of_boxes", "without_bad"]

_ENOUGH = 16  # boxes that look like corners, and none that does not, are no accident


def format_of_boxes(cells: Iterable[Sequence[Any]]) -> str | None:
    """Whether boxes are ``"xywh"``, by those of some samples; None: they may as well be corners."""
    seen = 0
    for box in (box for boxes in cells for box in boxes):
        if isinstance(box, (list, tuple)) and len(box) == 4 and None not in box:
            if box[2] < box[0] or box[3] < box[1]:
                return "xywh"
            seen += 1
    return None if seen >= _ENOUGH else "xywh"


def without_bad(sample: Mapping[str, Any], schema: Schema) -> Mapping[str, Any] | Lessened:
    """A sample without the objects whose boxes or classes are none."""
    leaders = {field.of for field in schema if field.of is not None}
    leader = next((f for f in schema if f.name in leaders and isinstance(f.kind, Boxes)), None)
    if leader is None:
        return sample
    group = [field for field in schema if leader.name in (field.name, field.of)]
    rows = [sample[field.name] for field in group]
    if not all(isinstance(values, (list, tuple)) and len(values) == len(rows[0]) for values in rows):
        return sample  # refused where it is encoded
    wrong = {}
    for number in range(len(rows[0])):
        row = {field.name: values[number] for field, values in zip(group, rows, strict=True)}
        reason = _wrong(row, group, leader)
        if reason is not None:
            wrong[number] = reason
    if not wrong:
        return sample
    kept = {
        field.name: [value for number, value in enumerate(values) if number not in wrong]
        for field, values in zip(group, rows, strict=True)
    }
    return Lessened({**sample, **kept}, [(f"object {number + 1}", why) for number, why in wrong.items()])


def _wrong(row: Mapping[str, Any], group: Sequence[Field], leader: Field) -> str | None:
    """Why an object cannot be packed; None: it can."""
    box = row[leader.name]
    numbers = isinstance(box, (list, tuple)) and all(isinstance(one, (int, float)) for one in box)
    if not numbers or len(box) != 4 or not all(map(math.isfinite, box)):
        return f"a box is four numbers. Found: {box!r:.60}"
    assert isinstance(leader.kind, Boxes)
    corners = leader.kind.format == "xyxy"
    width, height = (box[2] - box[0], box[3] - box[1]) if corners else box[2:]
    if width <= 0 or height <= 0:
        return f"its box has no area: {width:g} x {height:g}"
    for field in group:
        if isinstance(field.kind, Labels) and field.kind.classes and isinstance(row[field.name], int):
            most = len(field.kind.classes) - 1
            if not -1 <= row[field.name] <= most:
                return f"{field.name} must be from 0 to {most}. Found: {row[field.name]}"
    return None
