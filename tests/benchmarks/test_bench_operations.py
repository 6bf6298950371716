"""bench_operations in its smallest form: it has each operation of the core, and its rows run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import bench_operations
import pytest
from bench_transform import available, measure

from fastload._native import _C


def test_each_operation_has_a_row_with_its_numbers() -> None:
    assert {name for _, name, _, _ in bench_operations.ROWS} == set(_C.PIXEL_OPERATIONS)
    titles = [title for title, _, _, _ in bench_operations.ROWS]
    assert len(titles) == len(set(titles))


def test_its_rows_run_and_the_copy_is_taken_off() -> None:
    best = _C.simd_level()
    try:
        found = measure(bench_operations.tasks(8, set()), available(), 1)
    finally:
        _C.set_simd_level(best)
    less = bench_operations.without_copy(found)
    assert len(less) == len(bench_operations.ROWS) + 1
    copy = found[bench_operations.COPY][best][0]
    assert less[bench_operations.COPY][best] == [copy]
    assert less["hue"][best] == [found["hue"][best][0] - copy]
    assert less["hue"]["pillow"] == found["hue"]["pillow"]


def test_the_command_prints_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["bench_operations.py", *arguments])
        return bench_operations.main()

    best = _C.simd_level()
    try:
        run("--size", "8", "--only", "hue,invert", "--repeats", "5", "--json", str(tmp_path / "all.json"))
    finally:
        _C.set_simd_level(best)
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["(copy)", "invert", "hue"]
    assert (tmp_path / "all.json").stat().st_size > 100
    with pytest.raises(SystemExit):
        run("--only", "sharpen")
    assert "no operations: sharpen" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("--repeats", "4")
