"""Columns of tables: the kind of field that a column's values fit, and its values as the field's."""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import open_regular
from fastload.machine.sizes import counted
from fastload.packing.files import raise_if_transient
from fastload.packing.pictures import is_path, is_picture
from fastload.packing.rows import PartialSample, Sample
from fastload.packing.tables import NUMBER, WHOLE, is_beyond_floats, label_sort, labels_of
from fastload.sample.fields import (
    DTYPES,
    MISSING,
    Array,
    Boxes,
    Bytes,
    Image,
    Images,
    Json,
    Keypoints,
    Kind,
    Label,
    Labels,
    Mask,
    Polygons,
    Scalar,
    Text,
    Texts,
)
from fastload.sample.schema import Field, Schema
from fastload.shard.suffixes import is_image

# ---- Fields guessed from some samples ---------------------------------------------------------------

LABELS = ("label", "class", "target", "category", "category_id", "label_id", "y")
_MASKS = ("mask", "seg", "annotation_image", "labelmap")
_BOXES = ("box", "bbox")
_POINTS = ("keypoint", "landmark", "joint")
_SNIFFED = 64  # bytes of a file that tell its codec
_EXACT = 2**53  # float64 holds all integers up to it


def guess_schema(samples: Sequence[Sample], root: bytes) -> Schema:
    """Guess the schema of samples, from some of them.

    Raises:
        PackError: there are no samples, or they are not dicts of legal values.
    """
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
            kind = guess_kind(str(name), values, root)
            fields.append(Field(name, kind if len(values) == len(samples) else with_gaps(kind)))
        except ValueError as error:
            raise PackError(f"{error} Name its kind, or leave it out: schema={{...}} or --field.") from None
    try:
        schema = Schema(tuple(fields))
    except ValueError as error:
        raise PackError(f"{error} Give a schema, or --field name=image.") from None
    for name in names if not schema.has_pictures else ():
        texts = texts_among(sample.get(name) for sample in samples)
        refuse_lost_pictures(str(name), texts, "the samples", os.fsdecode(root))
    refuse_numbers_alone(schema, "the samples")
    return schema


def refuse_numbers_alone(schema: Schema, where: str) -> None:
    """Refuse a guessed schema with neither pictures nor texts: most likely the pictures were not found.

    Raises:
        PackError: it has neither.
    """
    kinds = (Text, Texts, Json, Bytes)
    if not schema.has_pictures and not any(isinstance(field.kind, kinds) for field in schema):
        raise PackError(
            f"{where}: there are neither pictures nor texts. Found: {schema}. Say what is what: --field "
            "NAME=image, or schema={...} in Python, which takes numbers alone, too."
        )


def refuse_lost_pictures(name: str, texts: Sequence[str], where: str, root: str) -> None:
    """Refuse a set without pictures if a field that nobody has named has the names of image files.

    Raises:
        PackError: it has; the files are not there, or it has other values among them.
    """
    named = [text for text in texts if is_image(text)]
    if not named:
        return
    lost = next((text for text in named if not is_image_file(text, os.fsencode(root))), None)
    if lost is None:
        raise PackError(
            f"{where}: {name!r} names image files, as {named[0]!r}, and has other values among them. "
            f"Say what it is, and such samples are named one by one: --field {name}=image, {name}=images for "
            f"lists, {name}=text, or schema={{...}} in Python."
        )
    raise PackError(
        f"{where}: {name!r} names image files, and {lost!r} is none below {root}. Give the folder that paths "
        f"begin at, --root; say that it is pictures, and such samples are named one by one: --field "
        f"{name}=image, or {name}=images for lists; or take them for texts: --field {name}=text, or "
        "schema={...} in Python."
    )


def texts_among(values: Iterable[Any]) -> list[str]:
    """Return the values that are texts, and those in lists."""
    flat = (one for value in values for one in (value if isinstance(value, (list, tuple)) else [value]))
    return [one for one in flat if isinstance(one, str)]


def guess_kind(name: str, values: Sequence[Any], root: bytes, dtype: str = "") -> Kind:
    """Guess the kind of a field from its name and some of its values that are not None.

    Args:
        dtype: the dtype of numbers in lists, if their type says it.

    Raises:
        ValueError: no kind fits.
    """
    if not values:
        return Json()
    if all(is_picture(value) or _is_encoded(value) for value in values):
        return picture_kind(name, values)
    if _are_picture_lists(values, root):
        return Images()
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


def _are_picture_lists(values: Sequence[Any], root: bytes) -> bool:
    """Whether values are lists of pictures, of files, bytes or pixels; some of them may be one picture, and
    some places of lists may be empty."""
    lists = [value for value in values if isinstance(value, (list, tuple))]
    alone = [value for value in values if not isinstance(value, (list, tuple))]
    pictures = [one for value in lists for one in value if one is not None] + alone
    return bool(lists and pictures) and all(
        is_picture(one) or _is_encoded(one) or (isinstance(one, str) and is_image_file(one, root))
        for one in pictures
    )


def with_gaps(found: Kind) -> Kind:
    """Return a field's kind if some values are missing: JSON if the kind has no place for that.

    A float becomes NaN, boxes, points and outlines mean no objects, a label no class.
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
        raise_if_transient(path, error)
        return False


def _sniffed(data: bytes) -> bool:
    return bool(data) and _C.sniff(np.frombuffer(data[:_SNIFFED], np.uint8)) != "unknown"


def _is_encoded(value: Any) -> bool:
    if isinstance(value, Mapping) and set(value) == {"bytes", "path"}:
        value = value["bytes"] or b""
    return isinstance(value, (bytes, bytearray, memoryview)) and _sniffed(bytes(value))


def picture_kind(name: str, values: Sequence[Any]) -> Kind:
    """Return the kind of a field of pictures."""
    pixels = [np.asarray(value) for value in values if is_picture(value)]
    bits = 16 if any(array.dtype.itemsize > 1 for array in pixels) else 8
    if any(word in name.lower() for word in _MASKS):
        return Mask(bits, ignore=(1 << bits) - 1)
    channels = {array.shape[2] if array.ndim == 3 else 1 for array in pixels}
    if channels and channels.isdisjoint({3, 4}):
        return Image(channels.pop() if len(channels) == 1 else 3, bits)
    return Image(3, bits)


def _number(name: str, values: Sequence[Any]) -> Kind:
    whole = [int(value) for value in values if isinstance(value, (int, np.integer))]
    if len(whole) < len(values):
        wrong = next((value for value in whole if not is_exact(value)), None)
        if wrong is not None:
            raise ValueError(
                f"{name!r} has fractions, and the integer {wrong}, which no float64 can hold: no type of "
                "numbers has both."
            )
    elif max(map(abs, whole)) >= 1 << 64:
        raise ValueError(
            f"{name!r} has the integer {max(whole, key=abs)}, beyond 64 bits, which no field can hold."
        )
    elif name.lower() in LABELS and min(whole) >= -1 and max(whole) < 1 << 31:
        return Label()
    return Scalar(_legal(name, _common(name, [np.asarray(value) for value in values], whole)))


def _common(name: str, found: Sequence[npt.NDArray[Any]], whole: Sequence[int]) -> np.dtype[Any]:
    """Return the dtype that holds all numbers; ``whole``: the integers, used only if all numbers are."""
    dtype = np.result_type(*(array.dtype for array in found))
    if dtype.kind == "f" and all(array.dtype.kind in "iu" for array in found):
        # NumPy makes inexact floats of signed and unsigned 64-bit integers.
        signed = min(whole) < 0
        if signed and max(whole) >= 1 << 63:
            raise ValueError(
                f"{name!r} has integers from {min(whole)} to {max(whole)}, which no field can hold: neither "
                "int64 nor uint64 has both."
            )
        return np.dtype(np.int64 if signed else np.uint64)
    return dtype


def is_exact(value: int) -> bool:
    """Whether a float64 can be this very integer."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _legal(name: str, dtype: np.dtype[Any]) -> str:
    if dtype.name not in DTYPES:
        raise ValueError(f"{name!r} has numbers of the type {dtype}, which no field can hold.")
    return str(dtype.name)


def _rows(name: str, values: Sequence[Any], dtype: str = "") -> Kind:
    """Return the kind of arrays and lists; JSON for what is neither, if JSON can hold it."""
    low = name.lower()
    if any(word in low for word in ("polygon", "segmentation", "outline")) and _are_polygons(values):
        return Polygons()
    if all(_are_areas(value) for value in values) and any(values):
        return Polygons("rle")
    arrays = [array_of(value) for value in values]
    valid = [array for array in arrays if array is not None]
    filled = [array for array in valid if array.size]
    shapes = {array.shape[1:] for array in filled}
    hollow = any(len(array) and not array.size for array in valid)  # lists of empty lists
    if len(valid) < len(arrays) or len(shapes) > 1 or hollow or _is_mixed(filled):
        return _json_kind(name, values)
    row = shapes.pop() if shapes else ()
    if any(word in low for word in _BOXES) and (row == (4,) or not filled):
        return Boxes(_box_format(filled))
    if any(word in low for word in _POINTS) and len(row) == 2 and row[1] in (2, 3):
        return Keypoints(row[0], row[1] == 3)
    lengths = {len(array) for array in valid}
    rows = None if len(lengths) > 1 or lengths == {0} else lengths.pop()
    if dtype:
        return Array(dtype, (rows, *row))
    whole = [int(edge) for array in filled for edge in (array.min(), array.max()) if array.dtype.kind in "iu"]
    common = _common(name, filled, whole) if filled else np.dtype(np.float32)
    return Array(_legal(name, common), (rows, *row))


def _is_mixed(filled: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether no dtype holds all these numbers as they are: truth values and numbers, or large integers
    beside fractions or negative ones."""
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
    """Whether integers go beyond those that float64 holds exactly."""
    return found.size > 0 and (int(found.max()) > _EXACT or int(found.min()) < -_EXACT)


def array_of(value: Any) -> npt.NDArray[Any] | None:
    """Return a value's exact numbers as an array of at least one dimension; None: there is no such array."""
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            return None
        if not array.ndim or (array.dtype.kind not in "biuf" and array.size):
            return None
        if not isinstance(value, (list, tuple)) or not array.size:
            return array
        if array.dtype.kind in "iuf":
            parts = np.asarray(value, object).ravel().tolist()
            if any(isinstance(part, (bool, np.bool_)) for part in parts):  # NumPy makes numbers of them
                return None
            if array.dtype.kind == "f" and (np.abs(array) >= _EXACT).any():
                whole = [int(part) for part in parts if isinstance(part, (int, np.integer))]
                if len(whole) == len(parts):
                    in_range = min(whole) >= 0 and max(whole) < 1 << 64
                    return np.asarray(value, object).astype(np.uint64) if in_range else None
                return array if all(map(is_exact, whole)) else None
        return array
    return None


def _box_format(filled: Sequence[npt.NDArray[Any]]) -> str:
    """Return corners, unless one lies before the other: then left, top, width and height."""
    return "xyxy" if all((rows[:, 2:] >= rows[:, :2]).all() for rows in filled) else "xywh"


def _are_polygons(values: Sequence[Any]) -> bool:
    def is_one(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(
            isinstance(polygons, (list, tuple)) and all(array_of(polygon) is not None for polygon in polygons)
            for polygons in value
        )

    return all(is_one(value) for value in values) and any(polygons for value in values for polygons in value)


def _are_areas(value: Any) -> bool:
    """Whether a value is run lengths of objects, like COCO's."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(area, Mapping) and set(area) == {"size", "counts"} for area in value
    )


def _json_kind(name: str, values: Sequence[Any]) -> Kind:
    try:
        for value in values:
            json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name!r} has values of the type {type(values[0]).__name__} that fit no kind of field, also not "
            f"json: {error}."
        ) from None
    return Json()


# ---- The contents of a table's columns, seen in all rows --------------------------------------------

_POINT_ZERO = re.compile(r"([-+]?\d+)\.0*", re.ASCII)  # whole numbers written with a point
_BOOLS = {"true": True, "false": False}
_KEPT, _SHAPES = 16, 64  # values kept in any case, and values kept that look different from all before
# The kind of a column by its Arrow type if all values that were looked at are null.
_EMPTY: dict[str, Kind] = {
    **dict.fromkeys(("string", "large_string", "string_view"), Text()),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), Bytes()),
}
_LABELS_TYPES = ("string", "large_string", "int", "uint")  # beginnings of Arrow's type names
_MOST_CLASSES = 10_000_000
_MOST_DIGITS = 400  # of a number; a float has 309 before its point


@dataclass(frozen=True)
class Typed:
    """The facts that a column's type tells.

    Args:
        kind: the field's kind; None: the values tell (texts may be paths or classes, lists have shapes).
        dtype: the dtype of the numbers in a list; "": it has none, or is no list.
        name: the type's name.
        restored: whether unpacking can restore the type (:func:`~fastload.shard.arrow.type_named`).
        converted: whether values change: times to integers, decimals to text.
    """

    kind: Kind | None = None
    dtype: str = ""
    name: str = ""
    restored: bool = False
    converted: bool = False


class Column:
    """A column of a table while its rows are walked.

    Args:
        name: its name.
        texts: whether its values are CSV's texts.
        kind: its kind, if named; None: to be guessed.
        whole: whether that is all there is to say: a label without classes has none.
        typed: what its type says, if it has one.
    """

    def __init__(
        self, name: str, texts: bool, kind: Kind | None, whole: bool = False, typed: Typed | None = None
    ) -> None:
        self.name, self._texts, self._kind, self._typed = name, texts, kind, typed
        if kind is None:
            self._wants_classes = name.lower() in LABELS
        else:
            self._wants_classes = isinstance(kind, Label) and not kind.classes and not whole
        self._kept: list[tuple[Any, Any, int]] = []  # text, value, row
        self._looks: set[Any] = set()
        self._distinct: set[str | int] = set()  # classes
        self._sorts: dict[str, str] = {}  # of labels, and the first of each with its row
        self._only_texts = False
        # The least and the largest integer, and one that no float64 is, with their rows.
        self._whole: dict[str, tuple[int, int]] = {}
        self.gaps: list[int] = [0, 0]  # rows without a value, and the first of them
        self.rows = 0

    @property
    def texts_seen(self) -> list[str]:
        """Some of its values that are texts, or are in lists."""
        return texts_among(value for _, value, _ in self._kept)

    @property
    def is_known(self) -> bool:
        """Whether no further value can change its kind."""
        return self._kind is not None and not self._wants_classes

    def skip(self, rows: int) -> None:
        """Count the first rows, which have no such column."""
        self.rows = rows
        self.gaps = [rows, 1] if rows else [0, 0]

    def see(self, value: Any) -> None:
        """Take the value of the next row; None: there is none."""
        self.rows += 1
        if value is None:
            self.gaps = [self.gaps[0] + 1, self.gaps[1] or self.rows]
            return
        if self._wants_classes:
            self._see_class(value)
        if self._kind is not None or (self._typed is not None and self._typed.kind is not None):
            return
        text = value
        if self._texts:
            value = parsed(text)
            self._only_texts = self._only_texts or value is text
        if type(value) is int:
            self._see_integer(value)
        look = _look(value)
        if len(self._kept) < _KEPT or (look not in self._looks and len(self._looks) < _SHAPES):
            self._looks.add(look)
            self._kept.append((text, value, self.rows))

    def _see_integer(self, value: int) -> None:
        if value < self._whole.get("low", (value + 1, 0))[0]:
            self._whole["low"] = value, self.rows
        if value > self._whole.get("high", (value - 1, 0))[0]:
            self._whole["high"] = value, self.rows
        if "inexact" not in self._whole and not is_exact(value):
            self._whole["inexact"] = value, self.rows

    def _see_class(self, value: Any) -> None:
        if isinstance(value, str):
            value = value.strip() if self._texts else value
            if not value or value in self._distinct:
                return
        elif not isinstance(value, (int, float)) or len(self._distinct) > _MOST_CLASSES:
            self._wants_classes = False
            self._distinct.clear()
            return
        sort = label_sort(value, self._texts and self._kind is None)
        if sort not in self._sorts:
            self._sorts[sort] = f"{value!r:.80} in row {self.rows}"
        if self._sorts.keys().isdisjoint({"fraction", "truth"}):
            self._distinct.add(value)
        else:  # fractions and truth values are no classes
            self._distinct.clear()

    def kind(self, root: bytes, where: str) -> Kind:
        """Return its kind.

        Args:
            where: the table, for messages.

        Raises:
            PackError: no field can hold its values; the message names the column.
        """
        if self._wants_classes and (self._sorts or self._has_no_labels()):
            classes = self._classes(where)
            if classes is not None:
                return classes
        if self._kind is not None:
            return self._kind
        try:
            guessed = self._guessed(root)
        except ValueError as error:
            json_can = (
                f"--field {self.name}=json keeps them, " if all(map(_says_json, self._values())) else ""
            )
            advice = f"{json_can}--field {self.name}=none leaves the column out."
            raise PackError(f"{where}: the column {error}{self._rows_of(str(error))} {advice}") from None
        if not self.gaps[0]:
            return guessed
        if not self._texts:
            if isinstance(guessed, Bytes):
                raise PackError(
                    f"{where}: the column {self.name!r} has bytes, and null in row {self.gaps[1]}, which "
                    f"bytes have no place for. Leave the column out, --field {self.name}=none, or those rows."
                )
            return with_gaps(guessed)
        if isinstance(guessed, Scalar) and guessed.dtype.startswith(("int", "uint")):
            # CSV has no types: missing values become NaN if a float holds all the others.
            return Text() if "inexact" in self._whole else Scalar("float64")
        return guessed if isinstance(guessed, Text) else with_gaps(guessed)

    def _guessed(self, root: bytes) -> Kind:
        if self._typed is not None and self._typed.kind is not None:
            return self._typed.kind
        if not self._kept and self._typed is not None and self._typed.name in _EMPTY:
            return _EMPTY[self._typed.name]
        values = self._values()
        if self._only_texts or (self._texts and not _agree(values)):
            values = [text for text, _, _ in self._kept]
        try:
            return guess_kind(self.name, values, root, "" if self._typed is None else self._typed.dtype)
        except ValueError:
            if not self._texts:
                raise
            return Text()  # the texts are kept where no numeric type holds all of them

    def _values(self) -> list[Any]:
        """Return values that stand for all, as parsed."""
        return [value for _, value, _ in self._kept] + [value for value, _ in self._whole.values()]

    def _has_no_labels(self) -> bool:
        """Whether a column of labels has no label at all, so that all are -1."""
        name = "null" if self._typed is None else self._typed.name
        return self._kind is None and (name == "null" or name.startswith(_LABELS_TYPES))

    def _classes(self, where: str) -> Label | None:
        """Return the classes; None: the values are no classes."""
        try:
            labels = labels_of(self._distinct, self._sorts, self.name, self._texts)
        except ValueError as error:
            raise PackError(f"{where}: the column {self.name!r} {error}") from None
        return None if labels is None else Label(labels.classes)

    def _rows_of(self, words: str) -> str:
        """Return the rows of the values that a message is about, in words."""
        named = set(re.findall(r"-?\d+", words))
        rows = {row for value, row in self._whole.values() if str(value) in named}
        rows = rows or {row for _, value, row in self._kept if not _says_json(value)}
        return f" Found in row {', '.join(map(str, sorted(rows)[:3]))}." if rows else ""

    def note(self, found: Kind) -> str:
        """Return what became of values that the field does not have as they were; "" if it has all.

        Args:
            found: the column's kind.
        """
        words = []
        if self._typed is not None and self._typed.converted:
            words.append(f"{self._typed.name} as {_called(found)}")
        if self._texts and isinstance(found, Text) and not self._only_texts and self._kept:
            words.append("values that no other kind has as they are written, so text")
        count, first = self.gaps
        if count and not isinstance(found, (Image, Mask)):
            what = "empty" if self._texts else "null"
            rows = f"{what} in {counted(count, 'row')} (the first: row {first})"
            words.append(f"{rows}: {_without(found, self._texts)}")
        return f"{self.name}: {'; '.join(words)}" if words else ""


def _called(kind: Kind) -> str:
    return str(kind.dtype) if isinstance(kind, Scalar) else kind.name


def _without(kind: Kind, texts: bool) -> str:
    """Return, in words, what a batch has for a row without a value."""
    if isinstance(kind, Scalar):
        return "NaN"
    if isinstance(kind, Text) and texts and not kind.null:
        return '""'
    if isinstance(kind, (Text, Json)):
        return f"None ({kind.name})"
    return "-1, no class" if isinstance(kind, Label) else "no objects" if kind.has_rows else "none"


def _agree(values: list[Any]) -> bool:
    """Whether values of CSV are of one sort: truth values beside numbers stay texts."""
    sorts = {bool: "truth", int: "number", float: "number", list: "json", dict: "json"}
    return len({sorts.get(type(value), "text") for value in values}) <= 1


def _says_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def parsed(text: str) -> Any:
    """Return the number, truth value or JSON that a CSV file's text is, or else the text; a whole number is
    exact, a fraction its nearest float."""
    if len(text) > _MOST_DIGITS and text[:1] not in ("[", "{"):
        return text
    if WHOLE.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text):
        whole = _POINT_ZERO.fullmatch(text)
        is_lost = whole is not None and not is_exact(int(whole[1]))
        return text if is_lost or is_beyond_floats(text) else float(text)
    if text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def value_of(kind: Kind, value: Any, texts: bool, json_texts: bool) -> Any:
    """Return the value of a cell as a field of that kind takes it.

    Raises:
        ValueError: a text does not fit, or a value is null and the field has no place for that.
    """
    if value is None:
        return _nothing(kind, texts)
    if isinstance(kind, (Image, Mask, Text)):
        return value
    if isinstance(kind, Images) and isinstance(value, str) and texts:
        found = parsed(value)
        return found if isinstance(found, list) else value
    if isinstance(kind, Label):
        return _class(kind, value, texts)
    if isinstance(kind, Bytes):
        return _bytes(value) if isinstance(value, str) else value
    if isinstance(kind, Json) and isinstance(value, str):
        return _parsed_json(value) if json_texts else value
    if texts:
        result = parsed(value)
        if isinstance(result, str):
            raise ValueError(f"{value!r:.80} is no {kind.name}")
        return result
    return value


def _nothing(kind: Kind, texts: bool) -> Any:
    """Return a field's value for a row without one."""
    if isinstance(kind, Scalar):
        if kind.dtype in MISSING:
            return MISSING[kind.dtype]
        raise ValueError(f"there is no value, and {kind.dtype} cannot say so: float64 has NaN, json None")
    if isinstance(kind, Text):
        if kind.null or texts:
            return None if kind.null else ""
        raise ValueError("it is null; text(null=True) keeps that")
    if isinstance(kind, Bytes):
        if texts:
            return b""
        raise ValueError("it is null, which bytes have no place for")
    if isinstance(kind, Array):
        raise ValueError("it is null, and an array has no null: json keeps it")
    return None


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _class(kind: Label, value: Any, texts: bool) -> Any:
    if isinstance(value, str) and value not in kind.indices:
        value = value.strip() if texts else value
        if value not in kind.indices and WHOLE.fullmatch(value):
            return int(value)
        return value or None
    return value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r:.40} is not base64: {error}") from None


def _look(value: Any) -> Any:
    """Return what values have in common that a field cannot tell apart."""
    if isinstance(value, (list, tuple)):
        array = array_of(value)
        if array is None:
            return "no numbers"
        rows = len(array) if len(array) < 4 else -1
        is_negative = array.dtype.kind in "if" and array.size > 0 and bool(array.min() < 0)
        beyond = array.dtype.kind in "iu" and is_beyond(array)
        return array.shape[1:], array.dtype.kind, rows, is_negative, beyond, not array.size
    if isinstance(value, Mapping):
        return tuple(sorted(map(str, value)))
    return type(value)


# ---- Objects of a table's samples -------------------------------------------------------------------

_ENOUGH = 16  # this many boxes that could be corners, with no counterexample, are no accident


def format_of_boxes(cells: Iterable[Sequence[Any]]) -> str | None:
    """Return ``"xywh"`` if boxes of some samples show that; None: they may be corners as well."""
    seen = 0
    for box in (box for boxes in cells for box in boxes):
        if isinstance(box, (list, tuple)) and len(box) == 4 and None not in box:
            if box[2] < box[0] or box[3] < box[1]:
                return "xywh"
            seen += 1
    return None if seen >= _ENOUGH else "xywh"


def without_bad(sample: Mapping[str, Any], schema: Schema) -> Mapping[str, Any] | PartialSample:
    """Return a sample without the objects whose boxes or classes are invalid."""
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
    return PartialSample({**sample, **kept}, [(f"object {number + 1}", why) for number, why in wrong.items()])


def _wrong(row: Mapping[str, Any], group: Sequence[Field], leader: Field) -> str | None:
    """Return why an object cannot be packed; None: it can."""
    box = row[leader.name]
    numbers = isinstance(box, (list, tuple)) and all(isinstance(edge, (int, float)) for edge in box)
    if not numbers or len(box) != 4 or not all(map(math.isfinite, box)):
        return f"a box is four numbers. Found: {box!r:.60}"
    assert isinstance(leader.kind, Boxes)
    corners = leader.kind.format == "xyxy"
    width, height = (box[2] - box[0], box[3] - box[1]) if corners else box[2:]
    if width <= 0 or height <= 0:
        return f"its box has no area: {width:g} x {height:g}"
    for each in group:
        if isinstance(each.kind, Labels) and each.kind.classes and isinstance(row[each.name], int):
            most = len(each.kind.classes) - 1
            if not -1 <= row[each.name] <= most:
                return f"{each.name} must be from 0 to {most}. Found: {row[each.name]}"
    return None
