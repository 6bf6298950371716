"""bench_callables in its smallest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from small_photos import environment, write_photos

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_callables(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 12)
    options = ["--only", "tensor", "--batch-size", "2", "--seconds", "0.01"]
    command = [sys.executable, str(BENCHMARKS / "bench_callables.py"), str(tmp_path / "photos"), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if "[" in line]
    ours = [f"fastload, {workers}" for workers in range(4)]
    theirs = [f"torch, {workers}" for workers in (1, 2, 3)]
    assert [row[2].removesuffix(" (best)") for row in rows] == [*ours, "prototype, threads", *theirs]
    assert [row[4] for row in rows if row[2].endswith(" (best)")] == ["1.00 [1.00-1.00]"]
