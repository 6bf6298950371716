"""The content id of a packed dataset: a hash of what its samples are, however they are cut into shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastload.errors import ShardTruncated
from fastload.shard.index import HEADER, RECORD
from fastload.shard.manifest import Manifest, column_file

_CHUNK = 1 << 15  # entries at a time: a megabyte, which stays in the processor's cache
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
        OSError, ShardTruncated: a file cannot be read, or is too short.
    """
    entries = [
        {name: value for name, value in entry.items() if name not in _OF_CUTTING} for entry in manifest.fields
    ]
    facts = [manifest.num_records, list(manifest.classes), entries]
    text = json.dumps(facts, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    found = hashlib.blake2b(text.encode(), digest_size=16)
    for piece in _index_pieces(folder / manifest.index_name):
        found.update(piece)
    for number, field in manifest.schema.columns if manifest.fields else ():
        file = column_file(number, manifest.fields[number])
        if field.storage == "record":
            pieces = _entries(folder / file.file, "data_offset")
        elif field.storage == "records":
            pieces = _list_pieces(folder / file.file)
        else:
            pieces = iter([np.uint32(file.digest).astype("<u4").tobytes()])
        for piece in pieces:
            found.update(piece)
    return found.hexdigest()


def _index_pieces(path: Path) -> Iterator[bytes]:
    """Yield the entries without their places, the table of the keys, and the keys."""
    yield from _entries(path, "data_offset")
    yield from _table(path)
    yield from _pieces(path, "bytes_offset", _table_end(path))


def _list_pieces(path: Path) -> Iterator[bytes]:
    """Yield the table of lists of pictures, and the entries without their places."""
    yield from _table(path)
    yield from _entries(path, "bytes_offset", _table_end(path) // RECORD.itemsize)


def _header(path: Path) -> np.void:
    header: np.void = np.fromfile(path, HEADER, 1)[0]
    return header


def _table(path: Path) -> Iterator[bytes]:
    return _pieces(path, "table_offset", 8 * (int(_header(path)["num_records"]) + 1))


def _table_end(path: Path) -> int:
    """Return the last number of a table: all its bytes."""
    header = _header(path)
    at = int(header["table_offset"]) + 8 * int(header["num_records"])
    return int(np.fromfile(path, "<u8", 1, offset=at)[0])


def _entries(path: Path, begin: str, count: int | None = None) -> Iterator[bytes]:
    count = int(_header(path)["num_records"]) if count is None else count
    for piece in _pieces(path, begin, count * RECORD.itemsize):
        entries = np.frombuffer(bytearray(piece), RECORD)
        for name in _ENTRY_OF_CUTTING:
            entries[name] = 0
        yield entries.tobytes()


def _pieces(path: Path, begin: str, size: int) -> Iterator[bytes]:
    """Yield ``size`` bytes of a file from an offset that its header names."""
    with open(path, "rb") as file:
        file.seek(int(_header(path)[begin]))
        while size:
            piece = file.read(min(size, _CHUNK * RECORD.itemsize))
            if not piece:
                raise ShardTruncated(f"{path} ends {size} bytes too early. Restore the file, or pack again.")
            size -= len(piece)
            yield piece
