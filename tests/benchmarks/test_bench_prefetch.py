"""bench_prefetch in its smallest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from small_photos import environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_prefetch() -> None:
    line = [sys.executable, str(BENCHMARKS / "bench_prefetch.py"), "--milliseconds", "0.02", "--batches", "5"]
    options = ["--batch-size", "20", "--threads", "2", "--prefetch", "2"]
    done = subprocess.run(
        line + options, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in done.stdout.splitlines() if row.startswith("| 2 |")]
    assert [row.split("|")[2].strip() for row in rows] == ["1% cost 100 times", "all cost the mean"]
    assert "whole batches as the unit of work" in done.stdout
