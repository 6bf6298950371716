"""The rows of Parquet and Arrow tables, in files of this machine or of a store, a few at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastload.errors import PackError
from fastload.extras import need
from fastload.packing.samples.arrow_types import Typed, is_binary, plain_column, typed
from fastload.packing.samples.object_checks import format_of_boxes
from fastload.packing.samples.object_columns import OBJECTS, ObjectColumns
from fastload.packing.samples.table_file import TableFile
from fastload.sample.schema import Field

__all__ = ["ArrowRows"]

_ROWS, _BYTES = 256, 16 << 20  # of a batch, about
_BUFFER = 4 << 20  # bytes of a read
_AT_ONCE = 16  # files that are looked at
_LOOKED_AT = 1024  # rows whose boxes tell of which form they are


@dataclass
class ArrowRows:
    """See :class:`fastload.packing.samples.rows.Rows`.

    Args:
        files: in the order of their rows; all with the columns of the first.
        where: for messages: what stands for all of them.
        root: the folder that relative paths in them start from.
    """

    texts = False
    json_texts = True

    files: Sequence[TableFile]
    where: str
    root: bytes
    _schema: Any = field(default=None, repr=False)
    _counts: list[int] = field(default_factory=list)  # rows of each file
    _expanded: tuple[ObjectColumns | None] | None = field(default=None, repr=False)  # None: not looked at

    @property
    def path(self) -> Path | None:
        """The file, if there is one, and on this machine."""
        return Path(self.files[0].path) if len(self.files) == 1 and self.is_local else None

    @property
    def is_local(self) -> bool:
        """Whether the files that it names are on this machine."""
        return self.files[0].store is None

    def names(self) -> list[str]:
        found = self._objects()
        names = list(self._looked().names)
        if found is not None:
            at = names.index(OBJECTS)
            names[at : at + 1] = found.names
        return names

    def objects(self) -> dict[str, Field]:
        found = self._objects()
        return {} if found is None else {field.name: field for field in found.fields}

    def types(self, left: Container[str]) -> dict[str, Typed]:
        """What the columns' types say, but for those that are ``left`` out.

        Raises:
            PackError: a type that no field can hold.
        """
        found, expanded = {}, self.objects()
        for each in self._looked():
            if each.name in left or (expanded and each.name == OBJECTS):
                continue
            try:
                found[each.name] = typed(each.type)
            except ValueError as error:
                raise PackError(
                    f"{self.where}: the column {each.name!r} has {error}. Leave it out: --field "
                    f"{each.name}=none."
                ) from None
        return found

    def unsure(self) -> str:
        found = self._objects()
        if found is None:
            return ""
        name = found.names[0]
        cells = (row[name] for row in islice(self.walk(0, [name]), _LOOKED_AT))
        return "" if format_of_boxes(cells) else name

    def _objects(self) -> ObjectColumns | None:
        """What the column ``objects`` becomes; None: there is none, or it stays as it is."""
        if self._expanded is None:
            self._expanded = (ObjectColumns.of(self._looked(), self._features()),)
        return self._expanded[0]

    def classes(self) -> dict[str, list[str]]:
        """Class names by column, where HF ``datasets`` has written some."""
        found = [(name, one) for name, one in self._features().items() if isinstance(one, dict)]
        return {
            name: one["names"] for name, one in found if one.get("_type") == "ClassLabel" and "names" in one
        }

    def pictures(self) -> list[str]:
        """Columns of images, by what ``datasets`` has written, or as it stores them."""
        found = {name: one for name, one in self._features().items() if isinstance(one, dict)}
        return [
            each.name
            for each in self._looked()
            if _is_bytes(each.type)
            and (found.get(each.name, {}).get("_type") == "Image" or pa.types.is_struct(each.type))
        ]

    def _features(self) -> dict[str, Any]:
        try:
            features = json.loads(self._looked().metadata[b"huggingface"])["info"]["features"]
            return {name: one for name, one in features.items() if isinstance(one, (dict, list))}
        except (KeyError, ValueError, TypeError, AttributeError):
            return {}

    def large(self) -> frozenset[str]:
        """Columns of bytes, which are told by their first values: nobody reads all pictures twice."""
        return frozenset(each.name for each in self._looked() if _is_bytes(each.type))

    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)

    def count(self) -> int | None:
        """How many rows there are."""
        self._looked()
        return sum(self._counts)

    def digest(self) -> str:
        """What tells these files from others."""
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
        """What a column says of files, where it has no bytes of theirs."""
        kind = self._looked().field(column).type
        if not self.is_local or is_binary(kind):
            return
        if not pa.types.is_struct(kind):
            yield from (row[column] for row in self.walk(0, [column]))
            return
        for file in self.files:
            with file.opened() as opened:
                for batch in _batches(file, opened, [column], 0):
                    found = batch.column(0)
                    yield from found.filter(found.field("bytes").is_null()).field("path").to_pylist()

    def _looked(self) -> Any:
        """The columns; looks at all files once."""
        if self._schema is None:
            with ThreadPoolExecutor(_AT_ONCE, "tables") as pool:
                found = list(pool.map(_look, self.files))
            self._schema = found[0][0]
            twice = [name for name in self._schema.names if self._schema.names.count(name) > 1]
            if twice:
                raise PackError(f"{self.where} has two columns {twice[0]!r}; give each a name of its own.")
            self._counts = [count for _, count in found]
            for file, (schema, _) in zip(self.files, found, strict=True):
                if not schema.equals(self._schema):
                    raise PackError(
                        f"{file.name} has other columns than {self.files[0].name}: {_shown(schema)}, not "
                        f"{_shown(self._schema)}. Give files of one kind."
                    )
        return self._schema


def _shown(schema: Any) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in schema)


def _plain(batch: Any) -> Any:
    """A batch whose values are those that fields take."""
    columns = [plain_column(column) for column in batch.columns]
    if all(made is column for made, column in zip(columns, batch.columns, strict=True)):
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

    # Buffering ahead, pyarrow's default, would hold the whole row group; RangeFile reads ahead.
    return parquet.ParquetFile(opened, buffer_size=buffer, pre_buffer=False)


def _look(file: TableFile) -> tuple[Any, int]:
    """The columns and the number of rows; of Arrow that takes all of the file."""
    with file.opened() as opened:
        if file.is_parquet:
            parquet = _parquet(opened)
            return parquet.schema_arrow, parquet.metadata.num_rows
        reader = _arrow(opened)
        return reader.schema, sum(len(batch) for batch in _arrow_batches(reader))


def _batches(file: TableFile, opened: Any, names: list[str], start: int) -> Iterator[Any]:
    """A file's rows from number ``start`` on."""
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
    """Rows of a batch, of so many with so many bytes."""
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
