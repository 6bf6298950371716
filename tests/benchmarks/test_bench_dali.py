"""bench_dali and dali_pixels in their smallest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_photos import environment, write_photos

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.dali


def run(script: str, *options: str) -> str:
    line = [sys.executable, str(BENCHMARKS / script), *options]
    done = subprocess.run(line, capture_output=True, text=True, timeout=280, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_overhead(tmp_path: Path) -> None:
    write_photos(tmp_path / "images", 130)
    options = ["--jobs", "train_u8", "--ways", "bare,loader", "--batches", "1", "--repeats", "5"]
    options += ["--threads", "1"]
    text = run("bench_dali.py", str(tmp_path / "images"), *options, "--output", str(tmp_path / "dali.json"))
    rows = [row.split("|")[1:] for row in text.splitlines() if row.startswith("| train_u8")]
    assert [row[1].strip() for row in rows] == ["bare", "loader"]
    assert rows[0][3].strip() == "1.000 [1.000-1.000]"
    assert float(rows[1][4].split()[0]) > 0
    assert (tmp_path / "dali.json").exists()


def test_coefficient_records(tmp_path: Path) -> None:
    write_photos(tmp_path / "images", 130)
    options = ["--jobs", "train_u8", "--ways", "bare,records,rebuilt", "--batches", "4", "--threads", "1"]
    options += ["--repeats", "1", "--output", str(tmp_path / "dali.json")]
    text = run("bench_dali.py", str(tmp_path / "images"), *options)
    rows = [row.split("|")[1:] for row in text.splitlines() if row.startswith("| train_u8")]
    assert [row[1].strip() for row in rows] == ["bare", "records", "rebuilt"]
    assert all(float(row[2].split()[0]) > 0 for row in rows)


def test_pixels(tmp_path: Path) -> None:
    write_photos(tmp_path / "images", 6)
    rows = [
        row for row in run("dali_pixels.py", str(tmp_path / "images")).splitlines() if row.startswith("|")
    ]
    assert len(rows) == 6
    assert "| CenterCrop(96) |" in rows[-1]
