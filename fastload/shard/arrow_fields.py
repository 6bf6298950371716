"""Arrow columns of natural types for the fields of a sample, and what HF ``datasets`` calls those types.

Where a field's bytes are Arrow's own layout (numbers, lists of numbers, texts), the column points at them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastload.errors import FormatError
from fastload.sample.fields import Json, Label, Labels, Polygons, Scalar, Text, is_missing
from fastload.sample.plain import is_file, plain_value
from fastload.sample.schema import Field
from fastload.sample.values import NO_TEXT, mixed_parts
from fastload.shard.chunk import Chunk

__all__ = ["array_of", "dtype_of", "feature_of", "type_named", "type_of"]

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
RAW_PICTURE = pa.struct([*PICTURE, ("height", pa.int32()), ("width", pa.int32())])
_RLE = pa.struct([("size", pa.list_(pa.int32())), ("counts", pa.list_(pa.int64()))])
_MIXED = pa.struct([("outlines", pa.list_(pa.list_(pa.float64()))), *_RLE])
_NO_OBJECTS = np.zeros(8, np.uint8)  # their count, and what fills up
_OUTLINES = pa.list_(pa.list_(pa.float32()))  # of an object: its polygons, each x, y, x, y, ...


def type_of(field: Field, raw: bool = False) -> pa.DataType:
    """The type of a field's column; ``raw``: images are pixels."""
    kind = field.kind
    if kind.storage == "record":
        return PICTURE if is_file(field, raw) else RAW_PICTURE
    if isinstance(kind, Label):
        return pa.int64()
    if isinstance(kind, Polygons):
        return pa.list_({"polygons": _OUTLINES, "rle": _RLE, "mixed": _MIXED}[kind.format])
    if isinstance(kind, Labels):
        return pa.list_(pa.int64())
    if kind.name == "texts":
        return pa.list_(pa.string())
    if kind.name in ("text", "json"):
        return pa.string()
    if kind.name == "bytes":
        return pa.binary()
    found = pa.from_numpy_dtype(np.dtype(kind.item_dtype))
    for _ in range(_depth(field)):
        found = pa.list_(found)
    return found


def feature_of(field: Field, raw: bool = False) -> Any:
    """What the ``huggingface`` metadata says about a field; ``raw``: images are pixels."""
    kind = field.kind
    if kind.storage == "record" and is_file(field, raw):
        return {"_type": "Image"}
    if isinstance(kind, Label) and kind.classes:
        return {"names": list(kind.classes), "_type": "ClassLabel"}
    if isinstance(kind, Labels) and kind.classes and len(set(kind.classes)) == len(kind.classes):
        names = {"names": list(kind.classes), "_type": "ClassLabel"}
        return {"feature": names, "length": -1, "_type": "Sequence"}
    return _feature(type_of(field, raw))


def _feature(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {kind.field(i).name: _feature(kind.field(i).type) for i in range(kind.num_fields)}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "length": -1, "_type": "Sequence"}
    return {"dtype": dtype_of(kind), "_type": "Value"}


def dtype_of(kind: pa.DataType) -> str:
    """NumPy's name of a kind of numbers; another kind's is Arrow's own.

    ``to_pandas_dtype`` needs pandas in some versions of pyarrow.
    """
    return {"double": "float64", "float": "float32", "halffloat": "float16"}.get(str(kind), str(kind))


_TYPES: tuple[tuple[str, Callable[..., Any]], ...] = (
    (r"timestamp\[(s|ms|us|ns), tz=(.+)\]", pa.timestamp),
    (r"decimal128\((\d+), (-?\d+)\)", lambda *sizes: pa.decimal128(*map(int, sizes))),
    (r"decimal256\((\d+), (-?\d+)\)", lambda *sizes: pa.decimal256(*map(int, sizes))),
    (r"fixed_size_binary\[(\d+)\]", lambda size: pa.binary(int(size))),
    (r"list<(.+)>", lambda inner: pa.list_(_parts_named(inner)[0])),
    (r"large_list<(.+)>", lambda inner: pa.large_list(_parts_named(inner)[0])),
    (r"fixed_size_list<(.+)>\[(\d+)\]", lambda inner, size: pa.list_(_parts_named(inner)[0], int(size))),
    (r"struct<(.+)>", lambda inner: pa.struct(_parts_named(inner))),
    (
        r"map<(.+?)(?: \('.*'\))?>",
        lambda inner: pa.map_(*_types_named(inner)),
    ),
)


def type_named(words: str) -> Any:
    """The type of Arrow's that ``str`` gives these words for; None: one that they do not tell enough of."""
    for pattern, made in _TYPES:
        match = re.fullmatch(pattern, words)
        if match is not None:
            try:
                return made(*match.groups())
            except (ValueError, TypeError):  # names of parts that look like types; other settings
                return None
    try:
        return pa.type_for_alias(words)
    except ValueError:
        return None


def _types_named(words: str) -> list[Any]:
    """The types of a map's keys and values."""
    return [part.type for part in _parts_named(f"key: {words}", "value: ")]


def _parts_named(words: str, second: str = "") -> list[Any]:
    """The fields that a nested type's words list; ``second``: what the second one's lack in front.

    Raises:
        ValueError: they list none.
    """
    parts, begin, deep = [], 0, 0
    for at, letter in enumerate(words):
        deep += (letter in "<[(") - (letter in ">])")
        if words.startswith(", ", at) and not deep:
            parts.append(words[begin:at])
            begin = at + 2
    found = []
    for number, part in enumerate([*parts, words[begin:]]):
        name, _, inner = (second + part if number else part).partition(": ")
        kind = type_named(inner)
        if kind is None:
            raise ValueError(f"{inner} is no type")
        found.append(pa.field(name, kind))
    return found


def array_of(field: Field, chunk: Chunk, keys: list[bytes] | None = None, raw: bool = False) -> pa.Array:
    """The column of some samples; ``keys``: the records' names, where the field has the index's records.

    ``raw``: images are pixels.
    """
    kind = field.kind
    if kind.storage == "record":
        return _pictures(field, chunk, keys, raw)
    if isinstance(kind, Label):
        return numbers(chunk.data.view("<i4").astype(np.int64))
    if isinstance(kind, Polygons) and kind.format == "mixed":
        return _mixed(field, chunk)
    if isinstance(kind, Polygons) or kind.name == "texts":
        return pa.array(_values(field, chunk), type_of(field))
    if isinstance(kind, Labels):
        labels = numbers(chunk.data.view("<i4").astype(np.int64))
        return _lists(labels, _ends(chunk.lengths // np.uint64(kind.item_bytes)))
    if kind.name in ("text", "json", "bytes"):
        return _texts(type_of(field), chunk, _there(field, chunk))
    values = chunk.data.view(np.dtype(kind.item_dtype))
    flat = numbers(values)
    if isinstance(kind, Scalar):
        gone = is_missing(values)
        if not gone.any():
            return flat
        there = pa.py_buffer(np.packbits(~gone, bitorder="little"))
        return pa.Array.from_buffers(flat.type, len(flat), [there, *flat.buffers()[1:]])
    for side in reversed(kind.item_shape if kind.has_rows else kind.item_shape[1:]):
        flat = _lists(flat, np.arange(0, len(flat) + 1, side))
    if kind.has_rows:
        rows = chunk.lengths // np.uint64(kind.item_bytes)
    else:
        rows = np.full(len(chunk), kind.item_shape[0], np.uint64)
    return _lists(flat, _ends(rows))


def _mixed(field: Field, chunk: Chunk) -> pa.Array:
    """Objects of either form as structs of both, one of them empty."""
    there = [mixed_parts(_NO_OBJECTS)]  # so that there is something to join
    objects = np.zeros(len(chunk), np.int64)
    begin = 0
    for sample, length in enumerate(chunk.lengths.tolist()):
        if length:
            try:
                there.append(mixed_parts(chunk.data[begin : begin + length]))
            except ValueError as error:
                raise FormatError(
                    f"Field {field.name!r}: {length} bytes that are no value: {error}."
                ) from None
            objects[sample] = len(there[-1].is_area)
        begin += length
    is_area, counts, lengths, heads, points, runs = map(np.concatenate, zip(*there, strict=True))
    polygons, run_counts = np.zeros((2, len(is_area)), np.int64)
    polygons[~is_area], run_counts[is_area] = counts, heads[:, 2]
    numbers_of = _lists(numbers(points.reshape(-1)), _ends(2 * lengths.astype(np.int64)))
    size = _lists(numbers(heads[:, :2].astype(np.int32).reshape(-1)), _ends(2 * is_area.astype(np.int64)))
    parts = [
        _lists(numbers_of, _ends(polygons)), size, _lists(numbers(runs.astype(np.int64)), _ends(run_counts)),
    ]  # fmt: skip
    return _lists(pa.StructArray.from_arrays(parts, fields=list(_MIXED)), _ends(objects))


def _depth(field: Field) -> int:
    kind = field.kind
    return 0 if isinstance(kind, Scalar) else len(kind.item_shape) + kind.has_rows


def numbers(values: npt.NDArray[Any]) -> pa.Array:
    """A column of numbers; their memory is shared, but for booleans."""
    # Not pa.array: where pandas is installed that imports it, which takes longer than packing 200 MB.
    kind = pa.from_numpy_dtype(values.dtype)
    bits = values.dtype == np.bool_
    held = np.packbits(values, bitorder="little") if bits else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(held)])


def _ends(lengths: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int32]:
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _lists(values: pa.Array, ends: npt.NDArray[Any]) -> pa.Array:
    places = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.list_(values.type), len(ends) - 1, [None, places], children=[values])


def _there(field: Field, chunk: Chunk) -> npt.NDArray[np.bool_] | None:
    """Which values are not null; None: all."""
    if isinstance(field.kind, Json):
        return chunk.lengths > 0
    if not isinstance(field.kind, Text) or not field.kind.null:
        return None
    gone: npt.NDArray[np.bool_] = chunk.lengths == len(NO_TEXT)
    gone[gone] = chunk.data[np.cumsum(chunk.lengths)[gone].astype(np.int64) - 1] == NO_TEXT[0]
    return ~gone


def _texts(kind: pa.DataType, chunk: Chunk, there: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Strings or binaries; ``there``: which are not null."""
    valid = None
    if there is not None and not there.all():
        valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(
        kind, len(chunk), [valid, pa.py_buffer(_ends(chunk.lengths)), pa.py_buffer(chunk.data)]
    )


def _pictures(field: Field, chunk: Chunk, keys: list[bytes] | None, raw: bool) -> pa.Array:
    assert chunk.records is not None
    parts = [_texts(pa.binary(), chunk)]
    if keys is None:
        parts.append(pa.nulls(len(chunk), pa.string()))
    else:
        parts.append(_texts(pa.string(), Chunk.of(keys)))
    if not is_file(field, raw):
        parts += [numbers(chunk.records[name].astype(np.int32)) for name in ("height", "width")]
    return pa.StructArray.from_arrays(parts, fields=list(type_of(field, raw)))


def _values(field: Field, chunk: Chunk) -> list[Any]:
    ends = np.cumsum(chunk.lengths).tolist()
    starts = [0, *ends[:-1]]
    data = chunk.data.tobytes()
    return [plain_value(field, data[begin:end]) for begin, end in zip(starts, ends, strict=True)]
