"""bench_streams.py: one short turn of each stream."""

from __future__ import annotations

import bench_streams
import pytest
from pictures import jpegs
from plain_pack import plain_pack


def test_each_stream_has_a_row(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = plain_pack(tmp_path / "packed", jpegs(64), [0] * 64).folder
    assert bench_streams.main([str(packed), "--seconds", "0.1", "--repeats", "1", "--threads", "1"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row[:16].strip() for row in rows] == list(bench_streams.STREAMS)
    assert all(float(row[16:26]) > 0 for row in rows)
