"""``field-NN.fli``: the values of one field of all samples. The layout is normative in FORMAT.md."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import ChecksumError, FormatError, ShardError, ShardTruncated
from fastload.machine.paths import exists
from fastload.sample.fields import MAX_VALUE_BYTES
from fastload.sample.schema import Field, Schema
from fastload.shard.index import RECORD, size_of, write_paged
from fastload.shard.manifest import ColumnFile, Manifest, column_file

# ---- Column files ----

MAGIC = b"FLFIELD1"
# A shuffled batch uses one value per page. With 16 KiB the page table of a file of 1.2 GB has 0.3 MB.
PAGE_BYTES = 16384


def write_column(
    path: Path,
    field: Field,
    count: int,
    fixed: Iterable[npt.NDArray[Any]] = (),
    lengths: Iterable[npt.NDArray[Any]] = (),
    chunks: Iterable[bytes] = (),
) -> ColumnFile:
    """Write the values of a field; the file gets its name when it is complete and on the device.

    Memory does not grow with the number of samples, only with the parts that are passed.

    Args:
        path: the file, ``field-NN.fli`` of the dataset's folder.
        field: the field of the values.
        count: samples of the dataset.
        fixed: for a record field :data:`~fastload.shard.index.RECORD` entries (label -1), for a fixed one
            values (k, \\*item_shape) of its ``item_dtype``, in sample-id order, in any number of parts.
        lengths: for a ragged field the bytes of each sample's value, in any number of arrays.
            For lists of records 32 for each of a sample's entries.
        chunks: those bytes as :meth:`Field.encode` returns them, or the entries, back to back, in any number
            of pieces.

    Returns:
        The manifest's entry for the file.

    Raises:
        ValueError: the parts do not fit the field or have another number of values; no file is left.
    """
    temporary = path.with_name(f".tmp-{path.name}")
    check = _Check(field, count)
    try:
        if field.storage in ("ragged", "records"):
            parts = check.lengths(lengths), check.chunks(chunks)
            write_paged(temporary, MAGIC, (), *parts, page_bytes=PAGE_BYTES)
        else:
            width = RECORD.itemsize if field.storage == "record" else field.item_bytes
            write_paged(temporary, MAGIC, check.fixed(fixed), spacing=width, page_bytes=PAGE_BYTES)
        check.end()
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    column = open_column(path, field)
    return ColumnFile(path.name, path.stat().st_size, column.digest)


class _Check:
    """A check that the parts of a column add up."""

    def __init__(self, field: Field, count: int) -> None:
        self._field, self._count = field, count
        self._values = self._said = self._bytes = 0

    def fixed(self, parts: Iterable[npt.NDArray[Any]]) -> Iterator[npt.NDArray[Any]]:
        is_record = self._field.storage == "record"
        dtype = RECORD if is_record else self._field.item_dtype
        shape = () if is_record else self._field.item_shape
        for part in parts:
            if part.dtype != dtype or part.shape[1:] != shape:
                raise ValueError(
                    f"Field {self._field.name!r} takes parts of shape {('n', *shape)} and dtype {dtype}. "
                    f"Found: {part.shape} {part.dtype}."
                )
            self._values += len(part)
            yield np.ascontiguousarray(part)

    def lengths(self, parts: Iterable[npt.NDArray[Any]]) -> Iterator[npt.NDArray[np.uint64]]:
        width = RECORD.itemsize if self._field.storage == "records" else self._field.item_bytes
        for part in parts:
            wrong = (part < 0) | (part > MAX_VALUE_BYTES) | (part % width != 0)
            if wrong.any():
                at = int(np.flatnonzero(wrong)[0])
                raise ValueError(
                    f"Field {self._field.name!r}: a value has 0 to {MAX_VALUE_BYTES} bytes, a multiple of "
                    f"{width}. Found: {int(part[at])} for sample {self._values + at}."
                )
            self._values += len(part)
            self._said += int(part.sum(dtype=np.uint64))
            yield part.astype(np.uint64)

    def chunks(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts:
            self._bytes += len(part)
            yield part

    def end(self) -> None:
        if self._values != self._count:
            raise ValueError(
                f"Field {self._field.name!r} must have {self._count} values, one per sample. "
                f"Found: {self._values}."
            )
        if self._said != self._bytes:
            raise ValueError(
                f"Field {self._field.name!r}: the lengths come to {self._said} bytes. Found: {self._bytes}."
            )


def open_column(path: Path, field: Field) -> _C.Column:
    """Open a field's file as ``_C.Column``.

    Raises:
        FormatError, ChecksumError, ShardError: it is not one, is damaged, or cannot be read.
    """
    width = 1 if field.storage in ("record", "records") else field.item_bytes
    return _C.Column(str(path), field.storage, width)


def column_wrong(column: _C.Column, file: ColumnFile, count: int) -> str:
    """Return why a column is not the manifest's; "": it is."""
    if column.digest == file.digest and len(column) == count:
        return ""
    return (
        f"does not belong to this manifest: it has {len(column)} values and digest {column.digest:#010x}, "
        f"the manifest says {count} and {file.digest:#010x}"
    )


class Columns(Mapping[str, _C.Column]):
    """The fields of a dataset that have their own files: a ``_C.Column`` by name, opened at first use.

    Args:
        folder: the dataset's.
        schema: its fields.
        manifest: that of its files.

    Raises:
        ShardTruncated: a file is missing or has another size.
    """

    def __init__(self, folder: Path, schema: Schema, manifest: Manifest) -> None:
        self._folder, self._manifest, entries = folder, manifest, manifest.fields
        self._fields = {field.name: (field, column_file(at, entries[at])) for at, field in schema.columns}
        self._opened: dict[str, _C.Column] = {}
        for name, (_, file) in self._fields.items():
            found = size_of(folder / file.file)
            if found != file.size:
                state = "is missing" if found is None else f"has {found} bytes"
                raise ShardTruncated(
                    f"{folder / file.file} (field {name!r}) {state}, the manifest says {file.size} bytes. "
                    "Restore the file, or pack again."
                )

    def __getitem__(self, name: str) -> _C.Column:
        """Return the column of a field.

        Raises:
            KeyError: no field of that name has a file.
            FormatError, ChecksumError, ShardError: the file is damaged, another dataset's, or cannot be read.
        """
        if name not in self._opened:
            manifest, (field, file) = self._manifest, self._fields[name]
            if not exists(self._folder / file.file):
                manifest, file = self._grown(name)
            path = self._folder / file.file
            column = open_column(path, field)
            wrong = column_wrong(column, file, manifest.num_records)
            if wrong:
                raise FormatError(f"{path} {wrong}. Restore both files from the same pack.")
            self._opened[name] = column
        return self._opened[name]

    def _grown(self, name: str) -> tuple[Manifest, ColumnFile]:
        """Return a manifest and its file of a field. If another process has appended to the set since it was
        opened here, they are the present ones: the file begins with the same values."""
        field, file = self._fields[name]
        now = Manifest.read(self._folder)
        if now.generation_of(self._manifest.id) is None:
            return self._manifest, file
        at = next(at for at, one in now.schema.columns if one.name == field.name)
        return now, column_file(at, now.fields[at])

    def path(self, name: str) -> Path:
        """Return the file of a field."""
        return self._folder / self._fields[name][1].file

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def read_record(path: Path, size: int, record: np.void, what: str) -> bytes:
    """Read the bytes that an entry of a record column names from a shard, and check them.

    Args:
        path: the shard's file.
        size: its bytes, according to the manifest.
        record: the entry.
        what: names them, for messages.

    Raises:
        FormatError: it names no bytes of the shard.
        ShardError, ShardTruncated, ChecksumError: they are missing or wrong.
    """
    offset, length = int(record["offset"]), int(record["length"])
    if not length or offset + length > size:
        raise FormatError(
            f"{what} claims {length} bytes at offset {offset} of {path} ({size} bytes). Pack again."
        )
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(length)
    except OSError as error:
        raise ShardError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) != length:
        raise ShardTruncated(f"{path} ends within {what}: {len(data)} of {length} bytes. Restore the shard.")
    found = _C.crc32c(np.frombuffer(data, np.uint8))
    if found != record["crc32c"]:
        raise ChecksumError(
            f"{path}: the CRC-32C of {what} is {found:#010x}, the index says {int(record['crc32c']):#010x}. "
            "Restore the shard."
        )
    return data


# ---- Some samples' values of one field, for packing and the shards' writers ----


@dataclass(frozen=True)
class Chunk:
    """The values of samples, back to back.

    Pictures have index entries, whose offsets count from the start of ``data``; other values are the bytes
    that FORMAT.md defines. Lists of pictures have both.
    """

    data: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.uint64]  # bytes of each sample
    records: npt.NDArray[np.void] | None = None  # RECORD, of pictures
    counts: npt.NDArray[np.int64] | None = None  # of lists of pictures: entries of each sample

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> Chunk:
        """Join the values given one by one."""
        return cls(
            np.frombuffer(b"".join(pieces), np.uint8), np.array([len(piece) for piece in pieces], np.uint64)
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def entry_bytes(self) -> npt.NDArray[np.int64]:
        """Of lists of pictures: the bytes of each sample's entries."""
        assert self.counts is not None
        return self.counts * RECORD.itemsize

    def slice(self, start: int, stop: int) -> Chunk:
        """Return the samples ``[start, stop)``; the bytes are shared."""
        begin = int(self.lengths[:start].sum())
        lengths = self.lengths[start:stop]
        data = self.data[begin : begin + int(lengths.sum())]
        if self.records is None:
            return Chunk(data, lengths)
        if self.counts is None:
            return Chunk(data, lengths, _moved(self.records[start:stop], begin))
        first, counts = int(self.counts[:start].sum()), self.counts[start:stop]
        records = self.records[first : first + int(counts.sum())]
        return Chunk(data, lengths, _moved(records, begin), counts)

    def keep(self, good: npt.NDArray[np.bool_]) -> Chunk:
        """Return the samples for which ``good`` is true."""
        if good.all():
            return self
        kept = [self.slice(i, i + 1) for i in np.flatnonzero(good).tolist()]
        return Chunk.join(kept, like=self.slice(0, 0))

    @staticmethod
    def join(chunks: Sequence[Chunk], like: Chunk | None = None) -> Chunk:
        """Join the samples of all chunks; ``like`` determines their kind if there are no chunks."""
        first = chunks[0] if chunks else like
        assert first is not None
        if len(chunks) == 1 or not chunks:
            return first
        data = np.concatenate([chunk.data for chunk in chunks])
        lengths = np.concatenate([chunk.lengths for chunk in chunks])
        if first.records is None:
            return Chunk(data, lengths)
        begins = np.cumsum([0, *(len(chunk.data) for chunk in chunks[:-1])]).tolist()
        records = np.concatenate(
            [
                _moved(chunk.records, -begin)
                for chunk, begin in zip(chunks, begins, strict=True)
                if chunk.records is not None
            ]
        )
        if first.counts is None:
            return Chunk(data, lengths, records)
        counts = np.concatenate([chunk.counts for chunk in chunks if chunk.counts is not None])
        return Chunk(data, lengths, records, counts)


def _moved(records: npt.NDArray[np.void], by: int) -> npt.NDArray[np.void]:
    """Return entries of data that begin ``by`` bytes later."""
    moved: npt.NDArray[np.void] = records.copy()
    there = moved["length"] > 0  # the others are nowhere
    moved["offset"][there] = moved["offset"][there].astype(np.int64) - by
    return moved
