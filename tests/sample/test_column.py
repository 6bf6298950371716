"""A column's values are the bytes that were written; hostile files are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from columns import DATA, column_bytes, write_column

from fastload._native import _C
from fastload.errors import ChecksumError, FormatError, ShardTruncated


def some_values(count: int, most: int, rows: int = 1) -> list[bytes]:
    rng = np.random.default_rng(count)
    return [rng.bytes(rows * int(rng.integers(0, most))) for _ in range(count)]


@pytest.mark.parametrize("width", [1, 4, 12, 300])
def test_fixed_values_are_what_was_written(tmp_path: Path, width: int) -> None:
    values = [np.random.default_rng(i).bytes(width) for i in range(40)]
    column = _C.Column(str(write_column(tmp_path / "c", values, width)), "fixed", width)
    assert len(column) == 40
    assert [column.value(i) for i in range(40)] == values
    ids = np.array([7, 0, 39, 7])
    data, ends = column.gather(ids)
    assert data.tobytes() == b"".join(values[i] for i in ids)
    assert ends.tolist() == [0, width, 2 * width, 3 * width, 4 * width]
    column.verify()


@pytest.mark.parametrize("rows", [1, 16])
def test_ragged_values_are_what_was_written(tmp_path: Path, rows: int) -> None:
    values = some_values(50, 9, rows)
    assert b"" in values
    column = _C.Column(str(write_column(tmp_path / "c", values)), "ragged", rows)
    assert [column.value(i) for i in range(50)] == values
    ids = np.arange(49, -1, -1)
    data, ends = column.gather(ids)
    assert data.tobytes() == b"".join(reversed(values))
    assert np.diff(ends).tolist() == [len(value) for value in reversed(values)]
    column.verify()


def test_entries_of_records(tmp_path: Path) -> None:
    values = [np.random.default_rng(i).bytes(32) for i in range(5)]
    column = _C.Column(str(write_column(tmp_path / "c", values, 32)), "record")
    assert [column.record(i) for i in range(5)] == values
    with pytest.raises(ValueError, match="below 5. Found: 5"):
        column.record(5)


def test_a_column_of_another_kind_is_refused(tmp_path: Path) -> None:
    fixed = str(write_column(tmp_path / "fixed", [b"abcdefgh"] * 3, 8))
    ragged = str(write_column(tmp_path / "ragged", [b"abcd"] * 3))
    with pytest.raises(FormatError, match="values of 8 bytes, the field's are values of 4 bytes.*pack again"):
        _C.Column(fixed, "fixed", 4)
    with pytest.raises(FormatError, match="tables lie outside"):
        _C.Column(fixed, "ragged", 1)
    with pytest.raises(FormatError, match="differing length"):
        _C.Column(ragged, "fixed", 4)
    with pytest.raises(ValueError, match="at least 1 byte"):
        _C.Column(fixed, "fixed", 0)
    with pytest.raises(ValueError, match="Found: 'rows'"):
        _C.Column(fixed, "rows", 4)


@pytest.mark.parametrize(
    ("offsets", "sample"), [([0, 8, 4, 16], 1), ([0, 4, 8, 1 << 60], 2), ([0, 3, 8, 16], 0)]
)
def test_offsets_that_fall_leave_the_file_or_cut_a_row(
    tmp_path: Path, offsets: list[int], sample: int
) -> None:
    path = write_column(tmp_path / "c", [b"abcd", b"efgh", b"12345678"], offsets=offsets)
    column = _C.Column(str(path), "ragged", 4)
    with pytest.raises(FormatError, match=f"the value of sample {sample}"):
        column.value(sample)
    with pytest.raises(FormatError, match="the value of sample"):
        column.verify()


def test_damage_is_found_when_a_value_on_it_is_used(tmp_path: Path) -> None:
    values = [bytes([i]) * 16 for i in range(16)]
    data = bytearray(column_bytes(values, 16))
    data[DATA + 16 * 9] ^= 1
    (tmp_path / "c").write_bytes(data)
    column = _C.Column(str(tmp_path / "c"), "fixed", 16)
    assert column.value(0) == values[0]
    with pytest.raises(ChecksumError):
        column.value(9)
    (tmp_path / "c").write_bytes(data[:-1])
    with pytest.raises(ShardTruncated):
        _C.Column(str(tmp_path / "c"), "fixed", 16)


def test_more_values_than_the_file_has_bytes(tmp_path: Path) -> None:
    path = write_column(tmp_path / "c", [b"abcd"] * 3, 2)  # says 3 values of 2 bytes in 12: may be
    assert _C.Column(str(path), "fixed", 2).value(2) == b"ab"
    path = write_column(tmp_path / "d", [b"ab"] * 3, 4)
    with pytest.raises(FormatError, match="outside the data region"):
        _C.Column(str(path), "fixed", 4)
