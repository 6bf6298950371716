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
    head, row = capfd.readouterr().out.splitlines()
    assert head.split() == ["new", "/", "before", "scalar"]
    found = re.fullmatch(r"op \(copy\) +([0-9.]+) \[([0-9.]+)-([0-9.]+)\] +[0-9.]+us", row)
    assert found is not None, row
    least, middle, most = float(found[2]), float(found[1]), float(found[3])
    assert 0 < least <= middle <= most
