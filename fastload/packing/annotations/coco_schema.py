"""Which fields a set of COCO's has, and how annotations become their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload.errors import PackError
from fastload.packing.annotations.coco_index import ANNOTATIONS, IMAGES, CocoFile
from fastload.packing.annotations.coco_values import Captions, Objects, Rows
from fastload.sample.fields import Array, Boxes, Image, Json, Keypoints, Kind, Labels, Polygons, Scalar, Texts
from fastload.sample.schema import Field, Schema

__all__ = ["BOXES", "CAPTIONS", "OBJECTS", "ReadAs", "categories_of", "read_as", "schema_of"]

OBJECTS, CAPTIONS = "objects", "captions"  # what a file has; the latter is a field's name, too
BOXES = "boxes"
_NUMBERS = Array("int64", (None,))
#: COCO's keys of objects, and the fields that become of them.
FIELDS = {
    "category_id": "labels",
    "id": "ids",
    "area": "area",
    "iscrowd": "iscrowd",
    "segmentation": "masks",
    "keypoints": "keypoints",
}


@dataclass(frozen=True)
class ReadAs:
    """How the annotations of a file become values of fields."""

    rows: Objects | Captions

    def values(self, rows: Rows) -> dict[str, Any]:
        """The fields of one picture."""
        if isinstance(self.rows, Captions):
            found: dict[str, Any] = {CAPTIONS: [one["caption"] for one in rows.values]}
            if self.rows.has_ids:
                found["caption_ids"] = [one["id"] for one in rows.values]
            return found | {"caption_order": rows.order}
        found = {BOXES: _stacked([one["bbox"] for one in rows.values], (4,)), "order": rows.order}
        for key, name in FIELDS.items():
            if key in self.rows.keys:
                column = [one[key] for one in rows.values]
                if key == "category_id":
                    column = [self.rows.classes[number] for number in column]
                found[name] = _stacked(column, (self.rows.points, 3)) if key == "keypoints" else column
        return found


def _stacked(rows: Sequence[Any], shape: tuple[int, ...]) -> Any:
    return np.stack(rows) if rows else np.zeros((0, *shape), np.float32)


def read_as(what: str, file: CocoFile) -> ReadAs:
    """How a file's annotations become values."""
    if what == CAPTIONS:
        return ReadAs(Captions(bool(file.facts.keys["id"])))
    keys = frozenset(key for key in FIELDS if file.facts.keys[key])
    classes: dict[int, int] = {one["id"]: index for index, one in enumerate(categories_of(file))}
    return ReadAs(Objects(keys, classes, _points(file), file.facts.forms))


def schema_of(files: Mapping[str, CocoFile], folder: str) -> Schema:
    """The fields of a set, by what its files have.

    Args:
        files: by what they have.
        folder: what the folder of the pictures is called.

    Raises:
        PackError: categories that are none.
    """
    told = [_told(what, file) for what, file in files.items()]
    try:
        return _schema(files, {"layout": "coco", "folder": folder, "files": told})
    except ValueError as error:
        raise PackError(f"{', '.join(str(file.path) for file in files.values())}: {error}") from None


def _schema(files: Mapping[str, CocoFile], source: Mapping[str, Any]) -> Schema:
    fields = [
        Field("image", Image(), None, source),
        Field("image_id", Scalar("int64")),
    ]
    if OBJECTS in files:
        fields += _object_fields(files[OBJECTS])
    if CAPTIONS in files:
        fields.append(Field(CAPTIONS, Texts()))
        if files[CAPTIONS].facts.keys["id"]:
            fields.append(Field("caption_ids", _NUMBERS, CAPTIONS))
        fields.append(Field("caption_order", _NUMBERS, CAPTIONS))
    return Schema((*fields, Field("rest", Json())))


def _object_fields(file: CocoFile) -> list[Field]:
    categories = categories_of(file)
    labels = Labels(tuple(one["name"] for one in categories), tuple(one["id"] for one in categories))
    kinds: dict[str, Kind] = {
        "category_id": labels,
        "id": _NUMBERS,
        "area": Array("float64", (None,)),
        "iscrowd": Array("bool", (None,)),
        "segmentation": Polygons("mixed"),
    }
    points = _points(file)
    if points:
        kinds["keypoints"] = Keypoints(points, pairs=_pairs(categories, points))
    there = [key for key in kinds if file.facts.keys[key]]
    found = [Field(BOXES, Boxes("xywh"))]
    for key in there:
        source = {"categories": categories} if key == "category_id" else None
        found.append(Field(FIELDS[key], kinds[key], BOXES, source))
    return [*found, Field("order", _NUMBERS, BOXES)]


def _told(what: str, file: CocoFile) -> dict[str, Any]:
    """What unpacking must know of a file besides the fields."""
    top = {key: value for key, value in file.top.items() if key not in (IMAGES, ANNOTATIONS)}
    if what == OBJECTS and file.facts.keys["category_id"]:
        top.pop("categories", None)  # the labels have them
    told = {"name": file.path.name, "has": what, "top": top, "forms": file.facts.forms}
    return told if ANNOTATIONS in file.top else {**told, "no_annotations": True}


def categories_of(file: CocoFile) -> list[dict[str, Any]]:
    """The categories, checked.

    Raises:
        PackError: they are none.
    """
    found = file.top.get("categories", [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise PackError(f"{file.path}: 'categories' must be a list of objects.")
    ids = [one.get("id") for one in found]
    for one in found:
        number, name = one.get("id"), one.get("name")
        if isinstance(number, bool) or not isinstance(number, int) or ids.count(number) > 1:
            raise PackError(
                f"{file.path}: each category must have an 'id' of its own, an integer. Found: {one!r:.80}"
            )
        if not isinstance(name, str):
            raise PackError(f"{file.path}: each category must have a 'name'. Found: {one!r:.80}")
    return found


def _points(file: CocoFile) -> int:
    """How many keypoints an object has: as many as its category names, else as the annotations have."""
    if not file.facts.keys["keypoints"]:
        return 0
    named = [len(one["keypoints"]) for one in categories_of(file) if isinstance(one.get("keypoints"), list)]
    return max(named, default=0) or file.facts.points // 3


def _pairs(categories: Sequence[Mapping[str, Any]], points: int) -> tuple[tuple[int, int], ...]:
    """Points that change places in a mirror, by their names: left_eye and right_eye."""
    for one in categories:
        names = one.get("keypoints")
        if isinstance(names, list) and len(names) == points:
            other = {"left": "right", "right": "left"}
            mirrored = [
                "_".join(other.get(part, part) for part in str(name).split("_")) if name else ""
                for name in names
            ]
            found = [(at, names.index(name)) for at, name in enumerate(mirrored) if name in names]
            return tuple((first, second) for first, second in found if first < second)
    return ()
