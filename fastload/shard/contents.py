"""The content id of a packed dataset: a hash of what its samples are, however they are cut into shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from fastload.errors import FastloadError, ShardError, ShardTruncated
from fastload.shard.index import HEADER, RECORD
from fastload.shard.manifest import Manifest, column_file

_CHUNK = 1 << 13  # entries at a time: 256 KiB, which stay in the processor's cache
_OF_CUTTING = ("file", "size", "digest")  # what a field's entry says of its file
_ENTRY_OF_CUTTING = ("offset", "shard", "reserved")  # what a record's entry says of its place


def with_content(manifest: Manifest, folder: Path) -> Manifest:
    """Return a manifest whose index and columns are complete with their :func:`content_id`."""
    return replace(manifest, content=content_id(manifest, folder))


def content_id(manifest: Manifest, folder: Path) -> str:
    """Return the content id of a dataset, 32 hex digits, as FORMAT.md defines it.

    It reads the index, and the entries of further pictures; other columns are known by their digests. Memory
    does not grow with the number of samples. Ten million records take about a second.

    Args:
        manifest: the dataset's, whose files have been checked, or have just been written.
        folder: the dataset's.

    Raises:
        ShardError, ShardTruncated: a file cannot be read, or is too short.
    """
    found = hashlib.blake2b(_facts(manifest), digest_size=16)
    try:
        for piece in _of_files(manifest, folder):
            found.update(piece)
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise ShardError(f"the tables of {folder} cannot be read: {error.strerror}.") from error
    return found.hexdigest()


def _facts(manifest: Manifest) -> bytes:
    entries = [
        {name: value for name, value in entry.items() if name not in _OF_CUTTING} for entry in manifest.fields
    ]
    facts = [manifest.num_records, list(manifest.classes), entries]
    return json.dumps(facts, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()


def _of_files(manifest: Manifest, folder: Path) -> Iterator[bytes]:
    """Yield what is hashed of the index, then of the columns."""
    with open(folder / manifest.index_name, "rb") as file:
        index = _Table(file)
        yield from index.entries("data_offset", len(index))
        yield from index.table()
        yield from index.pieces("bytes_offset", index.end)
    for number, field in manifest.schema.columns if manifest.fields else ():
        known = column_file(number, manifest.fields[number])
        if field.storage not in ("record", "records"):
            yield known.digest.to_bytes(4, "little")
            continue
        with open(folder / known.file, "rb") as file:
            column = _Table(file)
            if field.storage == "record":
                yield from column.entries("data_offset", len(column))
            else:
                yield from column.table()
                yield from column.entries("bytes_offset", column.end // RECORD.itemsize)


class _Table:
    """A table file, in pieces of bounded size.

    Args:
        file: open at its beginning.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._header = np.frombuffer(self._read(HEADER.itemsize), HEADER)[0]

    def __len__(self) -> int:
        return int(self._header["num_records"])

    @property
    def end(self) -> int:
        """The table's last number: how many bytes it points into."""
        self._file.seek(int(self._header["table_offset"]) + 8 * len(self))
        return int.from_bytes(self._read(8), "little")

    def table(self) -> Iterator[bytes]:
        """Yield the table."""
        return self.pieces("table_offset", 8 * (len(self) + 1))

    def entries(self, begin: str, count: int) -> Iterator[bytes]:
        """Yield entries of records, without their places."""
        for piece in self.pieces(begin, count * RECORD.itemsize):
            entries = np.frombuffer(bytearray(piece), RECORD)
            for name in _ENTRY_OF_CUTTING:
                entries[name] = 0
            yield entries.tobytes()

    def pieces(self, begin: str, size: int) -> Iterator[bytes]:
        """Yield ``size`` bytes from an offset that the header names."""
        self._file.seek(int(self._header[begin]))
        step = _CHUNK * RECORD.itemsize
        return (self._read(min(step, size - at)) for at in range(0, size, step))

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise ShardTruncated(f"{self._file.name} is too short. Restore the file, or pack again.")
        return data
