"""Which fields a set of COCO's has, and how annotations become their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload.errors import PackError
from fastload.packing.annotations.coco_index import ANNOTATIONS, IMAGES, CocoFile
from fastload.packing.annotations.coco_values import Objects, Rows
from fastload.sample.fields import Array, Boxes, Image, Json, Keypoints, Kind, Labels, Polygons, Scalar, Texts
from fastload.sample.schema import Field, Schema

__all__ = [
    "BOXES", "CAPTIONS", "OBJECTS", "SEGMENTS", "Part", "ReadAs", "categories_of", "read_as", "schema_of",
    "values_of",
]  # fmt: skip

#: What a file has; captions are a field's name, too.
OBJECTS, CAPTIONS, SEGMENTS = "objects", "captions", "segments"
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
class Part:
    """One of a set's JSONs."""

    what: str  # OBJECTS, CAPTIONS or SEGMENTS
    number: int  # of those that have the same, from 1 on
    file: CocoFile

    @property
    def name(self) -> str:
        """What the fields and the rest call it."""
        return self.what if self.number == 1 else f"{self.what}_{self.number}"

    @property
    def order(self) -> str:
        """The field of its annotations' places."""
        found = "caption_order" if self.what == CAPTIONS else "order"
        return found if self.number == 1 else f"{found}_{self.number}"


def values_of(part: Part, rows: Rows) -> dict[str, Any]:
    """The captions of one picture, as values of fields."""
    found: dict[str, Any] = {CAPTIONS: [one["caption"] for one in rows.values]}
    if part.file.facts.keys["id"]:
        found["caption_ids"] = [one["id"] for one in rows.values]
    return found | {part.order: rows.order}


@dataclass(frozen=True)
class ReadAs:
    """How the objects of a set's files become values of fields."""

    readers: Mapping[str, Objects]  # by the parts' names
    keys: frozenset[str]  # that any of them has
    classes: Mapping[int, int]  # the index of each category's id
    points: int  # how many keypoints an object has

    def values(self, rows: Mapping[Part, Rows]) -> dict[str, Any]:
        """The fields of one picture."""
        found: dict[str, Any] = {part.order: said.order for part, said in rows.items()}
        all_rows = next(iter(rows.values())).values
        found[BOXES] = _stacked([one["bbox"] for one in all_rows], (4,))
        for key, name in FIELDS.items():
            if key in self.keys:
                column = [one[key] if key in one else self._none(key, one) for one in all_rows]
                if key == "category_id":
                    column = [self.classes.get(number, -1) for number in column]
                found[name] = _stacked(column, (self.points, 3)) if key == "keypoints" else column
        return found

    def _none(self, key: str, values: Mapping[str, Any]) -> Any:
        """What an object has that no file says this of."""
        if key == "keypoints":
            return np.zeros((self.points, 3), np.float32)
        if key == "area":
            return float(values["bbox"][2].astype(np.float64) * values["bbox"][3].astype(np.float64))
        return {"category_id": None, "id": -1, "iscrowd": False, "segmentation": []}[key]


def _stacked(rows: Sequence[Any], shape: tuple[int, ...]) -> Any:
    return np.stack(rows) if rows else np.zeros((0, *shape), np.float32)


def read_as(parts: Sequence[Part]) -> ReadAs:
    """How the annotations of a set's objects become values."""
    files = [part.file for part in parts if part.what == OBJECTS]
    categories = joined_categories(files)
    classes = {one["id"]: index for index, one in enumerate(categories)}
    points = max(map(_points, files), default=0)
    readers = {}
    for part in parts:
        if part.what == OBJECTS:
            own = {one["id"]: classes[one["id"]] for one in categories_of(part.file)}
            readers[part.name] = Objects(_keys_of(part.file), own, points, part.file.facts.forms)
    keys = frozenset[str]().union(*(reader.keys for reader in readers.values()))
    return ReadAs(readers, keys, classes, points)


def _keys_of(file: CocoFile) -> frozenset[str]:
    return frozenset(key for key in FIELDS if file.facts.keys[key])


def joined_categories(files: Sequence[CocoFile]) -> list[dict[str, Any]]:
    """The categories of all files, the first one's first; what several say of one is put together.

    Raises:
        PackError: categories that are none, or that have other names elsewhere.
    """
    found: dict[int, dict[str, Any]] = {}
    for file in files:
        for one in categories_of(file):
            known = found.setdefault(one["id"], one)
            if known["name"] != one["name"]:
                raise PackError(
                    f"{file.path}: category {one['id']} is {one['name']!r}, which files before it "
                    f"({files[0].path}) call {known['name']!r}. Pack them apart: --annotations FILE."
                )
            found[one["id"]] = {**one, **known}
    return list(found.values())


def schema_of(
    parts: Sequence[Part],
    folder: str,
    own_images: frozenset[str],
    more: Sequence[Field],
    forms: Mapping[str, Mapping[str, bool]],
) -> Schema:
    """The fields of a set, by what its files have.

    Args:
        parts: its files.
        folder: what the folder of the pictures is called.
        own_images: names of the parts whose images are not the set's.
        more: further fields.
        forms: how the parts of segments write their numbers, by name.

    Raises:
        PackError: categories that are none.
    """
    objects = [part for part in parts if part.what == OBJECTS]
    told = [
        _told(part, len(objects) > 1, forms.get(part.name, part.file.facts.forms))
        | ({"own_images": True} if part.name in own_images else {})
        for part in parts
    ]
    try:
        return _schema(parts, {"layout": "coco", "folder": folder, "files": told}, more)
    except ValueError as error:
        raise PackError(f"{', '.join(str(part.file.path) for part in parts)}: {error}") from None


def _schema(parts: Sequence[Part], source: Mapping[str, Any], more: Sequence[Field]) -> Schema:
    fields = [Field("image", Image(), None, source), Field("image_id", Scalar("int64"))]
    objects = [part for part in parts if part.what == OBJECTS]
    if objects:
        fields += _object_fields([part.file for part in objects])
        fields += [Field(part.order, _NUMBERS, BOXES) for part in objects]
    for part in parts:
        if part.what == CAPTIONS:
            fields.append(Field(CAPTIONS, Texts()))
            if part.file.facts.keys["id"]:
                fields.append(Field("caption_ids", _NUMBERS, CAPTIONS))
            fields.append(Field(part.order, _NUMBERS, CAPTIONS))
    return Schema((*fields, *more, Field("rest", Json())))


def _object_fields(files: Sequence[CocoFile]) -> list[Field]:
    categories = joined_categories(files)
    labels = Labels(tuple(one["name"] for one in categories), tuple(one["id"] for one in categories))
    kinds: dict[str, Kind] = {
        "category_id": labels,
        "id": _NUMBERS,
        "area": Array("float64", (None,)),
        "iscrowd": Array("bool", (None,)),
        "segmentation": Polygons("mixed"),
    }
    points = max(map(_points, files))
    if points:
        kinds["keypoints"] = Keypoints(points, pairs=_pairs(categories, points))
    there = [key for key in kinds if any(file.facts.keys[key] for file in files)]
    found = [Field(BOXES, Boxes("xywh"))]
    for key in there:
        source = {"categories": categories} if key == "category_id" else None
        found.append(Field(FIELDS[key], kinds[key], BOXES, source))
    return found


def _told(part: Part, is_one_of_several: bool, forms: Mapping[str, bool]) -> dict[str, Any]:
    """What unpacking must know of a file besides the fields."""
    file = part.file
    top = {key: value for key, value in file.top.items() if key not in (IMAGES, ANNOTATIONS)}
    told = {"name": file.path.name, "has": part.what, "top": top, "forms": forms}
    if part.what == SEGMENTS:
        top.pop("categories", None)  # the labels have them
    if part.what == OBJECTS:
        if is_one_of_several:  # others have other keys and categories
            told |= {"part": part.name, "order": part.order, "keys": sorted(_keys_of(file))}
        elif file.facts.keys["category_id"]:
            top.pop("categories", None)  # the labels have them
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
