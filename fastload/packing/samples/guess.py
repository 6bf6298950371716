"""Which fields samples have, guessed from some of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.regular import open_regular
from fastload.packing.looks import said_later
from fastload.packing.samples.given import Given
from fastload.packing.samples.pictures import is_path, is_picture
from fastload.sample.fields import (
    DTYPES,
    Array,
    Boxes,
    Bytes,
    Image,
    Json,
    Keypoints,
    Kind,
    Label,
    Mask,
    Polygons,
    Scalar,
    Text,
)
from fastload.sample.schema import Field, Schema

__all__ = ["LABELS", "guess_kind", "guess_schema", "is_image_file", "picture_kind"]

LABELS = ("label", "class", "target", "category", "category_id", "label_id", "y")
_MASKS = ("mask", "seg", "annotation_image", "labelmap")
_BOXES = ("box", "bbox")
_POINTS = ("keypoint", "landmark", "joint")
_SNIFFED = 64  # bytes of a file that tell its codec


def guess_schema(source: Given) -> Schema:
    """The schema of samples.

    Raises:
        PackError: there are none, or what they have is no sample.
    """
    samples = source.first()
    if not samples:
        raise PackError("there are no samples to pack.")
    wrong = next((sample for sample in samples if not isinstance(sample, Mapping)), None)
    if wrong is not None:
        raise PackError(f"a sample must be a dict of values by field name. Found: {type(wrong).__name__}.")
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    fields = []
    for name in names:
        values = [sample[name] for sample in samples if sample.get(name) is not None]
        try:
            fields.append(Field(name, guess_kind(str(name), values, source.root)))
        except ValueError as error:
            raise PackError(f"{error} Name its kind, or leave it out: schema={{...}} or --field.") from None
    try:
        return Schema(tuple(fields))
    except ValueError as error:
        raise PackError(f"{error} Give a schema, or --field name=image.") from None


def guess_kind(name: str, values: Sequence[Any], root: bytes) -> Kind:
    """The kind of a field from its name and some of its values that are not None.

    Raises:
        ValueError: nothing fits.
    """
    if not values:
        return Json()
    if all(is_picture(value) or _is_encoded(value) for value in values):
        return picture_kind(name, values)
    if all(isinstance(value, str) for value in values):
        files = all(is_image_file(value, root) for value in values)
        return picture_kind(name, ()) if files else Text()
    if all(is_path(value) for value in values):
        return picture_kind(name, ())
    if all(isinstance(value, (bytes, bytearray, memoryview)) for value in values):
        return Bytes()
    if all(isinstance(value, (bool, np.bool_)) for value in values):
        return Scalar("bool")
    if all(isinstance(value, (int, float, np.number, np.bool_)) for value in values):
        return _number(name, values)
    return _rows(name, values)


def is_image_file(text: str, root: bytes) -> bool:
    """Whether a path (relative to ``root``) is an image file's, by its contents."""
    if "\0" in text or not text:
        return False
    try:
        with open_regular(path := os.path.join(root, os.fsencode(text))) as file:
            data = file.read(_SNIFFED)
            return _sniffed(data) or data.startswith(b"\x93NUMPY")
    except OSError as error:
        said_later(path, error)
        return False


def _sniffed(data: bytes) -> bool:
    return bool(data) and _C.sniff(np.frombuffer(data[:_SNIFFED], np.uint8)) != "unknown"


def _is_encoded(value: Any) -> bool:
    if isinstance(value, Mapping) and set(value) == {"bytes", "path"}:
        value = value["bytes"] or b""
    return isinstance(value, (bytes, bytearray, memoryview)) and _sniffed(bytes(value))


def picture_kind(name: str, values: Sequence[Any]) -> Kind:
    """The kind of a field of pictures."""
    pixels = [np.asarray(value) for value in values if is_picture(value)]
    bits = 16 if any(found.dtype.itemsize > 1 for found in pixels) else 8
    if any(word in name.lower() for word in _MASKS):
        return Mask(bits, ignore=(1 << bits) - 1)
    channels = {found.shape[2] if found.ndim == 3 else 1 for found in pixels}
    if channels and channels.isdisjoint({3, 4}):
        return Image(channels.pop() if len(channels) == 1 else 3, bits)
    return Image(3, bits)


def _number(name: str, values: Sequence[Any]) -> Kind:
    dtype = np.result_type(*(np.asarray(value).dtype for value in values))
    if name.lower() in LABELS and dtype.kind in "iu" and all(-1 <= int(v) < 1 << 31 for v in values):
        return Label()
    return Scalar(_legal(name, dtype))


def _legal(name: str, dtype: np.dtype[Any]) -> str:
    if dtype.name not in DTYPES:
        raise ValueError(f"{name!r} has numbers of the type {dtype}, which no field can hold.")
    return str(dtype.name)


def _rows(name: str, values: Sequence[Any]) -> Kind:
    """Arrays and lists; what is neither is JSON if JSON can say it."""
    low = name.lower()
    if any(word in low for word in ("polygon", "segmentation", "outline")) and _are_polygons(values):
        return Polygons()
    if all(_are_areas(value) for value in values) and any(values):
        return Polygons("rle")
    arrays = [_array(value) for value in values]
    found = [array for array in arrays if array is not None]
    if len(found) < len(arrays):
        return _json(name, values)
    filled = [array for array in found if array.size]
    dtype = np.result_type(*(array.dtype for array in filled)) if filled else np.dtype(np.float32)
    shapes = {array.shape[1:] for array in filled}
    if len(shapes) > 1:
        return _json(name, values)
    row = shapes.pop() if shapes else ()
    if any(word in low for word in _BOXES) and (row == (4,) or not filled):
        return Boxes(_box_format(filled))
    if any(word in low for word in _POINTS) and len(row) == 2 and row[1] in (2, 3):
        return Keypoints(row[0], row[1] == 3)
    lengths = {len(array) for array in found}
    rows = None if len(lengths) > 1 or lengths == {0} else lengths.pop()
    return Array(_legal(name, dtype), (rows, *row))


def _array(value: Any) -> npt.NDArray[Any] | None:
    """A value as numbers of at least one dimension; None: it is none."""
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        try:
            found = np.asarray(value)
        except ValueError:  # rows of different lengths
            return None
        if found.ndim and (found.dtype.kind in "biuf" or not found.size):
            return found
    return None


def _box_format(filled: Sequence[npt.NDArray[Any]]) -> str:
    """Corners, unless one lies before the other: then left, top, width and height."""
    return "xyxy" if all((rows[:, 2:] >= rows[:, :2]).all() for rows in filled) else "xywh"


def _are_polygons(values: Sequence[Any]) -> bool:
    def is_one(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(
            isinstance(polygons, (list, tuple)) and all(_array(polygon) is not None for polygon in polygons)
            for polygons in value
        )

    return all(is_one(value) for value in values) and any(polygons for value in values for polygons in value)


def _are_areas(value: Any) -> bool:
    """Whether a value is run lengths of objects, as COCO's."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(area, Mapping) and set(area) == {"size", "counts"} for area in value
    )


def _json(name: str, values: Sequence[Any]) -> Kind:
    try:
        for value in values:
            json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name!r} has values of the type {type(values[0]).__name__} that fit no kind of field."
        ) from None
    return Json()
