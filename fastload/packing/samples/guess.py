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
from fastload.machine.paths import open_regular
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

__all__ = [
    "LABELS",
    "array_of",
    "guess_kind",
    "guess_schema",
    "is_beyond",
    "is_exact",
    "is_image_file",
    "picture_kind",
    "with_gaps",
]

LABELS = ("label", "class", "target", "category", "category_id", "label_id", "y")
_MASKS = ("mask", "seg", "annotation_image", "labelmap")
_BOXES = ("box", "bbox")
_POINTS = ("keypoint", "landmark", "joint")
_SNIFFED = 64  # bytes of a file that tell its codec
_EXACT = 2**53  # float64 holds all integers up to it


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
            kind = guess_kind(str(name), values, source.root)
            fields.append(Field(name, kind if len(values) == len(samples) else with_gaps(kind)))
        except ValueError as error:
            raise PackError(f"{error} Name its kind, or leave it out: schema={{...}} or --field.") from None
    try:
        return Schema(tuple(fields))
    except ValueError as error:
        raise PackError(f"{error} Give a schema, or --field name=image.") from None


def guess_kind(name: str, values: Sequence[Any], root: bytes, dtype: str = "") -> Kind:
    """The kind of a field from its name and some of its values that are not None.

    Args:
        dtype: of the numbers in lists, where their type says it.

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
    if all(isinstance(value, (int, float, np.number)) and type(value) is not bool for value in values):
        return _number(name, values)
    return _rows(name, values, dtype)


def with_gaps(found: Kind) -> Kind:
    """What a field is, of some of whose values there are none: what has no place for that is JSON, which has.

    A float has: it is NaN. Of boxes, points and outlines it means no objects, of a label no class.
    """
    if isinstance(found, Text):
        return Text(null=True)
    if isinstance(found, Array) or (isinstance(found, Scalar) and not found.dtype.startswith("float")):
        return Json()
    return found


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
    whole = [int(value) for value in values if isinstance(value, (int, np.integer))]
    if len(whole) < len(values):
        wrong = next((value for value in whole if not is_exact(value)), None)
        if wrong is not None:
            raise ValueError(
                f"{name!r} has fractions, and the integer {wrong}, which no float64 is: no type of numbers "
                "has both."
            )
    elif max(map(abs, whole)) >= 1 << 64:
        raise ValueError(
            f"{name!r} has the integer {max(whole, key=abs)}, beyond 64 bits, which no field can hold."
        )
    elif name.lower() in LABELS and min(whole) >= -1 and max(whole) < 1 << 31:
        return Label()
    return Scalar(_legal(name, _common(name, [np.asarray(value) for value in values], whole)))


def _common(name: str, found: Sequence[npt.NDArray[Any]], whole: Sequence[int]) -> np.dtype[Any]:
    """The dtype that holds all numbers; ``whole``: the integers among them, and only where all are."""
    dtype = np.result_type(*(array.dtype for array in found))
    if dtype.kind == "f" and all(array.dtype.kind in "iu" for array in found):
        # NumPy makes floats of signed and unsigned 64 bits, which are not exact.
        signed = min(whole) < 0
        if signed and max(whole) >= 1 << 63:
            raise ValueError(
                f"{name!r} has integers from {min(whole)} to {max(whole)}, which no field can hold: neither "
                "int64 nor uint64 has both."
            )
        return np.dtype(np.int64 if signed else np.uint64)
    return dtype


def is_exact(value: int) -> bool:
    """Whether a float64 is this very integer."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _legal(name: str, dtype: np.dtype[Any]) -> str:
    if dtype.name not in DTYPES:
        raise ValueError(f"{name!r} has numbers of the type {dtype}, which no field can hold.")
    return str(dtype.name)


def _rows(name: str, values: Sequence[Any], dtype: str = "") -> Kind:
    """Arrays and lists; what is neither is JSON if JSON can say it."""
    low = name.lower()
    if any(word in low for word in ("polygon", "segmentation", "outline")) and _are_polygons(values):
        return Polygons()
    if all(_are_areas(value) for value in values) and any(values):
        return Polygons("rle")
    arrays = [array_of(value) for value in values]
    found = [array for array in arrays if array is not None]
    filled = [array for array in found if array.size]
    shapes = {array.shape[1:] for array in filled}
    hollow = any(len(array) and not array.size for array in found)  # lists of empty lists
    if len(found) < len(arrays) or len(shapes) > 1 or hollow or _is_mixed(filled):
        return _json(name, values)
    row = shapes.pop() if shapes else ()
    if any(word in low for word in _BOXES) and (row == (4,) or not filled):
        return Boxes(_box_format(filled))
    if any(word in low for word in _POINTS) and len(row) == 2 and row[1] in (2, 3):
        return Keypoints(row[0], row[1] == 3)
    lengths = {len(array) for array in found}
    rows = None if len(lengths) > 1 or lengths == {0} else lengths.pop()
    if dtype:
        return Array(dtype, (rows, *row))
    whole = [int(edge) for array in filled for edge in (array.min(), array.max()) if array.dtype.kind in "iu"]
    common = _common(name, filled, whole) if filled else np.dtype(np.float32)
    return Array(_legal(name, common), (rows, *row))


def _is_mixed(filled: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether no dtype holds all these numbers as they are: truths and numbers, or large integers beside
    fractions or negative ones."""
    kinds = {array.dtype.kind for array in filled}
    whole = [array for array in filled if array.dtype.kind in "iu"]
    large = any(is_beyond(array) for array in whole)
    unsigned = any(array.dtype == np.uint64 and array.max() >= 1 << 63 for array in whole)
    return (
        ("b" in kinds and len(kinds) > 1)
        or ("f" in kinds and large)
        or (unsigned and any(array.min() < 0 for array in whole))
    )


def is_beyond(found: npt.NDArray[Any]) -> bool:
    """Whether integers reach beyond those that float64 holds all of."""
    return found.size > 0 and (int(found.max()) > _EXACT or int(found.min()) < -_EXACT)


def array_of(value: Any) -> npt.NDArray[Any] | None:
    """A value as numbers of at least one dimension, the very ones; None: it is none, or NumPy has no such."""
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        try:
            found = np.asarray(value)
        except ValueError:  # rows of different lengths
            return None
        if not found.ndim or (found.dtype.kind not in "biuf" and found.size):
            return None
        if not isinstance(value, (list, tuple)) or not found.size:
            return found
        if found.dtype.kind in "iuf":
            parts = np.asarray(value, object).ravel().tolist()
            if any(isinstance(part, (bool, np.bool_)) for part in parts):  # which NumPy makes numbers of
                return None
            if found.dtype.kind == "f" and (np.abs(found) >= _EXACT).any():
                whole = [int(part) for part in parts if isinstance(part, (int, np.integer))]
                if len(whole) == len(parts):
                    in_range = min(whole) >= 0 and max(whole) < 1 << 64
                    return np.asarray(value, object).astype(np.uint64) if in_range else None
                return found if all(map(is_exact, whole)) else None
        return found
    return None


def _box_format(filled: Sequence[npt.NDArray[Any]]) -> str:
    """Corners, unless one lies before the other: then left, top, width and height."""
    return "xyxy" if all((rows[:, 2:] >= rows[:, :2]).all() for rows in filled) else "xywh"


def _are_polygons(values: Sequence[Any]) -> bool:
    def is_one(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(
            isinstance(polygons, (list, tuple)) and all(array_of(polygon) is not None for polygon in polygons)
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
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name!r} has values of the type {type(values[0]).__name__} that fit no kind of field, also not "
            f"json: {error}."
        ) from None
    return Json()
