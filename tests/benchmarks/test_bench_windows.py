"""bench_windows in its smallest form: without LeRobot, whose rows need an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from small_photos import environment, write_photos

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_windows(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 6)
    command = [sys.executable, str(BENCHMARKS / "bench_windows.py"), str(tmp_path / "photos")]
    options = ["--episodes", "2", "--length", "9", "--batch-size", "4", "--seconds", "0.01", "--repeats", "1"]
    options += ["--output", str(tmp_path / "windows.json")]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if "[" in line]
    ways = ["full", "small", "small, coefficients"]
    assert [row[1] for row in rows] == [f"{way}, {dtype}" for way in ways for dtype in ("float32", "uint8")]
    assert all(float(row[5]) > 0 for row in rows)
    body = json.loads((tmp_path / "windows.json").read_text())
    assert all(run["values"]["samples"] >= 4 for run in body["runs"])
    assert [f"{size:.0f}" for size in body["megabytes"].values()] == [row[4] for row in rows]
