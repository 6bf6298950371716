"""index.fli and entries.fli byte by byte against the layout of FORMAT.md, written by another hand."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from fastload._native import _C
from fastload.errors import ShardError, ShardTruncated
from fastload.shard.index import RECORD, Parts, check_sizes, size_of, write_index, write_paged

PAGE = 131072


def crc(data: bytes) -> int:
    return int(_C.crc32c(np.frombuffer(data, np.uint8))) if data else 0


def aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)


def table(values: list[bytes]) -> bytes:
    ends = [sum(map(len, values[:i])) for i in range(len(values) + 1)]
    return struct.pack(f"<{len(ends)}Q", *ends)


def framed(data: bytes, magic: bytes, count: int, table_at: int, bytes_at: int, **more: object) -> bytes:
    """The whole file of a data region."""
    page = int(more.get("page", PAGE))  # type: ignore[call-overload]
    pages = b"".join(struct.pack("<I", crc(data[i : i + page])) for i in range(0, len(data), page))
    end = 4096 + len(data)
    head = magic + struct.pack("<HHI", 1, more.get("minor", 0), 128)
    head += struct.pack("<8Q", count, 4096, len(data), page, table_at, bytes_at, end, end + len(pages))
    head += struct.pack("<II", more.get("spacing", 0), more.get("digest", 0))
    head += bytes(more.get("fields", bytes(16)))  # type: ignore[call-overload]
    head += struct.pack("<QI4xI", more.get("parts", 0), more.get("part_bytes", 0), crc(pages))
    head += struct.pack("<I", crc(head))
    assert len(head) == 128
    return head + bytes(4096 - 128) + data + pages


def records_of(count: int) -> np.ndarray:
    words = np.random.default_rng(count).integers(0, 256, (count, 32), np.uint8)
    return words.view(RECORD)[:, 0]


def test_an_entry_of_the_index() -> None:
    names = ("offset", "length", "crc32c", "label", "shard", "width", "height", "codec", "channels")
    assert RECORD.names == (*names, "flags", "reserved")
    record = np.zeros((), RECORD)
    for i, name in enumerate(RECORD.names or ()):
        record[name] = i + 1
    assert record.tobytes() == struct.pack("<QIIiIHHBBBB", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


@pytest.mark.parametrize("digest", [b"", bytes(range(16))])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5000])
def test_the_index(tmp_path: Path, count: int, digest: bytes) -> None:
    records, keys = records_of(count), [b"k" * (i % 70) for i in range(count)]
    cut = count // 3
    write_index(
        tmp_path / "i", [records[:cut], records[cut:]], [keys[:cut], [], keys[cut:]], fields_digest=digest
    )
    data = aligned(records.tobytes())
    table_at = 4096 + len(data)
    data = aligned(data + table(keys))
    bytes_at = 4096 + len(data)
    data = aligned(data + b"".join(keys)) + digest.ljust(64, b"\0") * bool(digest)
    wanted = framed(data, b"FLINDEX1", count, table_at, bytes_at, fields=digest.ljust(16, b"\0"))
    assert (tmp_path / "i").read_bytes() == wanted


def test_records_of_another_layout_become_these(tmp_path: Path) -> None:
    records = records_of(6)
    write_index(tmp_path / "a", [records[::2]], [[b"", b"", b""]])
    write_index(tmp_path / "b", [np.ascontiguousarray(records[::2])], [[b"", b"", b""]])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("page", [64, 100, PAGE])
def test_entries_with_parts(tmp_path: Path, page: int) -> None:
    values, parts = [b"a" * 70, b"", b"bc"], [b"", b"d" * 100, b"e"]
    lengths = [[np.array([len(v) for v in given], np.uint64)] for given in (values, parts)]
    write_paged(
        tmp_path / "e", b"FLENTRY1", (), lengths[0], iter(values), 16, 77, page_bytes=page,
        parts=Parts(lengths[1], iter(parts), 4096),
    )  # fmt: skip
    data = aligned(table(values))
    bytes_at = 4096 + len(data)
    data = aligned(data + b"".join(values))
    parts_at = 4096 + len(data)
    data = aligned(aligned(data + table(parts)) + b"".join(parts))
    assert (tmp_path / "e").read_bytes() == framed(
        data, b"FLENTRY1", 3, 4096, bytes_at,
        page=page, minor=1, spacing=16, digest=77, parts=parts_at, part_bytes=4096,
    )  # fmt: skip


def test_a_column_without_a_table(tmp_path: Path) -> None:
    values = np.arange(50, dtype="<f4")
    write_paged(tmp_path / "c", b"FLFIELD1", [values[:20], values[20:]], spacing=4, page_bytes=16384)
    data = aligned(values.tobytes())
    end = 4096 + len(data)
    wanted = framed(data, b"FLFIELD1", 50, end, end, page=16384, spacing=4)
    assert (tmp_path / "c").read_bytes() == wanted


def test_a_table_is_on_the_device_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    write_index(tmp_path / "i", [records_of(3)], [[b"a", b"b", b"c"]])
    assert synced == [(tmp_path / "i").read_bytes()]


def test_sizes_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "empty").write_bytes(b"")
    assert size_of(tmp_path / "a") == 5
    assert size_of(tmp_path / "empty") == 0
    assert size_of(tmp_path / "nothing") is None
    with pytest.raises(ShardError, match=r"a/b cannot be opened: Not a directory\."):
        size_of(tmp_path / "a" / "b")
    check_sizes([(str(tmp_path / "a"), 5), (str(tmp_path / "empty"), 0)])
    check_sizes([])
    with pytest.raises(ShardTruncated, match="a has 5 bytes, the manifest says 6 bytes. Restore"):
        check_sizes([(str(tmp_path / "empty"), 0), (str(tmp_path / "a"), 6)])
    with pytest.raises(ShardTruncated, match="nothing is missing, the manifest says 0 bytes. Restore"):
        check_sizes([(str(tmp_path / "nothing"), 0)])
