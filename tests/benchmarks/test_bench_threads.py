"""bench_threads in its smallest form, and the cases that it takes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import bench_threads
import pytest
from harness.measure import Run
from small_photos import REPEATS, environment, write_photos

BENCHMARK = Path(bench_threads.__file__)


def test_jobs_and_controls(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 130)
    output = tmp_path / "threads.json"
    command = [
        sys.executable, str(BENCHMARK), str(tmp_path / "photos"), "--jobs", "f32,copy", "--cases", "1x1,2x1",
        "--images", "130", "--seconds", "0.05", "--repeats", str(REPEATS), "--output", str(output),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    runs = json.loads(output.read_text())["runs"]
    names = ["f32 | 1x1", "f32 | 2x1", "copy | 1x1", "copy | 2x1"]
    assert {run["name"] for run in runs} == set(names)
    for run in runs:
        assert not run["error"]
        assert run["values"]["rate"] > 0
        assert run["values"]["cores"] > 0
        assert ("waits" in run["values"]) == run["name"].startswith("f32")
    assert done.stdout.count("| 2 x 1 |") == 2
    assert output.with_suffix(".md").read_text().strip() in done.stdout


def test_a_rank_without_a_batch_says_so(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 10)
    command = [sys.executable, str(BENCHMARK), str(tmp_path / "photos"), "--jobs", "f32", "--cases", "1x1"]
    command += ["--images", "10", "--repeats", str(REPEATS), "--output", str(tmp_path / "threads.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 1
    assert "skipped: a rank's epoch has no whole batch" in done.stdout


def runs_of(name: str, rate: float, cores: float, **more: float) -> list[Run]:
    return [Run(name, number, {"rate": rate, "cores": cores, **more}) for number in range(5)]


def test_what_is_missing_stands_beside_it() -> None:
    runs = runs_of("f32 | 1x1", 1000.0, 1.0, prefetch=0.0, waits=1.0)
    runs += runs_of("f32 | 1x16", 12000.0, 15.0, prefetch=0.05, waits=0.5)
    row = bench_threads.row(runs, "f32", (1, 16), (1, 1))
    assert row == ["1 x 16", "12000 [12000-12000]", "750", "0.75", "0.94", "1.25", "0.05", "0.50"]


def test_cases() -> None:
    assert bench_threads.cases_of("1x1,2x8") == [(1, 1), (2, 8)]
    assert bench_threads.default_cases(16) == [
        (1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (2, 8), (4, 4), (16, 1),
    ]  # fmt: skip
    assert bench_threads.cases_for("torch f32", [(1, 1), (2, 8)]) == [(1, 1), (1, 16)]
    assert bench_threads.cases_for("copy", [(1, 1), (2, 8)]) == [(1, 1), (16, 1)]
    with pytest.raises(argparse.ArgumentTypeError, match="both at least 1"):
        bench_threads.cases_of("0x4")
