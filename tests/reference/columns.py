"""Columns as FORMAT.md states them, written byte by byte: what the core's reader is compared with."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fastload._native import _C

DATA = 4096
PAGE = 64  # bytes; small, so that values lie across pages


def crc32c(data: bytes) -> int:
    return int(_C.crc32c(np.frombuffer(data, np.uint8)))


def column_bytes(
    values: Sequence[bytes], width: int = 0, *, offsets: Sequence[int] | None = None, page: int = PAGE
) -> bytes:
    """The file of a column: ``width`` 0 for values of differing length."""
    count = len(values)
    ends = [0, *np.cumsum([len(value) for value in values], dtype=np.int64).tolist()]
    table = b"" if width else struct.pack(f"<{count + 1}Q", *(offsets or ends))
    data = b"".join(values) if width else table + b"".join(values)
    table_at = DATA + len(data) if width else DATA
    bytes_at = DATA + len(data) if width else DATA + len(table)
    pages = [crc32c(data[at : at + page]) for at in range(0, len(data), page)]
    page_table = struct.pack(f"<{len(pages)}I", *pages)
    size = DATA + len(data) + len(page_table)
    header = struct.pack("<8sHHIQQQQ", b"FLFIELD1", 1, 0, 128, count, DATA, len(data), page)
    header += struct.pack("<QQQQII32s", table_at, bytes_at, DATA + len(data), size, width, 0, b"")
    header += struct.pack("<I", crc32c(page_table))
    header += struct.pack("<I", crc32c(header))
    return header.ljust(DATA, b"\0") + data + page_table


def write_column(path: Path, values: Sequence[bytes], width: int = 0, **more: object) -> Path:
    path.write_bytes(column_bytes(values, width, **more))  # type: ignore[arg-type]
    return path
