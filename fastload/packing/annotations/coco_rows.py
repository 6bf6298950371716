"""COCO's values as fields of a sample, and back as the JSON that they were."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.annotations.coco_file import ANNOTATIONS, IMAGES, CocoFile
from fastload.packing.json_stream import value_of
from fastload.sample.fields import Array, Boxes, Image, Json, Keypoints, Kind, Labels, Polygons, Scalar, Texts
from fastload.sample.schema import Field, Schema
from fastload.sample.values import MOST_COORDINATE, decode_rle, encode_rle, json_bytes

# ---- COCO's annotations from the values of fields ---------------------------------------------------
# Unpacking writes these, and packing compares with them, to keep whatever the fields cannot say.

Forms = Mapping[str, bool]  # see coco_file.Facts.forms


def annotation_of(values: Mapping[str, Any], image_id: int, forms: Forms) -> dict[str, Any]:
    """Return an object's annotation.

    Args:
        values: one row of the fields, by COCO's names, as far as the set has them.
        image_id: the id of its picture.
        forms: how the file writes numbers and areas.
    """
    annotation: dict[str, Any] = {"image_id": image_id}
    for key in ("id", "category_id"):
        if values.get(key) is not None:
            annotation[key] = values[key]
    annotation["bbox"] = _numbers(values["bbox"], "bbox" in forms)
    if "area" in values:
        annotation["area"] = _numbers(np.asarray([values["area"]]), "area" in forms)[0]
    if "iscrowd" in values:
        annotation["iscrowd"] = int(values["iscrowd"])
    if "segmentation" in values:
        annotation["segmentation"] = _written_segmentation(values["segmentation"], forms)
    if "keypoints" in values:
        points = np.asarray(values["keypoints"])
        annotation["keypoints"] = _numbers(points.reshape(-1), "keypoints" in forms)
        annotation["num_keypoints"] = int((points[:, 2] > 0).sum())
    return annotation


def caption_of(text: str, number: int | None, image_id: int) -> dict[str, Any]:
    """Return a caption's annotation."""
    return {"image_id": image_id, "caption": text, **({} if number is None else {"id": number})}


def image_of(number: int, file_name: str) -> dict[str, Any]:
    """Return an image's entry in the list of images."""
    return {"id": number, "file_name": file_name}


def kept_apart(wanted: Mapping[str, Any], made: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return what :func:`restored` needs to turn ``made`` into ``wanted``: other values, and keys to drop."""
    other = {key: value for key, value in wanted.items() if key not in made or not _is_same(value, made[key])}
    return other, sorted(key for key in made if key not in wanted)


def restored(made: Mapping[str, Any], other: Mapping[str, Any], without: list[str]) -> dict[str, Any]:
    """Return what :func:`kept_apart` was given first."""
    return {key: value for key, value in {**made, **other}.items() if key not in without}


def _is_same(one: Any, other: Any) -> bool:
    """Whether values are equal and of equal types: 1 is neither 1.0 nor true."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return all(_is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        kinds = list(map(type, one))
        if kinds != list(map(type, other)):
            return False
        return not {list, dict}.intersection(kinds) or all(map(_is_same, one, other))
    return True


def _numbers(values: Any, whole: bool) -> list[int | float]:
    """Return numbers in their shortest form, by their dtype; ``whole``: integers are written as such."""
    is_short = values.dtype == np.float32
    numbers = [float(str(number)) for number in values] if is_short else values.tolist()
    return [int(n) if whole and n.is_integer() else n for n in numbers] if whole else numbers


def _written_segmentation(value: Any, forms: Forms) -> Any:
    if isinstance(value, Mapping):
        runs = list(value["counts"])
        return {"size": list(value["size"]), "counts": _letters(runs) if "letters" in forms else runs}
    return [_numbers(np.asarray(polygon).reshape(-1), "segmentation" in forms) for polygon in value]


def _letters(runs: list[int]) -> str:
    """Return run lengths as COCO's letters, which outlines.py reads: from the fourth on the difference to the
    run two before, five bits per letter, lowest first, bit 32 if more follow, counted from 48."""
    letters = []
    for place, run in enumerate(runs):
        number = run - runs[place - 2] if place > 2 else run
        while True:
            bits = number & 0x1F
            number >>= 5
            more = number != (-1 if bits & 0x10 else 0)
            letters.append(chr(bits + (32 if more else 0) + 48))
            if not more:
                break
    return "".join(letters)


# ---- The values of fields from COCO's annotations ---------------------------------------------------

_NOT_HERE = -1
_INT64 = range(-(2**63), 2**63)
_MOST_FLOAT, _MOST_DOUBLE = float(np.finfo(np.float32).max), sys.float_info.max
Apart = tuple[dict[str, Any], list[str]]  # see kept_apart


def image_id_of(data: bytes) -> str:
    """Return the image_id of an annotation as text, for a message."""
    try:
        return f"{json.loads(data.decode('latin-1'))['image_id']!r:.40}"
    except (ValueError, KeyError, RecursionError):
        return "which is missing"


def named(data: bytes, order: int) -> str:
    """Return the name of an annotation for a list of those that were left out."""
    try:
        number = json.loads(data.decode("latin-1"))["id"]  # whatever else is wrong with it
    except (ValueError, KeyError, RecursionError):
        return f"annotations[{order}]"
    return f"annotation {number!r:.40}"


class CocoRows:
    """The annotations of one picture in one file, as rows.

    Args:
        before: the rows of another file of objects, which these share: an annotation with an id that they
            have, and about the same box, says more of the same object.
    """

    def __init__(self, before: CocoRows | None = None) -> None:
        self.values: list[Any] = [] if before is None else before.values
        self.other: list[tuple[int, dict[str, Any]]] = []  # row, what the fields cannot say
        self.without: list[tuple[int, list[str]]] = []  # row, keys that it does not have
        self._order = [_NOT_HERE] * len(self.values)
        self._free = {value["id"]: row for row, value in enumerate(self.values) if value.get("id", -1) >= 0}

    @property
    def order(self) -> list[int]:
        """Position of each row in the file's list; -1 if it is in another file."""
        return self._order + [_NOT_HERE] * (len(self.values) - len(self._order))

    def known(self, number: int | None, box: npt.NDArray[np.float32]) -> int:
        """Return the row of an object that another file has, else the next new row.

        Files that were numbered apart use the same ids for different objects: their boxes tell them apart.
        """
        row = self._free.get(number, -1) if number is not None else -1
        return row if row >= 0 and _about_same(self.values[row]["bbox"], box) else len(self.values)

    def add(self, order: int, values: Any, apart: Apart, row: int | None = None) -> None:
        """Add an annotation in that row; None: the next."""
        row = len(self.values) if row is None else row
        other, without = apart
        if other:
            json_bytes(other)  # Python takes 1e400 for a number, JSON does not
            self.other.append((row, other))
        if without:
            self.without.append((row, without))
        if row < len(self.values):
            self._free.pop(values["id"], None)
            self.values[row], self._order[row] = values, order
        else:
            self.values.append(values)
            self._order.append(order)


def _about_same(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> bool:
    """Whether two boxes (left, top, width, height) are equal or have an IoU of at least a half."""
    if np.array_equal(one, other):
        return True
    first, second = one.astype(np.float64), other.astype(np.float64)
    low = np.maximum(first[:2], second[:2])
    high = np.minimum(first[:2] + first[2:], second[:2] + second[2:])
    both = float(np.maximum(high - low, 0).prod())
    return 3 * both >= float(first[2:].prod() + second[2:].prod())


@dataclass(frozen=True)
class Objects:
    """The conversion of a file's annotations into objects.

    Args:
        keys: the keys that fields are made of.
        classes: the index of each category's id.
        points: the number of keypoints of an object.
        forms: how the file writes numbers and areas.
    """

    keys: frozenset[str]
    classes: Mapping[int, int]
    points: int
    forms: Mapping[str, bool]

    def add(self, rows: CocoRows, order: int, data: bytes, image: Mapping[str, Any]) -> None:
        """Add an annotation of an image as a row.

        Raises:
            ValueError: it cannot be packed, in words.
        """
        annotation = value_of(data)
        values = self._values(annotation, image)
        row = rows.known(values.get("id"), values["bbox"])
        if row < len(rows.values):
            values |= rows.values[row]  # the first file's values win
        expected = annotation_of(
            {key: values[key] for key in (*self.keys, "bbox")}, annotation["image_id"], self.forms
        )
        rows.add(order, values, kept_apart(annotation, expected), row)

    def _values(self, annotation: Mapping[str, Any], image: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {"bbox": _inside(_box(annotation.get("bbox")), image)}
        number = annotation.get("id")
        if "id" in self.keys:
            values["id"] = number if _is_integer(number) else -1
        if "category_id" in self.keys:
            values["category_id"] = self._category(annotation.get("category_id"))
        if "area" in self.keys:
            box = values["bbox"].astype(np.float64)
            values["area"] = _area(annotation["area"]) if "area" in annotation else float(box[2] * box[3])
        if "iscrowd" in self.keys:
            values["iscrowd"] = _crowd(annotation.get("iscrowd", 0))
        if "segmentation" in self.keys:
            values["segmentation"] = _segmentation(annotation.get("segmentation", []), image)
        if "keypoints" in self.keys:
            values["keypoints"] = self._keypoints(annotation.get("keypoints"))
        return values

    def _category(self, number: Any) -> int:
        if not _is_integer(number) or number not in self.classes:
            raise ValueError(f"category_id {number!r:.40} is not one of the categories")
        return int(number)

    def _keypoints(self, value: Any) -> npt.NDArray[np.float32]:
        if value is None:
            return np.zeros((self.points, 3), np.float32)
        numbers = _floats(value, "keypoints", _MOST_FLOAT)
        if numbers.size != 3 * self.points:
            raise ValueError(f"keypoints must have {3 * self.points} numbers. Found: {numbers.size}")
        points = numbers.reshape(-1, 3)
        if (points[:, 2] < 0).any():
            raise ValueError(f"keypoints must have visibilities of at least 0. Found: {points[:, 2].min():g}")
        return points.astype(np.float32)


@dataclass(frozen=True)
class Captions:
    """The conversion of a file's annotations into texts."""

    has_ids: bool

    def add(self, rows: CocoRows, order: int, data: bytes, image: Mapping[str, Any]) -> None:
        """Add an annotation of an image as a row.

        Raises:
            ValueError: it cannot be packed, in words.
        """
        annotation = value_of(data)
        text, number = annotation.get("caption"), annotation.get("id")
        if not isinstance(text, str):
            raise ValueError(f"caption must be a text. Found: {text!r:.40}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("caption has half of a UTF-16 pair, which is not text") from None
        number = (number if _is_integer(number) else -1) if self.has_ids else None
        expected = caption_of(text, number, annotation["image_id"])
        rows.add(order, {"caption": text, "id": number}, kept_apart(annotation, expected))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT64


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _floats(value: Any, what: str, most: float) -> npt.NDArray[np.float64]:
    if not isinstance(value, list) or not {int, float}.issuperset(map(type, value)):
        raise ValueError(f"{what} must be a list of numbers. Found: {value!r:.60}")
    try:
        numbers = np.array(value, np.float64)
    except OverflowError:
        raise ValueError(
            f"{what} has a number that no float holds. Found: {max(value, key=abs)!r:.40}"
        ) from None
    if not np.abs(numbers).max(initial=0) <= most:  # NaN, too
        far = ~(np.abs(numbers) <= most)
        raise ValueError(f"{what} must be finite, and not too large. Found: {numbers[far][0]}")
    return numbers


def _box(value: Any) -> npt.NDArray[np.float32]:
    if value is None:
        raise ValueError("it has no bbox")
    box = _floats(value, "bbox", _MOST_FLOAT)
    if box.size != 4:
        raise ValueError(f"bbox must be left, top, width and height. Found: {value!r:.60}")
    if box[2] <= 0 or box[3] <= 0:
        raise ValueError(f"bbox has no area: width {value[2]}, height {value[3]}")
    return box.astype(np.float32)


def _inside(box: npt.NDArray[np.float32], image: Mapping[str, Any]) -> npt.NDArray[np.float32]:
    """Return a box (left, top, width, height) that has at least an edge in its picture, in pixels."""
    width, height = image.get("width"), image.get("height")
    if not (_is_number(width) and _is_number(height)):
        return box
    left, top, right, bottom = *box[:2], *(box[:2] + box[2:])
    if left > width or top > height or right < 0 or bottom < 0:
        raise ValueError(
            f"bbox must be inside of its picture of {width}x{height} pixels, at least in part. Found: "
            f"{[*map(float, box)]}, as left, top, width and height"
        )
    return box


def _area(value: Any) -> float:
    if not _is_number(value) or not abs(value) < math.inf or abs(value) > _MOST_DOUBLE:
        raise ValueError(f"area must be a finite number. Found: {value!r:.40}")
    return float(value)


def _crowd(value: Any) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError(f"iscrowd must be 0 or 1. Found: {value!r:.40}")
    return bool(value)


def _segmentation(value: Any, image: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return _run_lengths(value, image)
    if not isinstance(value, list):
        raise ValueError(f"segmentation must be a list of polygons, or run lengths. Found: {value!r:.60}")
    return [_polygon(polygon) for polygon in value]


def _polygon(value: Any) -> npt.NDArray[np.float64]:
    numbers = _floats(value, "a polygon", MOST_COORDINATE)
    if numbers.size % 2 or numbers.size < 6:
        raise ValueError(
            f"a polygon must have x and y of at least three points. Found: {numbers.size} numbers"
        )
    points = numbers.reshape(-1, 2)
    if (points == points[0]).all():
        raise ValueError(f"a polygon's points are all the same, {points[0].tolist()}")
    return points


def _run_lengths(value: dict[str, Any], image: Mapping[str, Any]) -> dict[str, list[int]]:
    try:
        (area,) = decode_rle(encode_rle([value], "segmentation"))
    except TypeError as error:
        raise ValueError(str(error)) from None
    wanted = [image.get("height"), image.get("width")]
    if None not in wanted and area["size"] != wanted:
        raise ValueError(
            f"segmentation is of a picture of {area['size']}, height and width, its image's are {wanted}"
        )
    return area


# ---- The fields of a COCO set, and how annotations become their values ------------------------------

#: What a file has; "captions" is also a field's name.
OBJECTS, CAPTIONS, SEGMENTS = "objects", "captions", "segments"
BOXES = "boxes"
_NUMBERS = Array("int64", (None,))
#: COCO's keys of objects, and the fields that they become.
FIELDS = {
    "category_id": "labels",
    "id": "ids",
    "area": "area",
    "iscrowd": "iscrowd",
    "segmentation": "masks",
    "keypoints": "keypoints",
}


@dataclass(frozen=True)
class CocoPart:
    """One of a set's JSONs."""

    what: str  # OBJECTS, CAPTIONS or SEGMENTS
    number: int  # among those of the same ``what``, from 1 on
    file: CocoFile

    @property
    def name(self) -> str:
        """Its name in fields and in the rest."""
        return self.what if self.number == 1 else f"{self.what}_{self.number}"

    @property
    def order(self) -> str:
        """The field of its annotations' positions."""
        name = "caption_order" if self.what == CAPTIONS else "order"
        return name if self.number == 1 else f"{name}_{self.number}"


def values_of(part: CocoPart, rows: CocoRows) -> dict[str, Any]:
    """Return the captions of one picture, as values of fields."""
    values: dict[str, Any] = {CAPTIONS: [row["caption"] for row in rows.values]}
    if part.file.facts.keys["id"]:
        values["caption_ids"] = [row["id"] for row in rows.values]
    return values | {part.order: rows.order}


@dataclass(frozen=True)
class ReadAs:
    """The conversion of a set's objects in its files into values of fields."""

    readers: Mapping[str, Objects]  # by the parts' names
    keys: frozenset[str]  # those that any of them has
    classes: Mapping[int, int]  # the index of each category's id
    points: int  # the number of keypoints of an object

    def values(self, rows: Mapping[CocoPart, CocoRows]) -> dict[str, Any]:
        """Return the fields of one picture."""
        fields: dict[str, Any] = {part.order: of_part.order for part, of_part in rows.items()}
        all_rows = next(iter(rows.values())).values
        fields[BOXES] = _stacked([row["bbox"] for row in all_rows], (4,))
        for key, name in FIELDS.items():
            if key in self.keys:
                column = [row[key] if key in row else self._none(key, row) for row in all_rows]
                if key == "category_id":
                    column = [self.classes.get(number, -1) for number in column]
                fields[name] = _stacked(column, (self.points, 3)) if key == "keypoints" else column
        return fields

    def _none(self, key: str, values: Mapping[str, Any]) -> Any:
        """Return an object's value of a key that no file gives it."""
        if key == "keypoints":
            return np.zeros((self.points, 3), np.float32)
        if key == "area":
            return float(values["bbox"][2].astype(np.float64) * values["bbox"][3].astype(np.float64))
        return {"category_id": None, "id": -1, "iscrowd": False, "segmentation": []}[key]


def _stacked(rows: Sequence[Any], shape: tuple[int, ...]) -> Any:
    return np.stack(rows) if rows else np.zeros((0, *shape), np.float32)


def read_as(parts: Sequence[CocoPart]) -> ReadAs:
    """Return how the annotations of a set's objects become values."""
    files = [part.file for part in parts if part.what == OBJECTS]
    categories = joined_categories(files)
    classes = {category["id"]: index for index, category in enumerate(categories)}
    points = max(map(_points, files), default=0)
    readers = {}
    for part in parts:
        if part.what == OBJECTS:
            own = {category["id"]: classes[category["id"]] for category in categories_of(part.file)}
            readers[part.name] = Objects(_keys_of(part.file), own, points, part.file.facts.forms)
    keys = frozenset[str]().union(*(reader.keys for reader in readers.values()))
    return ReadAs(readers, keys, classes, points)


def _keys_of(file: CocoFile) -> frozenset[str]:
    return frozenset(key for key in FIELDS if file.facts.keys[key])


def joined_categories(files: Sequence[CocoFile]) -> list[dict[str, Any]]:
    """Return the categories of all files, the first one's first; several entries of one are merged.

    Raises:
        PackError: categories are invalid, or have other names elsewhere.
    """
    merged: dict[int, dict[str, Any]] = {}
    for file in files:
        for category in categories_of(file):
            known = merged.setdefault(category["id"], category)
            if known["name"] != category["name"]:
                raise PackError(
                    f"{file.path}: category {category['id']} is {category['name']!r}, which files before it "
                    f"({files[0].path}) call {known['name']!r}. Pack them apart: --annotations FILE."
                )
            merged[category["id"]] = {**category, **known}
    return list(merged.values())


def schema_of(
    parts: Sequence[CocoPart],
    folder: str,
    own_images: frozenset[str],
    more: Sequence[Field],
    forms: Mapping[str, Mapping[str, bool]],
) -> Schema:
    """Return the fields of a set, by what its files have.

    Args:
        parts: its files.
        folder: the name of the folder of the pictures.
        own_images: names of the parts whose images are not the set's.
        more: further fields.
        forms: how the parts of segments write their numbers, by name.

    Raises:
        PackError: categories are invalid.
    """
    objects = [part for part in parts if part.what == OBJECTS]
    files = [
        _told(part, len(objects) > 1, forms.get(part.name, part.file.facts.forms))
        | ({"own_images": True} if part.name in own_images else {})
        for part in parts
    ]
    try:
        return _schema(parts, {"layout": "coco", "folder": folder, "files": files}, more)
    except ValueError as error:
        raise PackError(f"{', '.join(str(part.file.path) for part in parts)}: {error}") from None


def _schema(parts: Sequence[CocoPart], source: Mapping[str, Any], more: Sequence[Field]) -> Schema:
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
    labels = Labels(tuple(c["name"] for c in categories), tuple(c["id"] for c in categories))
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
    used = [key for key in kinds if any(file.facts.keys[key] for file in files)]
    fields = [Field(BOXES, Boxes("xywh"))]
    for key in used:
        source = {"categories": categories} if key == "category_id" else None
        fields.append(Field(FIELDS[key], kinds[key], BOXES, source))
    return fields


def _told(part: CocoPart, is_one_of_several: bool, forms: Mapping[str, bool]) -> dict[str, Any]:
    """Return what unpacking must know of a file besides the fields."""
    file = part.file
    top = {key: value for key, value in file.top.items() if key not in (IMAGES, ANNOTATIONS)}
    facts = {"name": file.path.name, "has": part.what, "top": top, "forms": forms}
    if part.what == SEGMENTS:
        top.pop("categories", None)  # the labels have them
    if part.what == OBJECTS:
        if is_one_of_several:  # others have other keys and categories
            facts |= {"part": part.name, "order": part.order, "keys": sorted(_keys_of(file))}
        elif file.facts.keys["category_id"]:
            top.pop("categories", None)  # the labels have them
    return facts if ANNOTATIONS in file.top else {**facts, "no_annotations": True}


def categories_of(file: CocoFile) -> list[dict[str, Any]]:
    """Return the categories, checked.

    Raises:
        PackError: they are invalid.
    """
    categories = file.top.get("categories", [])
    if not isinstance(categories, list) or not all(isinstance(entry, dict) for entry in categories):
        raise PackError(f"{file.path}: 'categories' must be a list of objects.")
    ids = [entry.get("id") for entry in categories]
    for entry in categories:
        number, name = entry.get("id"), entry.get("name")
        if isinstance(number, bool) or not isinstance(number, int) or ids.count(number) > 1:
            raise PackError(
                f"{file.path}: each category must have an 'id' of its own, an integer. Found: {entry!r:.80}"
            )
        if not isinstance(name, str):
            raise PackError(f"{file.path}: each category must have a 'name'. Found: {entry!r:.80}")
    return categories


def _points(file: CocoFile) -> int:
    """Return an object's number of keypoints: as its category names them, else as the annotations have."""
    if not file.facts.keys["keypoints"]:
        return 0
    named = [len(one["keypoints"]) for one in categories_of(file) if isinstance(one.get("keypoints"), list)]
    return max(named, default=0) or file.facts.points // 3


def _pairs(categories: Sequence[Mapping[str, Any]], points: int) -> tuple[tuple[int, int], ...]:
    """Return points that change places in a mirror, by their names: left_eye and right_eye."""
    for category in categories:
        names = category.get("keypoints")
        if isinstance(names, list) and len(names) == points:
            other = {"left": "right", "right": "left"}
            mirrored = [
                "_".join(other.get(part, part) for part in str(name).split("_")) if name else ""
                for name in names
            ]
            pairs = [(at, names.index(name)) for at, name in enumerate(mirrored) if name in names]
            return tuple((first, second) for first, second in pairs if first < second)
    return ()
