"""bench_decoded in its smallest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_photos import environment, write_photos

from fastload._native import _C

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_decoded(tmp_path: Path) -> None:
    memory = "/dev/shm"
    if not Path(memory).is_dir() or not _C.file_system(memory)["in_memory"]:
        pytest.skip("no file system in memory")
    write_photos(tmp_path / "photos", 12)
    options = ["--sides", "32,full", "--batch-size", "6", "--epochs", "1", "--threads", "1"]
    command = [sys.executable, str(BENCHMARKS / "bench_decoded.py"), str(tmp_path / "photos"), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if "[" in line]
    names = [row[1] for row in rows]
    tiers = ["32, ready", "32, no room", "full, ready", "full, no room"]
    assert names == ["without the tier", "coefficient records, ready", *tiers]
    assert rows[0][5] == "1.00 [1.00-1.00]"
    assert [row[2] for row in rows[2:4]] == ["2", "0"]
    assert int(rows[4][2]) > 10
