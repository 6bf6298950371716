"""bench_kernels in its smallest form: the build that is tested, beside itself."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import bench_kernels
import pytest

import fastload


def test_a_build_beside_itself(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    package = str(Path(fastload.__file__).resolve().parent.parent)
    options = ["--levels", "scalar", "--only", "(copy)", "--repeats", "5"]
    monkeypatch.setattr(sys, "argv", ["bench_kernels.py", package, *options])
    bench_kernels.main()
    head, _, row = capfd.readouterr().out.splitlines()[:3]
    assert head == "| kernel | scalar |"
    found = re.fullmatch(r"\| \(copy\) \| ([0-9.]+) \[([0-9.]+)-([0-9.]+)\], [0-9.]+ us \|", row)
    assert found is not None, row
    least, middle, most = float(found[2]), float(found[1]), float(found[3])
    assert 0 < least <= middle <= most


def test_each_family_has_files_and_a_test(capfd: pytest.CaptureFixture[str]) -> None:
    checkout = bench_kernels.HERE.parent
    for files, tests in bench_kernels.FAMILIES.values():
        for pattern in files.split():
            assert list((checkout / "csrc" / "core").glob(pattern)), pattern
        for test in tests.split(", "):
            assert (checkout / test).is_file(), test
    bench_kernels.print_lines(checkout, checkout)
    *rows, last = capfd.readouterr().out.splitlines()[3:]
    counts = [[int(cell) for cell in row.split(" | ")[1:3]] for row in rows]
    assert len(counts) == len(bench_kernels.FAMILIES)
    assert all(now == before > 0 for now, before in counts)
    assert f"| all | {sum(now for now, _ in counts):,} |" in last
