"""Values of fields as canonical little-endian bytes, and back. The bytes are normative in FORMAT.md.

Equal values have equal bytes, so that the same data pack to the same files. No rows and no objects are no
bytes: ``b""`` is ``""``, ``b""``, ``[]``, or JSON's None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.sample.fields import MAX_VALUE_BYTES, Boxes, Keypoints, Kind, Label, Labels, Text
from fastload.sample.numbers import as_numbers
from fastload.sample.outlines import (
    decode_mixed,
    decode_polygons,
    decode_rle,
    encode_mixed,
    encode_polygons,
    encode_rle,
)

__all__ = ["NO_TEXT", "absent", "check_bytes", "decode", "encode", "row_count", "wrong_rows"]

_NONE = -1  # a label
#: The bytes of a text that is null: no UTF-8.
NO_TEXT = b"\xff"


def absent(kind: Kind) -> bytes:
    """What a sample has that has none: of text, JSON and bytes, which may be missing."""
    return NO_TEXT if isinstance(kind, Text) and kind.null else b""


def encode(kind: Kind, value: Any, name: str = "value") -> bytes:
    """The canonical bytes of a value.

    Args:
        kind: the field's.
        value: numbers: anything NumPy takes as an array of the kind's shape (boxes (n, 4), keypoints
            (n, points, 3) or (n, 3 * points)); a label: index, class name, or None for none; labels: a list
            of these; polygons: of each object a list of polygons, or of run lengths ``{"size", "counts"}``;
            text: str; texts: a list of str; bytes; JSON: what ``json`` takes, with str keys and finite
            numbers; pictures: the bytes of the file. None is no rows, or no objects, for kinds that have
            such, and no text where the kind is ``Text(null=True)``.
        name: the field's, for messages.

    Raises:
        TypeError, ValueError: what the kind cannot hold, in words.
    """
    data = _CODECS[kind.name].encode(kind, value, f"Field {name!r}")
    if len(data) > MAX_VALUE_BYTES:
        raise ValueError(f"Field {name!r}: a value has at most {MAX_VALUE_BYTES} bytes. Found: {len(data)}.")
    return data


def decode(kind: Kind, data: bytes, name: str = "value") -> Any:
    """The value of :func:`encode`'s bytes: NumPy arrays of their own memory and NumPy numbers, int for a
    label, lists for polygons and texts, str, bytes, and what JSON says.

    Raises:
        FormatError: bytes that are no value's.
    """
    try:
        return _CODECS[kind.name].decode(kind, bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"Field {name!r} ({kind.name}): {len(data)} bytes that are no value: {error}."
        ) from None


def check_bytes(kind: Kind, data: bytes, name: str = "value") -> None:
    """Check that bytes are a legal value's, and its only ones.

    Raises:
        FormatError: they are not, in words.
    """
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
    """How many rows, objects or texts a value of a ragged kind has."""
    if kind.has_rows:
        return len(data) // kind.item_bytes
    return int.from_bytes(data[:4], "little")


def wrong_rows(kind: Kind, rows: npt.NDArray[Any]) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Which values (fixed) or rows (ragged) a kind of numbers cannot hold.

    Args:
        rows: (n, ...) of the kind's ``item_dtype`` and ``item_shape``.

    Returns:
        Reasons, as ``"must be finite"``, each with the rows it holds for, (n,) bool.
    """
    if isinstance(kind, (Label, Labels)):
        most = len(kind.classes) or 2**31 - 1
        return [(f"must be from -1 to {most - 1}, a class index or none", (rows < _NONE) | (rows >= most))]
    if rows.dtype.kind == "b":
        return [("must be 0 or 1", _each(rows.view(np.uint8) > 1))]
    if not isinstance(kind, (Boxes, Keypoints)):
        return []
    found = [("must be finite", _each(~np.isfinite(rows)))]
    if isinstance(kind, Keypoints):
        return found + (
            [("must have visibilities of at least 0", _each(rows[..., 2] < 0))] if kind.visibility else []
        )
    first, last = rows[:, :2], rows[:, 2:]
    if kind.format == "xyxy":
        return [*found, ("must have x1 <= x2 and y1 <= y2", _each(last < first))]
    return [*found, ("must have widths and heights of at least 0", _each(last < 0))]


def _each(wrong: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return np.asarray(wrong.any(tuple(range(1, wrong.ndim))))


# ---- numbers ------------------------------------------------------------------------------------


def _encode_numbers(kind: Kind, value: Any, where: str) -> bytes:
    if isinstance(kind, Label):
        value = _class_index(kind, value, where)
    if value is None and kind.has_rows:
        return b""
    if isinstance(kind, Labels) and isinstance(value, (list, tuple)):
        value = [_class_index(kind, one, where) for one in value]
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


# ---- objects ------------------------------------------------------------------------------------


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
    count = int.from_bytes(data[:4], "little")
    begin = 4 + 4 * count
    lengths = np.frombuffer(data[4:begin], "<u4").tolist() if count and len(data) >= begin else []
    if not count or sum(lengths) != len(data) - begin:
        raise ValueError(f"{count} texts are to come, and their lengths do not come to its bytes")
    texts = []
    for length in lengths:
        texts.append(data[begin : begin + length].decode())
        begin += length
    return texts


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
    """Canonical JSON: UTF-8, keys sorted, no spaces, numbers as Python writes them."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _check_json(value: Any, where: str) -> None:
    if isinstance(value, float):  # first: abstract classes take a microsecond each
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
}
