"""Encoding and decoding of fields' values: canonical little-endian bytes, outlines and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.sample.fields import (
    MAX_VALUE_BYTES,
    Boxes,
    Images,
    Keypoints,
    Kind,
    Label,
    Labels,
    Text,
    as_numbers,
)

# ---- Outlines and areas -----------------------------------------------------------------------------
# The bytes of Polygons fields: outlines as points, areas as run lengths. FORMAT.md has the layouts.

#: The greatest absolute coordinate in mixed outlines, because drawing walks along them.
MOST_COORDINATE = 1 << 20
_U4, _F4, _F8 = np.dtype("<u4"), np.dtype("<f4"), np.dtype("<f8")
_OUTLINE, _AREA = 0, 1  # forms of an object
_MAX_SIDE = 2**31 - 1
Words = npt.NDArray[np.uint32]


class _Reader:
    """A reader of 32-bit words in bytes; raises ValueError at their end."""

    def __init__(self, data: bytes | npt.NDArray[np.uint8]) -> None:
        if len(data) % 4:
            raise ValueError(f"its {len(data)} bytes are no multiple of 4")
        self._words: Words = np.frombuffer(data, _U4)
        self._at = 0

    def take(self, count: int) -> Words:
        left = len(self._words) - self._at
        if count > left:
            raise ValueError(f"{count} words are to come, and {left} are left")
        words = self._words[self._at : self._at + count]
        self._at += count
        return words

    @property
    def taken(self) -> int:
        """The number of words taken so far."""
        return self._at

    def end(self) -> None:
        left = len(self._words) - self._at
        if left:
            raise ValueError(f"{left} words are left over")


def encode_polygons(value: Any, where: str) -> bytes:
    """Encode objects, each a list of polygons of at least three points, (m, 2) or flat x, y, ...."""
    objects = [[_points(part, where) for part in _list(polygons, where)] for polygons in _list(value, where)]
    if not objects:
        return b""
    counts = [len(objects), *(len(polygons) for polygons in objects)]
    lengths = [len(points) for polygons in objects for points in polygons]
    points = [points.tobytes() for polygons in objects for points in polygons]
    return np.array(counts + lengths, _U4).tobytes() + b"".join(points)


def decode_polygons(data: bytes) -> list[list[npt.NDArray[np.float32]]]:
    """Return the polygons of each object, each (m, 2) float32; raise ValueError for illegal bytes."""
    if not data:
        return []
    words = _Reader(data)
    counts = words.take(int(words.take(1)[0]))
    lengths = words.take(int(counts.sum(dtype=np.uint64)))
    flat = words.take(2 * int(lengths.sum(dtype=np.uint64))).view(_F4).reshape(-1, 2)
    words.end()
    polygons = iter([part.copy() for part in np.split(flat, np.cumsum(lengths, dtype=np.int64)[:-1])])
    return [[next(polygons) for _ in range(count)] for count in counts.tolist()]


def encode_rle(value: Any, where: str) -> bytes:
    """Encode objects, each ``{"size": [height, width], "counts": ...}``: run lengths column by column, zeros
    first, as a list or in COCO's compressed letters."""
    objects = [_area(part, where) for part in _list(value, where)]
    if not objects:
        return b""
    heads = [number for height, width, runs in objects for number in (height, width, len(runs))]
    runs = [runs.tobytes() for _, _, runs in objects]
    return np.array([len(objects), *heads], _U4).tobytes() + b"".join(runs)


def decode_rle(data: bytes) -> list[dict[str, list[int]]]:
    """Return size and run lengths of each object; raise ValueError for illegal bytes."""
    if not data:
        return []
    words = _Reader(data)
    count = int(words.take(1)[0])
    heads = words.take(3 * count).reshape(count, 3).tolist()
    objects = [
        {"size": [height, width], "counts": words.take(length).tolist()} for height, width, length in heads
    ]
    words.end()
    return objects


def encode_mixed(value: Any, where: str) -> bytes:
    """Encode objects, each polygons as in :func:`encode_polygons`, or an area as in :func:`encode_rle`."""
    forms: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    heads: list[int] = []
    points: list[bytes] = []
    runs: list[bytes] = []
    for each in _list(value, where):
        if isinstance(each, Mapping) and not each.get("size") and "outlines" in each:
            each = each["outlines"]  # in Arrow, each object has both
        if isinstance(each, Mapping):
            height, width, lengths_of = _area(each, where)
            forms.append(_AREA)
            heads += [height, width, len(lengths_of)]
            runs.append(lengths_of.tobytes())
            continue
        polygons = [_near(_points(part, where, _F8), where) for part in _list(each, where)]
        forms.append(_OUTLINE)
        counts.append(len(polygons))
        lengths += map(len, polygons)
        points += [polygon.tobytes() for polygon in polygons]
    if not forms:
        return b""
    words = [len(forms), *forms, *counts, *lengths, *heads]
    padding = [0] * (len(words) % 2)  # numbers of eight bytes follow
    return np.array(words + padding, _U4).tobytes() + b"".join(points) + b"".join(runs)


class MixedParts(NamedTuple):
    """The parts in the bytes of mixed outlines."""

    is_area: npt.NDArray[np.bool_]  # for each object; else it has polygons
    counts: Words  # the number of polygons of each object that has polygons
    lengths: Words  # the number of points of each polygon
    heads: Words  # (areas, 3): height, width, number of run lengths
    points: npt.NDArray[np.float64]  # (n, 2)
    runs: Words


def mixed_parts(data: bytes | npt.NDArray[np.uint8]) -> MixedParts:
    """Return views of the parts of :func:`encode_mixed`'s bytes; raise ValueError for illegal bytes."""
    words = _Reader(data)
    forms = words.take(int(words.take(1)[0]))
    if (forms > _AREA).any():
        raise ValueError(f"an object's form is {_OUTLINE} or {_AREA}, and one is {int(forms.max())}")
    counts = words.take(int((forms == _OUTLINE).sum()))
    lengths = words.take(int(counts.sum(dtype=np.uint64)))
    heads = words.take(3 * int((forms == _AREA).sum())).reshape(-1, 3)
    if words.taken % 2 and words.take(1)[0]:
        raise ValueError("what fills up its numbers to a multiple of 8 bytes is not 0")
    flat = words.take(4 * int(lengths.sum(dtype=np.uint64))).view(_F8).reshape(-1, 2)
    runs = words.take(int(heads[:, 2].sum(dtype=np.uint64)))
    words.end()
    return MixedParts(forms == _AREA, counts, lengths, heads, flat, runs)


def decode_mixed(data: bytes) -> list[Any]:
    """Return for each object its polygons, each (m, 2) float64, or size and run lengths; raise ValueError for
    illegal bytes."""
    if not data:
        return []
    parts = mixed_parts(data)
    heads, runs = parts.heads.tolist(), iter(parts.runs.tolist())
    areas = iter([{"size": head[:2], "counts": list(islice(runs, head[2]))} for head in heads])
    ends = np.cumsum(parts.lengths, dtype=np.int64)
    polygons = iter([part.copy() for part in np.split(parts.points, ends[:-1])])
    counts = iter(parts.counts.tolist())
    return [
        next(areas) if is_area else [next(polygons) for _ in range(next(counts))]
        for is_area in parts.is_area.tolist()
    ]


def _near(points: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    far = np.abs(points) > MOST_COORDINATE
    if far.any():
        raise ValueError(
            f"{where}: coordinates must be from {-MOST_COORDINATE} to {MOST_COORDINATE}. "
            f"Found: {points[far][0]}."
        )
    return points


def _list(value: Any, where: str) -> Sequence[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise TypeError(f"{where} must be a list of objects. Found: {type(value).__name__}.")
    return value


def _points(value: Any, where: str, dtype: np.dtype[Any] = _F4) -> npt.NDArray[Any]:
    points = as_numbers(value, dtype, where)
    if points.ndim == 1 and points.size % 2 == 0:
        points = points.reshape(-1, 2)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3:
        raise ValueError(
            f"{where}: a polygon has at least three points, as (m, 2) x, y or flat x, y, x, y, .... "
            f"Found: shape {points.shape}."
        )
    if not np.isfinite(points).all():
        raise ValueError(f"{where}: coordinates must be finite. Found: {points[~np.isfinite(points)][0]}.")
    return points


def _area(value: Any, where: str) -> tuple[int, int, Words]:
    if not isinstance(value, Mapping) or "size" not in value or "counts" not in value:
        raise TypeError(
            f"{where}: an area is {{'size': [height, width], 'counts': ...}}. Found: {value!r:.80}."
        )
    size = as_numbers(value["size"], np.dtype(np.int64), f"{where}: size").tolist()
    if len(size) != 2 or not all(0 <= side <= _MAX_SIDE for side in size):
        raise ValueError(
            f"{where}: size must be height and width, 0 to {_MAX_SIDE}. Found: {value['size']!r}."
        )
    counts = value["counts"]
    if isinstance(counts, (str, bytes)):
        counts = _uncompressed(
            counts.encode("utf-8", "surrogatepass") if isinstance(counts, str) else counts, where
        )
    runs = as_numbers(counts, _U4, f"{where}: counts").reshape(-1)
    total, area = int(runs.sum(dtype=np.uint64)), size[0] * size[1]
    if total != area:
        raise ValueError(f"{where}: counts must come to height x width, {area}. Found: {total}.")
    return size[0], size[1], _canonical(runs)


def _canonical(runs: Words) -> Words:
    """Return the runs without empty ones, except a first; no runs if there are no pixels."""
    if not runs.any():
        return runs[:0]
    if not (runs[1:] == 0).any():
        return runs
    kept: list[int] = []
    ones = False  # whether the last run in ``kept`` is of ones
    for position, length in enumerate(runs.tolist()):
        if length == 0:
            continue
        is_ones = position % 2 == 1
        if not kept and is_ones:
            kept.append(0)
        if kept and is_ones == ones and not (len(kept) == 1 and is_ones):
            kept[-1] += length
        else:
            kept.append(length)
        ones = is_ones
    return np.array(kept, _U4)


def _uncompressed(text: bytes, where: str) -> list[int]:
    """Return run lengths from COCO's letters: 5 bits per letter, from 48 on, lowest first, and bit 32 if more
    follow; signed, from the fourth on the difference to the run two before (pycocotools' rleFrString)."""
    runs: list[int] = []
    number = shift = 0
    for letter in text:
        code = letter - 48
        if not 0 <= code < 64 or shift > 60:
            raise ValueError(f"{where}: counts are not COCO's letters ('0' to 'o'). Found: {text[:40]!r}.")
        number |= (code & 0x1F) << shift
        shift += 5
        if not code & 0x20:
            if code & 0x10:
                number -= 1 << shift
            runs.append(number + (runs[-2] if len(runs) > 2 else 0))
            number = shift = 0
    if shift:
        raise ValueError(f"{where}: counts end within a number. Found: {text[-40:]!r}.")
    return runs


# ---- Bytes of values --------------------------------------------------------------------------------
# Canonical and little-endian; FORMAT.md is normative. Equal values have equal bytes, so that the same data
# pack to the same files. No rows and no objects are ``b""``, which is also ``""``, ``[]`` and JSON's None.

_NONE = -1  # the label of no class
#: The bytes of a null text, which are not UTF-8.
NO_TEXT = b"\xff"
#: The bytes of no list of pictures, which is not the empty list.
NO_LIST = b"\xff"


def absent(kind: Kind) -> bytes:
    """Return the bytes of a missing text, list of pictures, JSON or bytes value."""
    if isinstance(kind, Images):
        return NO_LIST
    return NO_TEXT if isinstance(kind, Text) and kind.null else b""


def encode(kind: Kind, value: Any, name: str = "value") -> bytes:
    """Return the canonical bytes of a value.

    Args:
        kind: the field's kind.
        value: numbers: anything NumPy takes as an array of the kind's shape (boxes (n, 4), keypoints
            (n, points, 3) or (n, 3 * points)); a label: index, class name, or None for none; labels: a list
            of these; polygons: for each object a list of polygons, or run lengths ``{"size", "counts"}``;
            text: str; texts: a list of str; bytes; JSON: what ``json`` takes, with str keys and finite
            numbers; pictures: the bytes of the file; images: a list of these, or of None. None means no rows
            or no objects, for ``Text(null=True)`` no text, and for images no list.
        name: the field's name, for messages.

    Raises:
        TypeError, ValueError: the kind cannot hold the value; the message says why.
    """
    data = _CODECS[kind.name].encode(kind, value, f"Field {name!r}")
    if len(data) > MAX_VALUE_BYTES:
        raise ValueError(f"Field {name!r}: a value has at most {MAX_VALUE_BYTES} bytes. Found: {len(data)}.")
    return data


def decode(kind: Kind, data: bytes, name: str = "value") -> Any:
    """Return the value of :func:`encode`'s bytes: NumPy arrays in their own memory and NumPy numbers, int for
    a label, lists for polygons and texts, str, bytes, and JSON's values.

    Raises:
        FormatError: the bytes are not a legal value.
    """
    try:
        return _CODECS[kind.name].decode(kind, bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"Field {name!r} ({kind.name}): {len(data)} bytes that are no value: {error}."
        ) from None


def check_bytes(kind: Kind, data: bytes, name: str = "value") -> None:
    """Raise FormatError, with the reason, unless bytes are the canonical ones of a legal value."""
    value = decode(kind, data, name)
    try:
        again = encode(kind, value, name)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{error} ({len(data)} bytes of kind {kind.name})") from None
    if again != data:
        raise FormatError(
            f"Field {name!r} ({kind.name}): {len(data)} bytes that are not the canonical ones of their value "
            f"({len(again)} bytes)."
        )


def row_count(kind: Kind, data: bytes) -> int:
    """Return the number of rows, objects or texts of a value of a ragged kind."""
    if kind.has_rows:
        return len(data) // kind.item_bytes
    return int.from_bytes(data[:4], "little")


def wrong_rows(kind: Kind, rows: npt.NDArray[Any]) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Find values (fixed) or rows (ragged) that a kind of numbers cannot hold.

    Args:
        rows: (n, ...) of the kind's ``item_dtype`` and ``item_shape``.

    Returns:
        Reasons, such as ``"must be finite"``, each with the rows that it applies to, (n,) bool.
    """
    if isinstance(kind, (Label, Labels)):
        most = len(kind.classes) or 2**31 - 1
        return [(f"must be from -1 to {most - 1}, a class index or none", (rows < _NONE) | (rows >= most))]
    if rows.dtype.kind == "b":
        return [("must be 0 or 1", _each(rows.view(np.uint8) > 1))]
    if not isinstance(kind, (Boxes, Keypoints)):
        return []
    reasons = [("must be finite", _each(~np.isfinite(rows)))]
    if isinstance(kind, Keypoints):
        return reasons + (
            [("must have visibilities of at least 0", _each(rows[..., 2] < 0))] if kind.visibility else []
        )
    first, last = rows[:, :2], rows[:, 2:]
    if kind.format == "xyxy":
        return [*reasons, ("must have x1 <= x2 and y1 <= y2", _each(last < first))]
    return [*reasons, ("must have widths and heights of at least 0", _each(last < 0))]


def _each(wrong: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return np.asarray(wrong.any(tuple(range(1, wrong.ndim))))


# ---- Numbers ----------------------------------------------------------------------------------------


def _encode_numbers(kind: Kind, value: Any, where: str) -> bytes:
    if isinstance(kind, Label):
        value = _class_index(kind, value, where)
    if value is None and kind.has_rows:
        return b""
    if isinstance(kind, Labels) and isinstance(value, (list, tuple)):
        value = [_class_index(kind, label, where) for label in value]
    numbers = as_numbers(value, kind.item_dtype, where)
    shape = kind.item_shape
    if kind.has_rows:
        if numbers.size == 0 and len(numbers.shape) <= 1:
            return b""
        if isinstance(kind, Keypoints) and numbers.ndim == 2 and numbers.shape[1] == int(np.prod(shape)):
            numbers = numbers.reshape(-1, *shape)
        if numbers.shape[1:] != shape or numbers.ndim != len(shape) + 1:
            legal = ", ".join(map(str, ("n", *shape)))
            raise ValueError(f"{where} must have the shape ({legal}). Found: {numbers.shape}.")
        rows = numbers
    elif numbers.shape != shape:
        raise ValueError(f"{where} must have the shape {shape}. Found: {numbers.shape}.")
    else:
        rows = numbers[None]
    for reason, wrong in wrong_rows(kind, rows):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            which = f" in row {row}" if kind.has_rows else ""
            raise ValueError(f"{where} {reason}. Found: {rows[row].tolist()}{which}.")
    return numbers.tobytes()


def _class_index(kind: Label | Labels, value: Any, where: str) -> Any:
    if value is None:
        return _NONE
    if not isinstance(value, str):
        return value
    if value not in kind.indices:
        known = (
            f"{len(kind.classes)} classes"
            if kind.classes
            else f"no classes: name them, as {type(kind).__name__}(classes=...)"
        )
        raise ValueError(f"{where} must be a class index or one of its {known}. Found: {value!r}.")
    return kind.indices[value]


def _decode_numbers(kind: Kind, data: bytes) -> Any:
    size = kind.item_bytes
    if len(data) % size if kind.has_rows else len(data) != size:
        raise ValueError(f"a {'row' if kind.has_rows else 'value'} has {size} bytes")
    numbers = np.frombuffer(data, kind.item_dtype).reshape(-1, *kind.item_shape)
    if numbers.dtype.kind == "b" and wrong_rows(kind, numbers)[0][1].any():
        raise ValueError("a bool is a byte of 0 or 1")
    if kind.has_rows:
        return numbers.copy()
    value = numbers[0].copy() if kind.item_shape else numbers[0]
    return int(value) if isinstance(kind, Label) else value


# ---- Texts, bytes, pictures and JSON ----------------------------------------------------------------


def _encode_text(kind: Kind, value: Any, where: str) -> bytes:
    if value is None and isinstance(kind, Text):
        if kind.null:
            return NO_TEXT
        raise TypeError(f"{where} must be a str. Found: None, which text(null=True) keeps.")
    if not isinstance(value, str):
        raise TypeError(f"{where} must be a str. Found: {value!r:.80} ({type(value).__name__}).")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} must be text that UTF-8 can say. Found: {value[error.start]!r}.") from None


def _encode_texts(kind: Kind, value: Any, where: str) -> bytes:
    if value is None:
        return b""
    if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple)):
        raise TypeError(f"{where} must be a list of str. Found: {value!r:.80} ({type(value).__name__}).")
    if any(text is None for text in value):
        raise TypeError(f"{where} must be a list of str. Found: None in it.")
    texts = [_encode_text(kind, text, f"{where}, text {number}") for number, text in enumerate(value)]
    if not texts:
        return b""
    return np.array([len(texts), *map(len, texts)], "<u4").tobytes() + b"".join(texts)


def _decode_texts(kind: Kind, data: bytes) -> list[str]:
    if not data:
        return []
    texts, begin = [], 4 + 4 * int.from_bytes(data[:4], "little")
    for length in _lengths_of(data, "texts"):
        texts.append(data[begin : begin + length].decode())
        begin += length
    return texts


def _lengths_of(data: bytes, what: str) -> list[int]:
    """Return the lengths that a list begins with, of parts that fill the rest."""
    count = int.from_bytes(data[:4], "little")
    begin = 4 + 4 * count
    lengths: list[int] = np.frombuffer(data[4:begin], "<u4").tolist() if len(data) >= begin else []
    if not count or sum(lengths) != len(data) - begin:
        raise ValueError(f"{count} {what} are to come, and their lengths do not come to its bytes")
    return lengths


def _decode_text(kind: Text, data: bytes) -> str | None:
    return None if kind.null and data == NO_TEXT else data.decode()


def _encode_bytes(kind: Kind, value: Any, where: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{where} must be bytes. Found: {value!r:.80} ({type(value).__name__}).")
    return bytes(value)


def _encode_picture(kind: Kind, value: Any, where: str) -> bytes:
    data = _encode_bytes(kind, value, where)
    if not data:
        raise ValueError(f"{where} must be the bytes of a picture. Found: none.")
    return data


def _encode_images(kind: Kind, value: Any, where: str) -> bytes:
    if value is None:
        return NO_LIST
    if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple)):
        raise TypeError(f"{where} must be a list of pictures. Found: {type(value).__name__}.")
    return pack_list(
        [
            b"" if one is None else _encode_picture(kind, one, f"{where}, picture {place}")
            for place, one in enumerate(value)
        ]
    )


def pack_list(pictures: Sequence[bytes]) -> bytes:
    """Return the bytes of a list of pictures' files; ``b""``: none at this place."""
    if not pictures:
        return b""
    return np.array([len(pictures), *map(len, pictures)], "<u4").tobytes() + b"".join(pictures)


def _decode_images(kind: Kind, data: bytes) -> list[bytes | None] | None:
    if data == NO_LIST:
        return None
    pictures, begin = [], 4 + 4 * int.from_bytes(data[:4], "little")
    lengths = _lengths_of(data, "pictures") if data else []
    for length in lengths:
        pictures.append(data[begin : begin + length] or None)
        begin += length
    return pictures


def _encode_json(kind: Kind, value: Any, where: str) -> bytes:
    if value is None:
        return b""
    try:
        _check_json(value, where)
        return json_bytes(value)
    except (RecursionError, UnicodeEncodeError) as error:
        raise ValueError(
            f"{where} must be what JSON can say. Found: {type(error).__name__}: {error}."
        ) from None


def json_bytes(value: Any) -> bytes:
    """Return canonical JSON: UTF-8, keys sorted, no spaces, numbers as Python writes them."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _check_json(value: Any, where: str) -> None:
    if isinstance(value, float):  # first, because a check of an abstract class takes a microsecond
        if not math.isfinite(value):
            raise ValueError(f"{where} must have finite numbers: JSON has no others. Found: {value!r}.")
    elif value is None or isinstance(value, (str, int)):
        return
    elif isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None or not isinstance(value, dict):
            raise TypeError(
                f"{where} must have dicts with str keys. Found: {wrong!r} in a {type(value).__name__}."
            )
        for part in value.values():
            _check_json(part, where)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check_json(part, where)
    else:
        raise TypeError(
            f"{where} must be dict, list, str, int, float, bool or None. Found: {value!r:.80} "
            f"({type(value).__name__}); arrays have .tolist()."
        )


def _decode_json(kind: Kind, data: bytes) -> Any:
    return json.loads(data.decode()) if data else None


class _Codec(NamedTuple):
    encode: Callable[[Any, Any, str], bytes]  # kind, value, where
    decode: Callable[[Any, bytes], Any]


_NUMBERS = _Codec(_encode_numbers, _decode_numbers)
_PICTURE = _Codec(_encode_picture, lambda kind, data: data)


_OUTLINES: dict[str, tuple[Callable[[Any, str], bytes], Callable[[bytes], Any]]] = {
    "polygons": (encode_polygons, decode_polygons),
    "rle": (encode_rle, decode_rle),
    "mixed": (encode_mixed, decode_mixed),
}


def _encode_outlines(kind: Any, value: Any, where: str) -> bytes:
    return b"" if value is None else _OUTLINES[kind.format][0](value, where)


def _decode_outlines(kind: Any, data: bytes) -> Any:
    return _OUTLINES[kind.format][1](data)


_CODECS: dict[str, _Codec] = {
    "image": _PICTURE,
    "mask": _PICTURE,
    "label": _NUMBERS,
    "scalar": _NUMBERS,
    "array": _NUMBERS,
    "boxes": _NUMBERS,
    "polygons": _Codec(_encode_outlines, _decode_outlines),
    "keypoints": _NUMBERS,
    "text": _Codec(_encode_text, _decode_text),
    "bytes": _Codec(_encode_bytes, lambda kind, data: data),
    "json": _Codec(_encode_json, _decode_json),
    "labels": _NUMBERS,
    "texts": _Codec(_encode_texts, _decode_texts),
    "images": _Codec(_encode_images, _decode_images),
}
