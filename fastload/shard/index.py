"""``index.fli``: one 32-byte entry per record, and its key; and the checksummed pages of all table files."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import ShardError, ShardTruncated

# ---- Writing the checksummed table files ``index.fli``, ``entries.fli``, ``field-NN.fli`` (FORMAT.md) ----
# The core reads them (``csrc/core/shard/paged_file.h``); it checks the CRC-32C of every page before it uses a
# value from it.

VERSION = (1, 0)
VERSION_WITH_PARTS = (1, 1)
DATA_OFFSET = 4096
PAGE_BYTES = 131072
ALIGN = 64

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("header_bytes", "<u4"),
        ("num_records", "<u8"),
        ("data_offset", "<u8"),  # the data region: fixed-size entries, table, variable-size bytes
        ("data_size", "<u8"),
        ("page_bytes", "<u8"),
        ("table_offset", "<u8"),  # file offset of num_records + 1 uint64: where each record's bytes begin
        ("bytes_offset", "<u8"),  # file offset of those bytes: keys, or packed entry points
        ("pages_offset", "<u8"),  # file offset of one uint32 CRC-32C per page of the data region
        ("file_size", "<u8"),
        (
            "spacing",
            "<u4",
        ),  # entries.fli: pixels between entry points; field-NN.fli: bytes of a value
        ("index_digest", "<u4"),  # entries.fli: digest of the index it belongs to; index.fli: 0
        ("fields_digest", "V16"),  # index.fli of version 1.1: of the manifest's fields
        ("parts_offset", "<u8"),  # entries.fli of version 1.1: file offset of the parts' table; 0: none
        ("part_bytes", "<u4"),  # of a part
        ("reserved", "V4"),
        ("pages_crc", "<u4"),  # CRC-32C of the page table
        ("header_crc", "<u4"),  # CRC-32C of the header before this field
    ]
)
assert HEADER.itemsize == 128


@dataclass(frozen=True)
class Parts:
    """The second table of ``entries.fli``: what is stored about the parts of large records."""

    lengths: Iterable[npt.NDArray[np.uint64]]  # bytes per record, in any number of arrays
    chunks: Iterable[bytes]  # those bytes, back to back
    part_bytes: int


class _Region:
    """A writer of the data region that collects one CRC per page."""

    def __init__(self, file: IO[bytes], page_bytes: int) -> None:
        self._file, self._page_bytes = file, page_bytes
        self._page = bytearray()
        self._crcs = array("I")
        self.size = 0

    @property
    def end(self) -> int:
        """The file offset after what was written."""
        return DATA_OFFSET + self.size

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self.size += len(data)
        self._page += data
        while len(self._page) >= self._page_bytes:
            self._flush(self._page_bytes)

    def align(self) -> None:
        self.write(bytes(-self.size % ALIGN))

    def page_table(self) -> bytes:
        if self._page:
            self._flush(len(self._page))
        return np.array(self._crcs, dtype="<u4").tobytes()

    def _flush(self, size: int) -> None:
        self._crcs.append(_C.crc32c(np.frombuffer(bytes(self._page[:size]), np.uint8)))
        del self._page[:size]


def _write_table(region: _Region, lengths: Iterable[npt.NDArray[np.uint64]]) -> int:
    """Write the table; return the number of lengths."""
    position, count = np.uint64(0), 0
    region.write(position.tobytes())
    for chunk in lengths:
        count += len(chunk)
        ends = np.cumsum(chunk, dtype=np.uint64) + position
        position = ends[-1] if len(ends) else position
        region.write(ends.astype("<u8").tobytes())
    return count


def write_paged(
    path: Path,
    magic: bytes,
    fixed: Iterable[npt.NDArray[Any]],
    lengths: Iterable[npt.NDArray[np.uint64]] | None = None,
    chunks: Iterable[bytes] = (),
    spacing: int = 0,
    index_digest: int = 0,
    fields_digest: bytes = b"",
    page_bytes: int = PAGE_BYTES,
    parts: Parts | None = None,
) -> None:
    """Write such a file at ``path`` and fsync it (not atomically: pass a temporary name).

    Args:
        path: the file to write.
        magic: its first 8 bytes.
        fixed: the fixed-size entries, in sample-id order, in any number of parts.
        lengths: the lengths in bytes of the variable-size parts, one per record, in any number of arrays;
            None: there are none, and no table.
        chunks: those bytes, back to back, in any number of pieces.
        spacing: header field.
        index_digest: header field of ``entries.fli``.
        fields_digest: header field of ``index.fli``, and the end of its data region.
        page_bytes: how much is read and checked to use one value.
        parts: of ``entries.fli``; None: there are none.
    """
    header = np.zeros((), HEADER)
    count = 0
    with open(path, "wb") as file:
        file.write(bytes(DATA_OFFSET))
        region = _Region(file, page_bytes)
        for part in fixed:
            count += len(part)
            region.write(part.tobytes())
        region.align()
        header["table_offset"] = region.end
        if lengths is not None:
            count = _write_table(region, lengths)
            region.align()
        header["bytes_offset"] = region.end
        for chunk in chunks:
            region.write(chunk)
        region.align()
        if parts is not None:
            header["parts_offset"], header["part_bytes"] = region.end, parts.part_bytes
            _write_table(region, parts.lengths)
            region.align()
            for chunk in parts.chunks:
                region.write(chunk)
            region.align()
        if (
            fields_digest
        ):  # in the region, too: a header ends with its own CRC, so no CRC over it tells two apart
            region.write(fields_digest.ljust(ALIGN, b"\0"))
        pages = region.page_table()
        file.write(pages)
        header["magic"] = magic
        header["major"], header["minor"] = VERSION if parts is None else VERSION_WITH_PARTS
        header["header_bytes"] = HEADER.itemsize
        header["num_records"] = count
        header["data_offset"] = DATA_OFFSET
        header["data_size"] = region.size
        header["page_bytes"] = page_bytes
        header["pages_offset"] = region.end
        header["file_size"] = region.end + len(pages)
        header["spacing"] = spacing
        header["index_digest"] = index_digest
        header["fields_digest"] = fields_digest
        header["pages_crc"] = _C.crc32c(np.frombuffer(pages, np.uint8)) if pages else 0
        header["header_crc"] = _C.crc32c(np.frombuffer(header.tobytes()[:-4], np.uint8))
        file.seek(0)
        file.write(header.tobytes())
        file.flush()
        os.fsync(file.fileno())


def size_of(path: str | Path) -> int | None:
    """Return the bytes of a file; None: it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ShardError(f"{path} cannot be opened: {error.strerror}.") from None


def check_sizes(shards: Sequence[tuple[str, int]]) -> None:
    """Raise ShardTruncated unless all files, passed with their sizes, exist and have those sizes."""
    for name, size in shards:
        found = size_of(name)
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes"
            raise ShardTruncated(f"{name} {state}, the manifest says {size} bytes. Restore the shard.")


# ---- ``index.fli`` (layout: FORMAT.md) ----

MAGIC = b"FLINDEX1"

RECORD = np.dtype(
    [
        ("offset", "<u8"),  # first byte in the shard file
        ("length", "<u4"),  # bytes, >= 1
        ("crc32c", "<u4"),  # of those bytes
        ("label", "<i4"),  # class index, -1: none
        ("shard", "<u4"),  # index into the manifest's shards
        ("width", "<u2"),  # pixels, 0: not known
        ("height", "<u2"),  # pixels, 0: not known
        ("codec", "u1"),  # fastload.shard.codecs
        ("channels", "u1"),  # as stored
        ("flags", "u1"),  # ImageInfo flags
        ("reserved", "u1"),  # 0
    ]
)


def as_rows(records: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """Return a (n, 32) uint8 view of contiguous RECORD entries, as the core takes them."""
    return records.view(np.uint8).reshape(len(records), RECORD.itemsize)


assert RECORD.itemsize == 32


def write_index(
    path: Path,
    records: Iterable[npt.NDArray[np.void]],
    keys: Iterable[list[bytes]],
    fields_digest: bytes = b"",
) -> None:
    """Write ``index.fli`` at ``path`` (not atomically: pass a temporary name).

    Args:
        path: the file to write.
        records: chunks of :data:`RECORD` arrays, in sample-id order.
        keys: lists of UTF-8 keys, in the same order; iterated twice, so pass a re-iterable.
        fields_digest: of the manifest's fields; see :func:`fastload.shard.manifest.fields_digest`.
    """
    write_paged(
        path,
        MAGIC,
        (np.ascontiguousarray(chunk, RECORD) for chunk in records),
        (np.array([len(name) for name in names], np.uint64) for names in keys),
        (b"".join(names) for names in keys),
        fields_digest=fields_digest,
    )
