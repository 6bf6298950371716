"""bench_columns in its smallest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from small_photos import environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_columns(tmp_path: Path) -> None:
    line = [sys.executable, str(BENCHMARKS / "bench_columns.py"), "--samples", "5000", "--processes", "2"]
    options = ["--workdir", str(tmp_path), "--output", str(tmp_path / "columns.json")]
    done = subprocess.run(
        line + options, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in done.stdout.splitlines() if " samples, " in row]
    assert [row.split("|")[1].strip() for row in rows] == [
        "5,000 samples, 1 process",
        "5,000 samples, 2 processes",
        "50 samples, 1 process",
        "50 samples, 2 processes",
    ]
    assert all(row.count("[") == 5 for row in rows)
