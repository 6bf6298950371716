"""Rows of Parquet and Arrow tables as samples: column types, lists of objects, and checks of both."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fastload.errors import PackError
from fastload.extras import need
from fastload.packing.stored import TableFile
from fastload.packing.table_columns import Typed, format_of_boxes
from fastload.sample.fields import DTYPES, Array, Boxes, Json, Kind, Labels, Scalar, Text, Texts
from fastload.sample.schema import Field
from fastload.shard.arrow import dtype_of, type_named

# ---- Hugging Face's ``objects``, a struct of lists or a list of structs, as fields ------------------

OBJECTS = "objects"
#: Keys whose fields get other names.
_BOXES, _LABELS = ("bbox", "boxes", "bboxes", "box"), ("category", "category_id", "label", "labels", "class")
_NAMES = {"id": "ids", "bbox_id": "ids", "is_crowd": "iscrowd"}
_FLAGS = ("iscrowd",)


@dataclass(frozen=True)
class ObjectColumns:
    """The fields that a column of objects becomes.

    Args:
        keys: the key of each field within an object.
        fields: all fields, with the boxes, which the others follow, first.
        listed: whether the column is a list of structs, not a struct of lists.
    """

    keys: tuple[str, ...]
    fields: tuple[Field, ...]
    listed: bool

    @classmethod
    def of(cls, schema: Any, features: Mapping[str, Any]) -> ObjectColumns | None:
        """Return those of a table; None: it has no such column, or one without boxes.

        Args:
            schema: pyarrow's schema.
            features: what ``datasets`` has written about the columns.
        """
        if OBJECTS not in schema.names:
            return None
        struct = schema.field(OBJECTS).type
        listed = _is_list(struct)
        struct = struct.value_type if listed else struct
        if not pa.types.is_struct(struct):
            return None
        types = {part.name: part.type if listed else _inside(part.type) for part in struct}
        leader = next((key for key in _BOXES if key in types and _is_list(types[key] or pa.null())), None)
        if leader is None or None in types.values():
            return None
        keys = [leader, *(key for key in types if key != leader)]
        taken = set(schema.names)
        fields: list[Field] = []
        for key in keys:
            name = "boxes" if key == leader else "labels" if key in _LABELS else _NAMES.get(key, key)
            name = f"{OBJECTS}_{name}" if name in taken else name
            taken.add(name)
            kind = _kind(name, key, types[key], _names_of(features, key))
            follows = key != leader and not isinstance(kind, Json)
            fields.append(Field(name, kind, of=fields[0].name if follows else None))
        return cls(tuple(keys), tuple(fields), listed)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.fields)

    def values(self, cell: Any) -> Iterator[tuple[str, list[Any]]]:
        """Yield each field's values for one sample."""
        for key, name in zip(self.keys, self.names, strict=True):
            if cell is None:
                yield name, []
            else:
                yield name, [obj[key] for obj in cell] if self.listed else cell[key] or []


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _inside(kind: Any) -> Any:
    """Return the type of a list's values; None: it is no list."""
    return kind.value_type if _is_list(kind) else None


def _kind(name: str, key: str, kind: Any, classes: tuple[str, ...] | None) -> Kind:
    if key in _BOXES and _is_list(kind):
        return Boxes("xywh")
    if key in _LABELS and (classes is not None or pa.types.is_integer(kind)):
        return Labels(classes or ())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Texts()
    if name in _FLAGS and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return Array("bool", (None,))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        dtype = dtype_of(kind)
        return Array(dtype, (None,)) if dtype in DTYPES else Json()
    return Json()


def _names_of(features: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    """Return the class names of a key that any version of ``datasets`` has written."""
    feature = _element_of(features.get(OBJECTS))
    feature = _element_of(feature.get(key)) if isinstance(feature, Mapping) else None
    if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel" and "names" in feature:
        return tuple(map(str, feature["names"]))
    return None


def _element_of(feature: Any) -> Any:
    """Return the feature of a list's elements."""
    while True:
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif isinstance(feature, Mapping) and feature.get("_type") in ("Sequence", "List", "LargeList"):
            feature = feature.get("feature")
        else:
            return feature


# ---- Types of Parquet's and Arrow's columns, and their values as Python's ---------------------------

_TRUTHS = "arrow.bool8"  # stored as numbers


def typed(kind: Any) -> Typed:
    """Return what a column's type tells.

    Raises:
        ValueError: no field can hold such values, in words.
    """
    kind = _unwrapped(kind)
    name, restored = str(kind), type_named(str(kind)) == kind
    if pa.types.is_null(kind):
        return Typed(Json(), name=name)
    if _is_number(kind):
        return Typed(Scalar(dtype_of(kind)), "", name, restored)
    if (integer := _integer_of(kind)) is not None:
        return Typed(Scalar(str(integer)), "", name, restored, converted=True)
    if pa.types.is_decimal(kind):
        return Typed(Text(), "", name, restored, converted=True)
    if is_list(kind):
        inner = kind
        while is_list(inner):
            inner = inner.value_type
        return Typed(None, dtype_of(inner) if _is_number(inner) else "", name, restored)
    if pa.types.is_union(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType):
        raise ValueError(f"values of the type {kind}, which no field can hold")
    return Typed(None, "", name, restored)


def is_list(kind: Any) -> bool:
    """Whether values are lists of one type."""
    views = [getattr(pa.types, name, None) for name in ("is_list_view", "is_large_list_view")]
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or any(view is not None and view(kind) for view in views)
    )


def is_binary(kind: Any) -> bool:
    """Whether values are bytes of any length."""
    kind = _unwrapped(kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def plain_column(column: Any) -> Any:
    """Return a column whose ``to_pylist()`` gives what a field of its :func:`typed` kind takes."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) and _unwrapped(kind) is not kind:
        is_truth = kind.extension_name == _TRUTHS
        return column.storage.cast(pa.bool_()) if is_truth else plain_column(column.storage)
    if pa.types.is_dictionary(kind):
        return plain_column(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain_column(pc.run_end_decode(column))
    integer = _integer_of(kind)
    if integer is not None:
        return column.cast(integer)
    if pa.types.is_decimal(kind):
        # With as many digits as the scale, and never an exponent.
        texts = [None if value is None else f"{value:f}" for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return column


def is_kept(kind: Any) -> bool:
    """Whether Parquet returns a type unchanged: it makes seconds milliseconds, 64-bit days 32-bit."""
    from pyarrow import parquet

    table = io.BytesIO()
    try:
        parquet.ParquetWriter(table, pa.schema([("x", kind)])).close()
    except (pa.ArrowException, OSError):
        return False
    read_type = parquet.read_schema(io.BytesIO(table.getvalue())).field("x").type
    return bool(read_type == kind)


def restored(values: list[Any], kind: Any) -> Any:
    """Return values made by :func:`plain_column` as their original type; bytes are base64."""
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in values], kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, _integer_of(kind)).cast(kind)
    if pa.types.is_fixed_size_binary(kind):
        values = [None if value is None else base64.b64decode(value) for value in values]
    return pa.array([_with_pairs(value, kind) for value in values], kind)


def _with_pairs(value: Any, kind: Any) -> Any:
    """Return a JSON value with its maps as lists of tuples, as Arrow takes them."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {part.name: _with_pairs(value[part.name], part.type) for part in kind}
    if pa.types.is_map(kind):
        return [(key, _with_pairs(inner, kind.item_type)) for key, inner in value]
    return [_with_pairs(inner, kind.value_type) for inner in value]


def _unwrapped(kind: Any) -> Any:
    """Return the type of the values themselves, not of their dictionary, runs or extension."""
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == _TRUTHS:
            return pa.bool_()
        # The storage of a tensor has no shape.
        return kind if kind.extension_name == "arrow.fixed_shape_tensor" else _unwrapped(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _unwrapped(kind.value_type)
    return kind


def _is_number(kind: Any) -> bool:
    number = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(number) and dtype_of(kind) in DTYPES


def _integer_of(kind: Any) -> Any:
    """Return the integers that a time, date or duration is stored as; None for other types."""
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int64()
    return None


# ---- Rows of Parquet and Arrow tables, on this machine or in a store, a few at a time ---------------

_ROWS, _BYTES = 256, 16 << 20  # of a batch, about
_BUFFER = 4 << 20  # bytes per read
_AT_ONCE = 16  # files examined at a time
_LOOKED_AT = 1024  # rows whose boxes tell their format


@dataclass
class ArrowRows:
    """The rows of Parquet or Arrow files; see :class:`fastload.packing.table_files.TableReader`.

    Args:
        files: the files in the order of their rows; all have the columns of the first.
        where: the name of all of them in messages.
        root: the folder that relative paths in them start from.
    """

    texts = False
    json_texts = True

    files: Sequence[TableFile]
    where: str
    root: bytes
    _schema: Any = field(default=None, repr=False)
    _counts: list[int] = field(default_factory=list)  # rows of each file
    _expanded: tuple[ObjectColumns | None] | None = field(default=None, repr=False)  # None: not yet known

    @property
    def path(self) -> Path | None:
        """The file, if there is only one, on this machine."""
        return Path(self.files[0].path) if len(self.files) == 1 and self.is_local else None

    def at(self, root: bytes) -> ArrowRows:
        """Return the same rows with another root."""
        return replace(self, root=root)

    @property
    def is_local(self) -> bool:
        """Whether the files that it names are on this machine."""
        return self.files[0].store is None

    @property
    def containers(self) -> tuple[Path, ...]:
        """Its files on this machine, which the digest does not tell from changed ones."""
        return tuple(Path(file.path) for file in self.files if file.store is None)

    def names(self) -> list[str]:
        objects = self._objects()
        names = list(self._looked().names)
        if objects is not None:
            at = names.index(OBJECTS)
            names[at : at + 1] = objects.names
        return names

    def objects(self) -> dict[str, Field]:
        objects = self._objects()
        return {} if objects is None else {field.name: field for field in objects.fields}

    def types(self, left: Container[str]) -> dict[str, Typed]:
        """Return what the types of columns not ``left`` out say.

        Raises:
            PackError: no field can hold a type.
        """
        types, expanded = {}, self.objects()
        for each in self._looked():
            if each.name in left or (expanded and each.name == OBJECTS):
                continue
            try:
                types[each.name] = typed(each.type)
            except ValueError as error:
                raise PackError(
                    f"{self.where}: the column {each.name!r} has {error}. Leave it out: --field "
                    f"{each.name}=none."
                ) from None
        return types

    def unsure(self) -> str:
        objects = self._objects()
        if objects is None:
            return ""
        name = objects.names[0]
        cells = (row[name] for row in islice(self.walk(0, [name]), _LOOKED_AT))
        return "" if format_of_boxes(cells) else name

    def _objects(self) -> ObjectColumns | None:
        """Return the fields of the column ``objects``; None: there is none, or it stays as it is."""
        if self._expanded is None:
            self._expanded = (ObjectColumns.of(self._looked(), self._features()),)
        return self._expanded[0]

    def classes(self) -> dict[str, list[str]]:
        """Return class names by column, where HF ``datasets`` has written some."""
        dicts = {name: f for name, f in self._features().items() if isinstance(f, dict)}
        labels = {name: f for name, f in dicts.items() if f.get("_type") == "ClassLabel"}
        return {name: f["names"] for name, f in labels.items() if "names" in f}

    def pictures(self) -> list[str]:
        """Return columns of images, by what ``datasets`` has written, or by how it stores them."""
        features = {name: f for name, f in self._features().items() if isinstance(f, dict)}
        return [
            each.name
            for each in self._looked()
            if _is_bytes(each.type)
            and (features.get(each.name, {}).get("_type") == "Image" or pa.types.is_struct(each.type))
        ]

    def picture_lists(self) -> list[str]:
        """Return columns of lists of images, likewise."""
        features = self._features()
        return [
            each.name
            for each in self._looked()
            if is_list(each.type)
            and _is_bytes(each.type.value_type)
            and (_is_image(features.get(each.name)) or pa.types.is_struct(each.type.value_type))
        ]

    def _features(self) -> dict[str, Any]:
        try:
            features = json.loads(self._looked().metadata[b"huggingface"])["info"]["features"]
            return {name: f for name, f in features.items() if isinstance(f, (dict, list))}
        except (KeyError, ValueError, TypeError, AttributeError):
            return {}

    def large(self) -> frozenset[str]:
        """Return columns of bytes, told by their first values, so that no picture is read twice."""
        return frozenset(each.name for each in self._looked() if _is_bytes(_inside(each.type) or each.type))

    def size(self) -> int:
        """Return the bytes of the files."""
        return sum(file.size for file in self.files)

    def count(self) -> int | None:
        """Return how many rows there are."""
        self._looked()
        return sum(self._counts)

    def counts(self) -> list[int]:
        """Return how many rows each file has."""
        self._looked()
        return self._counts

    def schema(self) -> Any:
        """Return the columns as Arrow has them."""
        return self._looked()

    def columns(self, names: Sequence[str]) -> Iterator[dict[str, npt.NDArray[np.float64]]]:
        """Yield columns of numbers, in pieces of the rows' order; a missing value is NaN."""
        for file in self.files:
            with file.opened() as opened:
                for batch in _batches(file, opened, [*names], 0):
                    yield {
                        name: batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
                        for name in names
                    }

    def digest(self) -> str:
        """Return what tells these files from others."""
        hashed = hashlib.blake2b(digest_size=16)
        for file in self.files:
            hashed.update(repr((Path(file.path).name, file.size, file.version)).encode())
        return hashed.hexdigest()

    def walk(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        objects = self._objects()
        names = list(self._looked().names) if columns is None else list(columns)
        if objects is not None and columns is not None:
            names = [*dict.fromkeys(OBJECTS if name in objects.names else name for name in names)]
        first = 0
        for file, count in zip(self.files, self._counts, strict=True):
            if first + count > start:
                with file.opened() as opened:
                    for batch in _batches(file, opened, names, max(start - first, 0)):
                        for row in _plain(batch).to_pylist():
                            if objects is not None and OBJECTS in row:
                                row |= objects.values(row.pop(OBJECTS))
                            yield row
            first += count

    def paths(self, column: str) -> Iterator[Any]:
        """Yield a column's values that name files; None where it has their bytes, or they are elsewhere."""
        kind = self._looked().field(column).type
        if not self.is_local or is_binary(_inside(kind) or kind):
            return
        if is_list(kind):
            for row in self.walk(0, [column]):
                yield [None if _has_bytes(one) else one for one in row[column] or ()]
            return
        if not pa.types.is_struct(kind):
            yield from (row[column] for row in self.walk(0, [column]))
            return
        for file in self.files:
            with file.opened() as opened:
                for batch in _batches(file, opened, [column], 0):
                    structs = batch.column(0)
                    named = pc.if_else(structs.field("bytes").is_null(), structs.field("path"), None)
                    yield from named.to_pylist()

    def row_bytes(self, columns: Sequence[str]) -> Iterator[tuple[int, int, int]]:
        """Yield numbers of rows in their order, about how many bytes each has, by the footers, and when their
        file was modified."""
        objects = self._objects()
        names = {OBJECTS if objects is not None and name in objects.names else name for name in columns}
        for file, count in zip(self.files, self._counts, strict=True):
            if not file.is_parquet:
                yield count, file.size // max(count, 1), file.mtime_ns
                continue
            with file.opened() as opened:
                metadata = _parquet(opened).metadata
                for number in range(metadata.num_row_groups):
                    group = metadata.row_group(number)
                    parts = (group.column(at) for at in range(group.num_columns))
                    size = sum(
                        part.total_uncompressed_size
                        for part in parts
                        if part.path_in_schema.partition(".")[0] in names
                    )
                    yield group.num_rows, size // max(group.num_rows, 1), file.mtime_ns

    def _looked(self) -> Any:
        """Return the columns; look at all files once."""
        if self._schema is None:
            with ThreadPoolExecutor(_AT_ONCE, "tables") as pool:
                looks = list(pool.map(_look, self.files))
            self._schema = looks[0][0]
            twice = [name for name in self._schema.names if self._schema.names.count(name) > 1]
            if twice:
                raise PackError(f"{self.where} has two columns {twice[0]!r}; give each its own name.")
            self._counts = [count for _, count in looks]
            for file, (schema, _) in zip(self.files, looks, strict=True):
                if not schema.equals(self._schema):
                    raise PackError(
                        f"{file.name} has other columns than {self.files[0].name}: {_shown(schema)}, not "
                        f"{_shown(self._schema)}. Give files of one kind."
                    )
        return self._schema


def _shown(schema: Any) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in schema)


def _has_bytes(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("bytes") is not None


def _is_image(feature: Any) -> bool:
    """Whether ``datasets`` says that a column's elements are images."""
    element = _element_of(feature)
    return isinstance(element, Mapping) and element.get("_type") == "Image"


def _plain(batch: Any) -> Any:
    """Return a batch with values that fields take."""
    columns = [plain_column(column) for column in batch.columns]
    if all(plain is column for plain, column in zip(columns, batch.columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_bytes(kind: Any) -> bool:
    """Whether values are bytes, or ``{"bytes", "path"}``."""
    if pa.types.is_struct(kind):
        return any(part.name == "bytes" and is_binary(part.type) for part in kind)
    return is_binary(kind)


def _parquet(opened: Any, buffer: int = 0) -> Any:
    need("pyarrow.parquet", "Parquet")
    import pyarrow.parquet as parquet

    # pyarrow's default would buffer the whole row group ahead; RangeFile reads ahead itself.
    return parquet.ParquetFile(opened, buffer_size=buffer, pre_buffer=False)


def _look(file: TableFile) -> tuple[Any, int]:
    """Return the columns and the number of rows; for Arrow this reads the whole file."""
    with file.opened() as opened:
        if file.is_parquet:
            parquet = _parquet(opened)
            return parquet.schema_arrow, parquet.metadata.num_rows
        reader = _arrow(opened)
        return reader.schema, sum(len(batch) for batch in _arrow_batches(reader))


def _batches(file: TableFile, opened: Any, names: list[str], start: int) -> Iterator[Any]:
    """Yield a file's rows from number ``start`` on, in batches."""
    if file.is_parquet:
        yield from _parquet_batches(opened, names, start)
        return
    for batch in _arrow_batches(_arrow(opened)):
        if start < len(batch):
            batch.validate(full=True)  # without it a damaged file can crash the process
            step = _step(batch.nbytes, len(batch))
            chosen = batch.select(names)
            for at in range(start, len(batch), step):
                yield chosen.slice(at, step)
        start = max(start - len(batch), 0)


def _step(size: int, count: int) -> int:
    """Return the rows per batch of a table of ``count`` rows with ``size`` bytes."""
    return max(1, min(_ROWS, _BYTES * count // max(size, 1)))


def _parquet_batches(opened: Any, names: list[str], start: int) -> Iterator[Any]:
    parquet = _parquet(opened, _BUFFER)
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        if start < group.num_rows:
            step = _step(group.total_byte_size, group.num_rows)
            for batch in parquet.iter_batches(step, [number], names, use_threads=False):
                if start < len(batch):
                    yield batch.slice(start)
                start = max(start - len(batch), 0)
        else:
            start -= group.num_rows


def _arrow(opened: Any) -> Any:
    is_file = opened.read(6) == b"ARROW1"
    opened.seek(0)
    return pa.ipc.open_file(opened) if is_file else pa.ipc.open_stream(opened)


def _arrow_batches(reader: Any) -> Iterator[Any]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader
