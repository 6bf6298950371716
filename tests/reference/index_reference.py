"""The slow, obvious reader of ``index.fli``, from FORMAT.md: plain NumPy, every checksum by the table."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RECORD = np.dtype(
    "<u8,<u4,<u4,<i4,<u4,<u2,<u2,u1,u1,u1,u1"
)  # offset, length, crc32c, label, shard, width, height, codec, channels, flags, reserved
FIELDS = (
    "offset", "length", "crc32c", "label", "shard", "width", "height",
    "codec", "channels", "flags", "reserved",
)  # fmt: skip


def crc32c_reference(data: bytes) -> int:
    """CRC-32C one bit at a time (reflected polynomial 0x82F63B78)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@dataclass
class ReferenceIndex:
    """What the file says, all of it in memory."""

    records: np.ndarray
    keys: list[bytes]
    digest: int


def read_index(path: Path) -> ReferenceIndex:
    """Read and check ``index.fli``; AssertionError if anything breaks FORMAT.md."""
    data = path.read_bytes()
    assert data[:8] == b"FLINDEX1"
    major, minor = np.frombuffer(data, "<u2", 2, 8)
    header_bytes = int.from_bytes(data[12:16], "little")
    assert (major, minor, header_bytes) == (1, 0, 128)
    numbers = [int(n) for n in np.frombuffer(data, "<u8", 8, 16)]
    count, data_offset, data_size, page_bytes, key_offsets, key_bytes, pages_offset, file_size = numbers
    assert data[80:120] == bytes(40)  # spacing and digest, which only entries.fli has, and reserved
    pages_crc, header_crc = (int(n) for n in np.frombuffer(data, "<u4", 2, 120))
    assert header_crc == crc32c_reference(data[:124])
    assert file_size == len(data)
    assert pages_offset == data_offset + data_size
    pages = np.frombuffer(data, "<u4", -(-data_size // page_bytes), pages_offset)
    assert pages_offset + pages.nbytes == file_size
    assert pages_crc == crc32c_reference(pages.tobytes())
    for i, crc in enumerate(pages.tolist()):
        begin = data_offset + i * page_bytes
        assert crc == crc32c_reference(data[begin : min(begin + page_bytes, pages_offset)])
    records = np.frombuffer(data, RECORD, count, data_offset)
    records = records.view(np.dtype({"names": FIELDS, "formats": [RECORD[i] for i in range(len(FIELDS))]}))
    ends = np.frombuffer(data, "<u8", count + 1, key_offsets).tolist()
    keys = [data[key_bytes + a : key_bytes + b] for a, b in itertools.pairwise(ends)]
    return ReferenceIndex(records, keys, crc32c_reference(data[:128] + pages.tobytes()))
