"""bench_starvation in its smallest form, and the arithmetic that only runs with CUDA."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_starvation
import pytest
from harness.measure import Run
from small_photos import REPEATS, environment, write_photos
from starvation import run as starvation_run
from starvation.tables import tables

BENCHMARKS = Path(bench_starvation.__file__).parent


def test_it_trains_on_each_feed_and_names_what_it_cannot(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 40)
    command = [
        sys.executable, str(BENCHMARKS / "bench_starvation.py"), str(tmp_path / "photos"), "--device", "cpu",
        "--batch", "4", "--size", "32", "--threads", "1", "--images", "40", "--seconds", "0.05",
        "--output", str(tmp_path / "starvation.json"),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    body = json.loads((tmp_path / "starvation.json").read_text())
    good = [run for run in body["runs"] if not run["error"]]
    names = {f"resnet8 | {feed}" for feed in ("synthetic", "fastload", "torch_pil")}
    assert {run["name"] for run in good} >= names
    for name in names:
        assert len([run for run in good if run["name"] == name]) == REPEATS
    for run in good:
        values = run["values"]
        assert values["steps"] >= 5
        assert values["rate"] == pytest.approx(4000 / values["step_ms"])
        assert 0 <= values["wait_ms"] <= values["step_ms"]
        assert values["wait_share"] == pytest.approx(values["wait_ms"] / values["step_ms"])
    assert "| synthetic |" in done.stdout
    assert "fastload_host: without a GPU it is the same as fastload" in done.stdout
    assert (tmp_path / "starvation.md").read_text().strip() in done.stdout


class Moment:
    """A CUDA event that was recorded at ``time`` milliseconds."""

    def __init__(self, time: float) -> None:
        self.time = time

    def elapsed_time(self, later: Moment) -> float:
        return later.time - self.time


def test_the_wait_on_the_device_is_from_each_end_to_the_next_begin() -> None:
    loop: Any = object.__new__(starvation_run.Loop)
    loop._begins = [Moment(time) for time in (0.0, 11.0, 22.0)]
    loop._ends = [Moment(time) for time in (10.0, 19.0, 30.0)]
    assert loop._gaps() == pytest.approx((1.0 + 3.0) / 2)


def runs_of(name: str, rate: float, **more: float) -> list[Run]:
    values = {"rate": rate, "step_ms": 10.0, "wait_ms": 0.1, "wait_share": 0.01, "cores": 3.0}
    return [Run(name, number, values | (more if number == 0 else {})) for number in range(5)]


def test_the_table_has_the_bounds_share_and_the_copies() -> None:
    options = bench_starvation.parse([".", "--device", "cpu", "--models", "resnet8"])
    runs = runs_of("resnet8 | synthetic", 1000.0)
    runs += runs_of("resnet8 | fastload", 985.0, copy_ms=1.25, copy_hidden=0.99)
    runs.append(Run("resnet8 | torch_pil", 0, {}, "exit status 1: Traceback\nNameError: x"))
    text = tables(runs, options)
    (line,) = [line for line in text.splitlines() if line.startswith("| fastload |")]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[4:7] == ["1.0% [1.0-1.0]", "985 [985-985]", "0.985"]
    assert cells[8:10] == ["1.25", "99%"]
    assert "- resnet8 | torch_pil: FAILED: NameError: x" in text


def test_the_budget_shortens_the_rounds() -> None:
    options = bench_starvation.parse([".", "--device", "cpu", "--budget", "60", "--seconds", "9"])
    rounds = len(options.models) * len(options.feeds) * options.repeats
    assert 0.3 <= bench_starvation.round_seconds(options) < 60 / rounds


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([".", "--feeds", "synthetic,nothing"], "there is no feed nothing"),
        (["missing"], "missing is not a folder"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench_starvation.parse([*arguments, "--device", "cpu"])
    assert text in capsys.readouterr().err
