"""Arrow shards: IPC streams written as HF ``datasets`` writes them, so that it opens them as images."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastload.errors import FormatError
from fastload.sample.fields import Json, Label, Labels, Polygons, Scalar, Text, is_missing
from fastload.sample.plain import is_file, plain_value
from fastload.sample.schema import Field
from fastload.sample.values import NO_TEXT, mixed_parts
from fastload.shard.codecs import NO_LIST_FLAG
from fastload.shard.columns import Chunk
from fastload.shard.foreign_lists import lists_of
from fastload.shard.formats import NOTHING_LOCATED, Foreign, Kinds, Located, ShardSpec, damage_reported

# ---- Messages of Arrow IPC files, checked before pyarrow reads them ----
# A compressed batch states its unpacked size, which may exceed the memory. It can never be indexed, so it is
# refused before it is unpacked. Layout: Arrow's Message.fbs, and FlatBuffers' tables.

_HEADER_TYPE, _HEADER = 1, 2  # fields of Message
_DICTIONARY, _RECORDS = 2, 3  # its header's types
_DATA = 1  # of DictionaryBatch
_COMPRESSION = 3  # of RecordBatch


def has_compression(file: pa.NativeFile) -> bool:
    """Return whether any batch from here on is compressed; moves to where the messages end.

    Raises:
        ValueError, OSError: pyarrow's, if these are not messages.
        struct.error: the tables of a message are outside it.
    """
    while True:
        try:
            message = pa.ipc.read_message(file)
        except EOFError:
            return False
        if _is_compressed(message.metadata.to_pybytes()):
            return True


def _is_compressed(data: bytes) -> bool:
    table = struct.unpack_from("<I", data, 0)[0]
    kind = _field(data, table, _HEADER_TYPE)
    what = _followed(data, _field(data, table, _HEADER))
    if kind is None or what is None or data[kind] not in (_DICTIONARY, _RECORDS):
        return False
    if data[kind] == _DICTIONARY:
        what = _followed(data, _field(data, what, _DATA))
    return what is not None and _field(data, what, _COMPRESSION) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return where a field of a table is; None: it has its default."""
    slots = table - int(struct.unpack_from("<i", data, table)[0])
    if slots < 0 or 4 + 2 * number >= struct.unpack_from("<H", data, slots)[0]:
        return None
    offset: int = struct.unpack_from("<H", data, slots + 4 + 2 * number)[0]
    return table + offset if offset else None


def _followed(data: bytes, place: int | None) -> int | None:
    return None if place is None else place + int(struct.unpack_from("<I", data, place)[0])


# ---- Shards ----

_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
LISTS_HAVE_HEADS = False
_MAPPED_AT_ONCE = 16 << 20
_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "webp", "bytes", "data")


def data_file(path: Path) -> Path:
    """Return the path: the shard is one file."""
    return path


def shard_bytes(lengths: npt.NDArray[np.uint64]) -> int:
    """Estimate the payload, and about 256 bytes per record for offsets, names, labels and padding."""
    return int(lengths.sum()) + 256 * len(lengths) + (1 << 16)


def schema_of(spec: ShardSpec) -> pa.Schema:
    """Return the schema with its ``huggingface`` metadata."""
    if spec.schema is not None:
        found = [pa.field(field.name, type_of(field, spec.raw)) for field in spec.schema]
        shown = {field.name: feature_of(field, spec.raw) for field in spec.schema}
        return pa.schema(found, metadata={"huggingface": json.dumps({"info": {"features": shown}})})
    label: dict[str, Any] = {"dtype": "int64", "_type": "Value"}
    if spec.classes:
        label = {"names": list(spec.classes), "_type": "ClassLabel"}
    features: dict[str, Any] = {"image": {"_type": "Image"}, "label": label}
    fields = [pa.field("image", _IMAGE), pa.field("label", pa.int64())]
    if spec.raw:  # pixels are not a file: Image would fail to open them
        features["image"] = {name: {"dtype": kind, "_type": "Value"} for name, kind in _RAW_FEATURES}
        features |= {name: {"dtype": "int32", "_type": "Value"} for name in ("height", "width")}
        fields += [pa.field("height", pa.int32()), pa.field("width", pa.int32())]
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.schema(fields, metadata=metadata)


_RAW_FEATURES = (("bytes", "binary"), ("path", "string"))


class Writer:
    """A writer of one record batch per group; the image column points into the group's buffer: no copy."""

    def __init__(self, path: Path, spec: ShardSpec) -> None:
        self._raw = spec.raw
        self._fields = spec.schema
        self._schema = schema_of(spec)
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, self._schema)

    def append(
        self,
        data: npt.NDArray[np.uint8],
        records: npt.NDArray[np.void],
        keys: list[bytes],
        further: Sequence[Chunk] = (),
    ) -> None:
        if self._fields is not None:
            self._append_fields(Chunk(data, records["length"].astype(np.uint64), records), keys, further)
            return
        count = len(records)
        starts = np.append(records["offset"], records["offset"][-1] + records["length"][-1]).astype(np.int32)
        ends = np.zeros(count + 1, np.int32)
        np.cumsum([len(key) for key in keys], out=ends[1:])
        buffers = [None, pa.py_buffer(starts), pa.py_buffer(data)]
        images = pa.Array.from_buffers(pa.binary(), count, buffers)
        names = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(keys))]
        paths = pa.Array.from_buffers(pa.string(), count, names)
        image = pa.StructArray.from_arrays([images, paths], fields=list(_IMAGE))
        columns = [image, _integers(pa.int64(), records["label"].astype(np.int64))]
        if self._raw:
            columns += [_integers(pa.int32(), records[name].astype(np.int32)) for name in ("height", "width")]
        self._stream.write_batch(pa.record_batch(columns, schema=self._schema))

    def _append_fields(self, pictures: Chunk, keys: list[bytes], further: Sequence[Chunk]) -> None:

        assert self._fields is not None
        assert pictures.records is not None
        columns: dict[str, pa.Array] = {}
        first, label = self._fields.index_field, self._fields.label_field
        if first is not None:
            columns[first.name] = array_of(first, pictures, keys, self._raw)
        if label is not None:
            columns[label.name] = _integers(pa.int64(), pictures.records["label"].astype(np.int64))
        for (_, field), chunk in zip(self._fields.columns, further, strict=True):
            columns[field.name] = array_of(field, chunk, raw=self._raw)
        ordered = [columns[field.name] for field in self._fields]
        self._stream.write_batch(pa.record_batch(ordered, schema=self._schema))

    def close(self) -> None:
        self._stream.close()
        self._file.close()

    def abort(self) -> None:
        self._file.close()


def _integers(kind: pa.DataType, values: npt.NDArray[np.signedinteger]) -> pa.Array:
    # Not pa.array: it imports pandas if installed, which takes longer than packing 200 MB.
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


class _Mapped:
    """An Arrow file in memory, and where the buffers of its batches are in it."""

    batches: list[pa.RecordBatch]
    schema: pa.Schema

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = pa.memory_map(str(path))
        self.size = self._map.size()
        self._base = self._map.read_buffer(1).address if self.size else 0
        self._map.seek(0)
        self._open()
        for batch in self.batches:
            batch.validate(full=True)  # without it a damaged file can crash the process

    def _open(self) -> None:
        is_file = self._map.read(6) == b"ARROW1"
        self._map.seek(8 * is_file)
        if has_compression(self._map):
            raise FormatError(self._not_as_they_are())
        self._map.seek(0)
        if is_file:
            file = pa.ipc.open_file(self._map)
            self.schema = file.schema
            self.batches = [file.get_batch(i) for i in range(file.num_record_batches)]
        else:
            stream = pa.ipc.open_stream(self._map)
            self.schema = stream.schema
            self.batches = list(stream)

    def _not_as_they_are(self) -> str:
        return (
            f"{self.path} cannot be indexed: the images are not stored as they are (compressed record "
            f"batches?), so no picture is a plain range of bytes; "
            f"'fastload pack {self.path} OUTPUT' packs it."
        )

    def ranges(self, array: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Return file offsets and lengths of a binary array's values."""
        wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
        kind = np.dtype(np.int64 if wide else np.int32)
        _, offsets, data = array.buffers()
        if offsets is None or len(array) == 0:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        positions = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
        lengths = np.diff(positions).astype(np.uint64)
        if not lengths.any():  # a buffer without bytes may be anywhere
            return np.zeros(len(lengths), np.uint64), lengths
        start = (data.address if data is not None else self._base) - self._base
        if not 0 <= start <= self.size or start + int(positions[-1]) > self.size:
            raise FormatError(self._not_as_they_are())
        return positions[:-1].astype(np.uint64) + np.uint64(start), lengths


class _MappedPart(_Mapped):
    """Some batches of a stream, from ``begin`` on (0: the first): whatever is mapped and read counts as this
    process's memory until it is released."""

    def __init__(self, path: Path, begin: int, schema: pa.Schema | None) -> None:
        self.begin = self.end = begin
        self._known = schema
        super().__init__(path)

    def _open(self) -> None:
        self._map.seek(self.begin)
        self.schema = pa.ipc.read_schema(self._map) if self._known is None else self._known
        self.batches = []
        while self._map.tell() < self.begin + _MAPPED_AT_ONCE:
            try:
                message = pa.ipc.read_message(self._map)
            except EOFError:
                break
            self.batches.append(pa.ipc.read_record_batch(message, self.schema))
        self.end = self._map.tell()


def _parts_of(path: Path) -> Iterator[_MappedPart]:
    """Yield the parts of a stream from its beginning to its end."""
    part = _MappedPart(path, 0, None)
    while part.batches:
        yield part
        part = _MappedPart(path, part.end, part.schema)


def _binary(array: pa.Array) -> pa.Array:
    return array.field("bytes") if pa.types.is_struct(array.type) else array


def _locate(mapped: _Mapped, column: str) -> Located:
    parts = []
    for number, batch in enumerate(mapped.batches):
        values = batch.column(column)
        if values.null_count or _binary(values).null_count:
            raise FormatError(
                f"{mapped.path}: column '{column}' of record batch {number} has rows without bytes. "
                f"HF datasets made from files keep only the paths; pack the image folder, or embed "
                f"the images first (Dataset.map or push_to_hub do)."
            )
        parts.append(mapped.ranges(_binary(values)))
    if not parts:
        return Located(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    return Located(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def _located(mapped: _Mapped, name: str | None) -> Located:
    """Locate the pictures of a field of ours, or each sample's list of them."""
    if name is None or not mapped.batches:
        return NOTHING_LOCATED
    if not pa.types.is_list(mapped.schema.field(name).type):
        return _locate(mapped, name)
    parts = []
    for batch in mapped.batches:
        lists = batch.column(name)
        begins, lengths = mapped.ranges(lists.values.field("bytes"))
        ends = np.append(begins + lengths, np.uint64(0)) if len(begins) else np.zeros(1, np.uint64)
        places = np.append(begins, ends[len(begins) - 1])
        offsets = lists.offsets.to_numpy()
        parts.append((places[offsets[:-1]], places[offsets[1:]] - places[offsets[:-1]]))
    return Located(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def locate(path: Path, names: Sequence[str | None] = ("image",)) -> list[Located]:
    """Locate the pictures of one of our shards, by the addresses of its buffers in a memory map."""
    with damage_reported(path, "Arrow IPC stream"):
        found = [[_located(mapped, name) for name in names] for mapped in _parts_of(path)]
    none = np.zeros(0, np.uint64)
    columns = zip(*found, strict=True) if found else [[Located(none, none)]] * len(names)
    return [
        Located(np.concatenate([part.offsets for part in parts]), np.concatenate([p.lengths for p in parts]))
        for parts in columns
    ]


def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
    """Read byte ranges, labels, names and classes of an Arrow file that others wrote.

    Raises:
        FormatError: no image column, compressed batches, rows without bytes.
    """
    with damage_reported(path, "Arrow IPC stream or file"):
        return _read_foreign(_Mapped(path), column)


def _read_foreign(mapped: _Mapped, column: str | None) -> Foreign:
    features = _features(mapped.schema)
    if are_lists_alone(mapped.schema, column):
        labels, classes = _labels(mapped, features)
        none = np.zeros(sum(map(len, mapped.batches)), np.uint64)
        return Foreign(Located(none, none), labels, None, classes, in_lists=True)
    image = _image_column(mapped.path, mapped.schema, column)
    labels, classes = _labels(mapped, features)
    keys = _path_keys([batch.column(image) for batch in mapped.batches])
    return Foreign(_locate(mapped, image), labels, keys, classes)


def are_lists_alone(schema: pa.Schema, column: str | None) -> bool:
    """Return whether a file's samples have lists of pictures and no picture each: ``column`` is one of
    lists; None: there are such columns, and none of pictures."""
    lists = [field.name for field in schema if _holds_lists(field.type)]
    if column is not None:
        return column in lists
    return bool(lists) and not any(_holds_bytes(field.type) for field in schema)


def _holds_lists(kind: pa.DataType) -> bool:
    views = [getattr(pa.types, name, None) for name in ("is_list_view", "is_large_list_view")]
    is_view = any(is_one is not None and is_one(kind) for is_one in views)
    is_list = is_view or _is_plain_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list) and _holds_bytes(kind.value_type)


def _is_plain_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def read_lists(path: Path, column: str) -> tuple[Chunk, dict[int, str]]:
    """Read the byte ranges of a column's lists of pictures; see :mod:`fastload.shard.foreign_lists`.

    Raises:
        FormatError: lists whose pictures are not stored as they are, or are somewhere else.
    """
    with damage_reported(path, "Arrow IPC stream or file"):
        mapped = _Mapped(path)
        parts = [_lists_in(mapped, batch.column(column)) for batch in mapped.batches]
    whole = [np.concatenate(each) for each in zip(*parts, strict=True)] if parts else []
    return lists_of(*(whole or [np.zeros(0, np.int64)] * 5))


def _lists_in(mapped: _Mapped, lists: pa.Array) -> tuple[npt.NDArray[Any], ...]:
    """Return what ``lists_of`` takes, of one record batch."""
    if not _is_plain_list(lists.type) or not _holds_bytes(lists.type.value_type):
        raise FormatError(
            f"{mapped.path} cannot be indexed: of lists of pictures, list<struct<bytes, path>> and "
            f"list<binary> are read in place, not {lists.type}; 'fastload pack {mapped.path} OUTPUT' packs "
            "it."
        )
    values, ends = lists.values, lists.offsets.to_numpy().astype(np.int64)
    binary = _binary(values)
    offsets, lengths = mapped.ranges(binary)
    there = _is_there(values) & _is_there(binary)
    gone = ~_is_there(lists)
    counts = np.where(gone, 0, np.diff(ends))
    used = np.zeros(len(values) + 1, np.int64)  # by lists that there are
    np.add.at(used, ends[:-1][~gone], 1)
    np.add.at(used, ends[1:][~gone], -1)
    inside = np.cumsum(used)[:-1] > 0
    if pa.types.is_struct(values.type) and _has_path(values.type):
        elsewhere = inside & ~there & _is_there(values) & _has_text(values.field("path"))
        if elsewhere.any():
            raise FormatError(
                f"{mapped.path} cannot be indexed: {int(elsewhere.sum())} pictures have a path and no bytes; "
                f"'fastload pack {mapped.path} OUTPUT' packs them from their files."
            )
    return offsets[inside], lengths[inside], there[inside], counts, gone


def _is_there(array: pa.Array) -> npt.NDArray[np.bool_]:
    there: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return there


def _has_text(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.array([bool(text) for text in array.to_pylist()], np.bool_)


def _path_keys(columns: Sequence[pa.Array]) -> list[str] | None:
    """Return the names beside pictures in all parts of a column; None: they are missing in some."""
    structs = [part for part in columns if pa.types.is_struct(part.type) and _has_path(part.type)]
    paths = [part.field("path") for part in structs]
    if not columns or len(paths) != len(columns) or any(part.null_count for part in paths):
        return None
    return [key for part in paths for key in part.to_pylist()]


def _has_path(kind: pa.DataType) -> bool:
    return any(kind.field(i).name == "path" for i in range(kind.num_fields))


def _features(schema: pa.Schema) -> dict[str, Any]:
    try:
        return dict(json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"])
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}


def _image_column(path: Path, schema: pa.Schema, column: str | None) -> str:
    """Return the column of a file's pictures: ``column``, or by the metadata of ``datasets``, name and type.

    Raises:
        FormatError: none, or several.
    """
    features = _features(schema)
    fields = {field.name: field.type for field in schema}
    usable = [name for name, kind in fields.items() if _holds_bytes(kind)]
    if column is not None:
        wanted = [column] if column in usable else []
    else:
        wanted = [
            n for n in usable if isinstance(features.get(n), dict) and features[n].get("_type") == "Image"
        ]
        wanted = wanted or [name for name in _COLUMNS if name in usable] or usable
    if len(wanted) != 1 and not (wanted and wanted[0] in _COLUMNS):
        names = ", ".join(f"{name}: {kind}" for name, kind in fields.items())
        raise FormatError(f"{path}: which column holds the images? Name it with --column. Columns: {names}")
    return wanted[0]


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        return "bytes" in fields and _holds_bytes(fields["bytes"])
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return integers as int64, null as -1."""
    if column.type == pa.int64() and not column.null_count:
        # Not by pyarrow's functions: they import pandas if it is installed.
        values = np.frombuffer(column.buffers()[1] or b"", np.int64)
        return values[column.offset : column.offset + len(column)]
    converted: npt.NDArray[np.int64] = column.fill_null(-1).cast(pa.int64()).to_numpy()
    return converted


def _labels(
    mapped: _Mapped, features: dict[str, Any]
) -> tuple[npt.NDArray[np.int64] | None, tuple[str, ...]]:
    candidates = [n for n, f in features.items() if isinstance(f, dict) and f.get("_type") == "ClassLabel"]
    candidates += [
        name for name in ("label", "labels", "target", "y", "fine_label") if name not in candidates
    ]
    for name in candidates:
        if name not in mapped.schema.names or not pa.types.is_integer(mapped.schema.field(name).type):
            continue
        parts = [_numbers(batch.column(name)) for batch in mapped.batches]
        names = features.get(name, {}).get("names") or ()
        return np.concatenate(parts) if parts else np.zeros(0, np.int64), tuple(str(n) for n in names)
    return None, ()


# ---- Columns of natural types for a sample's fields, and their names in HF ``datasets`` ----
# If a field's bytes have Arrow's own layout (numbers, lists of numbers, texts), the column points at them.

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
RAW_PICTURE = pa.struct([*PICTURE, ("height", pa.int32()), ("width", pa.int32())])
_RLE = pa.struct([("size", pa.list_(pa.int32())), ("counts", pa.list_(pa.int64()))])
_MIXED = pa.struct([("outlines", pa.list_(pa.list_(pa.float64()))), *_RLE])
_NO_OBJECTS = np.zeros(8, np.uint8)  # their count, and padding
_OUTLINES = pa.list_(pa.list_(pa.float32()))  # per object: its polygons, each x, y, x, y, ...


def type_of(field: Field, raw: bool = False) -> pa.DataType:
    """Return the type of a field's column; ``raw``: images are pixels."""
    kind = field.kind
    if kind.storage == "record":
        return PICTURE if is_file(field, raw) else RAW_PICTURE
    if kind.storage == "records":
        return pa.list_(RAW_PICTURE if raw else PICTURE)
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
    """Return a field's entry in the ``huggingface`` metadata; ``raw``: images are pixels."""
    kind = field.kind
    if kind.storage == "record" and is_file(field, raw):
        return {"_type": "Image"}
    if kind.storage == "records" and not raw:
        return {"feature": {"_type": "Image"}, "length": -1, "_type": "Sequence"}
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
    """Return NumPy's name for a type of numbers, or Arrow's own for any other type.

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
    """Return the Arrow type that ``str`` formats as these words; None: they are ambiguous."""
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
    """Return the types of a map's keys and values."""
    return [part.type for part in _parts_named(f"key: {words}", "value: ")]


def _parts_named(words: str, second: str = "") -> list[Any]:
    """Parse the fields that a nested type's words list; ``second``: the missing prefix of the second one.

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
    """Return the column of some samples; ``keys``: the records' names, if it is the index's field.

    ``raw``: images are pixels.
    """
    kind = field.kind
    if kind.storage == "record":
        return _pictures(field, chunk, keys, raw)
    if kind.storage == "records":
        return _picture_lists(chunk, raw)
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
    """Return objects of either form as structs of both, one of them empty."""
    there = [mixed_parts(_NO_OBJECTS)]  # never empty, for the joining below
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
    """Return a column of numbers; their memory is shared, except for booleans."""
    # Not pa.array: it imports pandas if installed, which takes longer than packing 200 MB.
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
    """Return which values are not null; None: all."""
    if isinstance(field.kind, Json):
        return chunk.lengths > 0
    if not isinstance(field.kind, Text) or not field.kind.null:
        return None
    gone: npt.NDArray[np.bool_] = chunk.lengths == len(NO_TEXT)
    gone[gone] = chunk.data[np.cumsum(chunk.lengths)[gone].astype(np.int64) - 1] == NO_TEXT[0]
    return ~gone


def _texts(kind: pa.DataType, chunk: Chunk, there: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return strings or binaries; ``there``: which are not null."""
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


def _picture_lists(chunk: Chunk, raw: bool) -> pa.Array:
    """Return lists of pictures, which are null where there is no list, or no picture."""
    assert chunk.records is not None
    assert chunk.counts is not None
    no_list = (chunk.records["flags"] & NO_LIST_FLAG) != 0
    records = chunk.records[~no_list]
    firsts = np.cumsum(chunk.counts) - chunk.counts
    gone = np.zeros(len(chunk), np.bool_)
    gone[chunk.counts == 1] = no_list[firsts[chunk.counts == 1]]
    ranges = zip(records["offset"].tolist(), records["length"].tolist(), strict=True)
    pictures = Chunk.of([chunk.data[begin : begin + length].tobytes() for begin, length in ranges])
    parts = [_texts(pa.binary(), pictures), pa.nulls(len(pictures), pa.string())]
    there = pa.py_buffer(np.packbits(records["length"] > 0, bitorder="little"))
    kind = RAW_PICTURE if raw else PICTURE
    if raw:
        parts += [numbers(records[name].astype(np.int32)) for name in ("height", "width")]
    structs = pa.Array.from_buffers(kind, len(pictures), [there], children=parts)
    ends = pa.py_buffer(_ends(np.where(gone, 0, chunk.counts)))
    valid = pa.py_buffer(np.packbits(~gone, bitorder="little")) if gone.any() else None
    return pa.Array.from_buffers(pa.list_(kind), len(chunk), [valid, ends], children=[structs])


def _values(field: Field, chunk: Chunk) -> list[Any]:
    ends = np.cumsum(chunk.lengths).tolist()
    starts = [0, *ends[:-1]]
    data = chunk.data.tobytes()
    return [plain_value(field, data[begin:end]) for begin, end in zip(starts, ends, strict=True)]
