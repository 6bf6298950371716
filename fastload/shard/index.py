"""``index.fli``: one 32-byte entry a record, and its key. The layout is normative in FORMAT.md.

Only writing happens here; reading is the core's (``csrc/core/shard/index.h``), which checks the
CRC-32C of every page before it uses a value from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C

__all__ = ["HEADER", "PAGE_BYTES", "RECORD", "write_index"]

MAGIC = b"FLINDEX1"
VERSION = (1, 0)
DATA_OFFSET = 4096
PAGE_BYTES = 131072
ALIGN = 64

RECORD = np.dtype(
    [
        ("offset", "<u8"),  # first byte in the shard file
        ("length", "<u4"),  # bytes, >= 1
        ("crc32c", "<u4"),  # of those bytes
        ("label", "<i4"),  # class index, -1: none
        ("shard", "<u4"),  # index into the manifest's shards
        ("width", "<u2"),  # pixels, 0: not known
        ("height", "<u2"),  # pixels, 0: not known
        ("codec", "u1"),  # csrc/core/decode/decode.h, enum Codec
        ("channels", "u1"),  # as stored
        ("flags", "u1"),  # ImageInfo flags
        ("reserved", "u1"),  # 0
    ]
)
assert RECORD.itemsize == 32

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("header_bytes", "<u4"),
        ("num_records", "<u8"),
        ("data_offset", "<u8"),  # the data region: records, key offsets, key bytes
        ("data_size", "<u8"),
        ("page_bytes", "<u8"),
        ("key_offsets", "<u8"),  # file offset of num_records + 1 uint64, relative to key_bytes
        ("key_bytes", "<u8"),  # file offset of the keys' UTF-8 bytes, back to back
        ("pages_offset", "<u8"),  # file offset of one uint32 CRC-32C a page of the data region
        ("file_size", "<u8"),
        ("reserved", "V40"),
        ("pages_crc", "<u4"),  # CRC-32C of the page table
        ("header_crc", "<u4"),  # CRC-32C of the header before this field
    ]
)
assert HEADER.itemsize == 128


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


class _PagedWriter:
    """Writes the data region and collects one CRC a page."""

    def __init__(self, file: object) -> None:
        self._write = file.write  # type: ignore[attr-defined]
        self._page = bytearray()
        self.size = 0
        self.crcs: list[int] = []

    def write(self, data: bytes | memoryview) -> None:
        self._write(data)
        self.size += len(data)
        self._page += data
        while len(self._page) >= PAGE_BYTES:
            self._flush(PAGE_BYTES)

    def align(self) -> None:
        self.write(bytes(_aligned(self.size) - self.size))

    def finish(self) -> npt.NDArray[np.uint32]:
        if self._page:
            self._flush(len(self._page))
        return np.array(self.crcs, dtype="<u4")

    def _flush(self, size: int) -> None:
        self.crcs.append(_C.crc32c(np.frombuffer(bytes(self._page[:size]), np.uint8)))
        del self._page[:size]


def write_index(path: Path, records: Iterable[npt.NDArray[np.void]], keys: Iterable[list[bytes]]) -> None:
    """Write ``index.fli`` at ``path`` (not atomically: give it a temporary name).

    Args:
        path: the file to write.
        records: chunks of :data:`RECORD` arrays, in sample-id order.
        keys: lists of UTF-8 keys, in the same order; iterated twice, so pass a re-iterable.
    """
    header = np.zeros((), HEADER)
    with open(path, "wb") as file:
        file.write(bytes(DATA_OFFSET))
        region = _PagedWriter(file)
        count = 0
        for chunk in records:
            region.write(np.ascontiguousarray(chunk, RECORD).tobytes())
            count += len(chunk)
        region.align()
        header["key_offsets"] = DATA_OFFSET + region.size
        position = 0
        region.write(position.to_bytes(8, "little"))
        for names in keys:
            ends = np.cumsum([len(name) for name in names], dtype=np.uint64) + np.uint64(position)
            if len(ends):
                position = int(ends[-1])
            region.write(ends.astype("<u8").tobytes())
        region.align()
        header["key_bytes"] = DATA_OFFSET + region.size
        for names in keys:
            region.write(b"".join(names))
        region.align()
        pages = region.finish().tobytes()
        file.write(pages)
        header["magic"] = MAGIC
        header["major"], header["minor"] = VERSION
        header["header_bytes"] = HEADER.itemsize
        header["num_records"] = count
        header["data_offset"] = DATA_OFFSET
        header["data_size"] = region.size
        header["page_bytes"] = PAGE_BYTES
        header["pages_offset"] = DATA_OFFSET + region.size
        header["file_size"] = DATA_OFFSET + region.size + len(pages)
        header["pages_crc"] = _C.crc32c(np.frombuffer(pages, np.uint8)) if pages else 0
        header["header_crc"] = _C.crc32c(np.frombuffer(header.tobytes()[:-4], np.uint8))
        file.seek(0)
        file.write(header.tobytes())
        file.flush()
        os.fsync(file.fileno())
