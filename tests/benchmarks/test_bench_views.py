"""bench_views in its smallest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from small_photos import environment, write_photos

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_views(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 12)
    options = ["--count", "16", "--batch-size", "3", "--only", "colours"]
    command = [sys.executable, str(BENCHMARKS / "bench_views.py"), str(tmp_path / "photos"), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if "[" in line]
    ways = ["cheaper", "once", "apart", "one view"]
    recipes = ["SimCLR, colours", "DINO, colours"]
    assert [row[1:4] for row in rows] == [
        [recipe, entries, way] for entries in ("entry points", "none") for recipe in recipes for way in ways
    ]
    assert all(row[7] == "1.00 [1.00-1.00]" for row in rows if row[3] == "apart")
