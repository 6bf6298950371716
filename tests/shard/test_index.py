"""index.fli: what was written comes back; every damaged byte and every cut is found before its use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload._native import _C
from fastload.errors import ChecksumError, FastloadError, FormatError, ShardError, ShardTruncated
from fastload.shard.index import DATA_OFFSET, HEADER, PAGE_BYTES, RECORD, write_index


def records_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, RECORD.itemsize), np.uint8).view(RECORD)[:, 0]


def written(path: Path, count: int, keys: list[bytes] | None = None) -> np.ndarray:
    records = records_of(count)
    write_index(path, [records], [keys if keys is not None else [b"k%d" % i for i in range(count)]])
    return records


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30).map(str.encode), max_size=40),
    st.integers(1, 7),
)
def test_round_trip_whatever_the_chunks(
    tmp_path_factory: pytest.TempPathFactory, keys: list[bytes], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "index.fli"
    records = records_of(len(keys))
    starts = range(0, len(keys), chunk)
    write_index(path, [records[i : i + chunk] for i in starts], [keys[i : i + chunk] for i in starts])
    index = _C.Index(str(path))
    assert len(index) == len(keys)
    assert index.records().tobytes() == records.tobytes()
    assert [index.key(i) for i in range(len(keys))] == keys
    index.verify()


def test_many_pages(tmp_path: Path) -> None:
    count = 3 * PAGE_BYTES // RECORD.itemsize + 5
    records = written(tmp_path / "i", count)
    index = _C.Index(str(tmp_path / "i"))
    assert index.records().tobytes() == records.tobytes()
    assert index.key(count - 1) == b"k%d" % (count - 1)
    assert np.array_equal(np.fromfile(tmp_path / "i", RECORD, count, offset=DATA_OFFSET), records)


def test_only_the_pages_that_are_used_are_checked(tmp_path: Path) -> None:
    count = 3 * PAGE_BYTES // RECORD.itemsize
    written(tmp_path / "i", count)
    content = bytearray((tmp_path / "i").read_bytes())
    content[DATA_OFFSET + 2 * PAGE_BYTES + 7] ^= 1  # the third page of records
    (tmp_path / "i").write_bytes(content)
    index = _C.Index(str(tmp_path / "i"))
    index.key(0)
    with pytest.raises(ChecksumError, match=r"bytes 266240 to \d+ have CRC-32C"):
        index.records()
    with pytest.raises(ChecksumError):
        index.verify()


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "i"
    written(path, 3, [b"a", b"bc", b"def"])
    whole = path.read_bytes()
    skipped = range(HEADER.itemsize, DATA_OFFSET)  # the gap between header and data holds no value
    assert len(whole) > DATA_OFFSET
    for at in sorted({*range(len(whole))} - {*skipped}):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(FastloadError):
            _C.Index(str(path)).verify()


def test_every_cut_is_found(tmp_path: Path) -> None:
    path = tmp_path / "i"
    written(path, 3)
    whole = path.read_bytes()
    for end in [*range(0, 200), *range(DATA_OFFSET - 3, len(whole))]:
        path.write_bytes(whole[:end])
        with pytest.raises((FormatError, ShardTruncated)):
            _C.Index(str(path))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"cannot open .*nothing.fli: No such file"):
        _C.Index(str(tmp_path / "nothing.fli"))


def test_a_newer_version_says_so(tmp_path: Path) -> None:
    written(tmp_path / "i", 2)
    content = bytearray((tmp_path / "i").read_bytes())
    header = np.frombuffer(content[: HEADER.itemsize], HEADER)[0].copy()
    header["major"] = 2
    header["header_crc"] = _C.crc32c(np.frombuffer(header.tobytes()[:-4], np.uint8))
    (tmp_path / "i").write_bytes(header.tobytes() + bytes(content[HEADER.itemsize :]))
    with pytest.raises(FormatError, match="format version 2, this fastload reads 1"):
        _C.Index(str(tmp_path / "i"))


def test_sample_ids_out_of_range(tmp_path: Path) -> None:
    written(tmp_path / "i", 2)
    index = _C.Index(str(tmp_path / "i"))
    with pytest.raises(ValueError, match="Sample id must be below 2. Found: 2"):
        index.key(2)


def test_crc32c_hardware_equals_the_table() -> None:
    data = np.random.default_rng(1).integers(0, 256, 300, np.uint8)
    for start in range(9):
        for end in range(start, 300, 13):
            part = np.ascontiguousarray(data[start:end])
            assert _C.crc32c(part) == _C.crc32c_table(part)
    assert _C.crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283
    assert _C.crc32c(data[100:].copy(), _C.crc32c(data[:100].copy())) == _C.crc32c(data)
