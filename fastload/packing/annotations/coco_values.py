"""What COCO's annotations say, as values of fields; or why they say nothing that could be packed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.packing.annotations.coco_write import annotation_of, caption_of, kept_apart
from fastload.packing.annotations.json_stream import value_of
from fastload.sample.values import MOST_COORDINATE, decode_rle, encode_rle, json_bytes

__all__ = ["Captions", "Objects", "named"]

_NOT_HERE = -1
_INT64 = range(-(2**63), 2**63)
_MOST_FLOAT, _MOST_DOUBLE = float(np.finfo(np.float32).max), sys.float_info.max
Apart = tuple[dict[str, Any], list[str]]  # see coco_write.kept_apart


def named(data: bytes, order: int) -> str:
    """Which annotation it is, for a list of those that were left out."""
    try:
        number = json.loads(data.decode("latin-1"))["id"]  # whatever else is wrong with it
    except (ValueError, KeyError, RecursionError):
        return f"annotations[{order}]"
    return f"annotation {number!r:.40}"


class Rows:
    """The annotations of one picture in one file, as rows.

    Args:
        before: those of another file of objects, whose rows they share: an annotation of an id that these
            have, with about the same box, says more of the same object.
    """

    def __init__(self, before: Rows | None = None) -> None:
        self.values: list[Any] = [] if before is None else before.values
        self.other: list[tuple[int, dict[str, Any]]] = []  # row, what the fields cannot say
        self.without: list[tuple[int, list[str]]] = []  # row, keys that it has not
        self._order = [_NOT_HERE] * len(self.values)
        self._free = {one["id"]: row for row, one in enumerate(self.values) if one.get("id", -1) >= 0}

    @property
    def order(self) -> list[int]:
        """Position of each row in the file's list; -1 if it is in another file."""
        return self._order + [_NOT_HERE] * (len(self.values) - len(self._order))

    def known(self, number: int | None, box: npt.NDArray[np.float32]) -> int:
        """The row of an object that another file has; else the one that comes next.

        Files that were numbered apart use the same ids for different objects: their boxes tell.
        """
        row = self._free.get(number, -1) if number is not None else -1
        return row if row >= 0 and _about_same(self.values[row]["bbox"], box) else len(self.values)

    def add(self, order: int, values: Any, apart: Apart, row: int | None = None) -> None:
        """One more, in that row; None: the next."""
        row = len(self.values) if row is None else row
        other, without = apart
        if other:
            json_bytes(other)  # 1e400 is a number for Python, and none that JSON has
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
    """Whether two boxes, left, top, width and height, are equal or have an IoU of at least a half."""
    if np.array_equal(one, other):
        return True
    first, second = one.astype(np.float64), other.astype(np.float64)
    low = np.maximum(first[:2], second[:2])
    high = np.minimum(first[:2] + first[2:], second[:2] + second[2:])
    both = float(np.maximum(high - low, 0).prod())
    return 3 * both >= float(first[2:].prod() + second[2:].prod())


@dataclass(frozen=True)
class Objects:
    """How a file's annotations become objects.

    Args:
        keys: those that fields are made of.
        classes: the index of each category's id.
        points: how many keypoints an object has.
        forms: how the file writes numbers and areas.
    """

    keys: frozenset[str]
    classes: Mapping[int, int]
    points: int
    forms: Mapping[str, bool]

    def add(self, rows: Rows, order: int, data: bytes, image: Mapping[str, Any]) -> None:
        """An annotation of an image as a row.

        Raises:
            ValueError: it cannot be packed, in words.
        """
        annotation = value_of(data)
        values = self._values(annotation, image)
        row = rows.known(values.get("id"), values["bbox"])
        if row < len(rows.values):
            values |= rows.values[row]  # the first file's, where both say it
        made = annotation_of(
            {key: values[key] for key in (*self.keys, "bbox")}, annotation["image_id"], self.forms
        )
        rows.add(order, values, kept_apart(annotation, made), row)

    def _values(self, annotation: Mapping[str, Any], image: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {"bbox": _box(annotation.get("bbox"))}
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
            raise ValueError(f"category_id {number!r:.40} is none of the categories")
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
    """How a file's annotations become texts."""

    has_ids: bool

    def add(self, rows: Rows, order: int, data: bytes, image: Mapping[str, Any]) -> None:
        """An annotation of an image as a row.

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
            raise ValueError("caption has half of a pair of UTF-16, which is no text") from None
        number = (number if _is_integer(number) else -1) if self.has_ids else None
        made = caption_of(text, number, annotation["image_id"])
        rows.add(order, {"caption": text, "id": number}, kept_apart(annotation, made))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT64


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _floats(value: Any, what: str, most: float) -> npt.NDArray[np.float64]:
    if not isinstance(value, list) or not {int, float}.issuperset(map(type, value)):
        raise ValueError(f"{what} must be a list of numbers. Found: {value!r:.60}")
    try:
        found = np.array(value, np.float64)
    except OverflowError:
        raise ValueError(
            f"{what} has a number that no float holds. Found: {max(value, key=abs)!r:.40}"
        ) from None
    if not np.abs(found).max(initial=0) <= most:  # of numbers that are none, too
        far = ~(np.abs(found) <= most)
        raise ValueError(f"{what} must be finite, and not too large. Found: {found[far][0]}")
    return found


def _box(value: Any) -> npt.NDArray[np.float32]:
    if value is None:
        raise ValueError("it has no bbox")
    box = _floats(value, "bbox", _MOST_FLOAT)
    if box.size != 4:
        raise ValueError(f"bbox must be left, top, width and height. Found: {value!r:.60}")
    if box[2] <= 0 or box[3] <= 0:
        raise ValueError(f"bbox has no area: width {value[2]}, height {value[3]}")
    return box.astype(np.float32)


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
