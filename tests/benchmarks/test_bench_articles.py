"""bench_articles in its smallest form: each table runs, counts its records, and says what it cannot do."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_articles
import pytest
from articles import ladder, plots
from articles.setting import Chart, Setting
from harness.measure import Run, Summary
from small_photos import REPEATS, environment, write_photos

BENCHMARKS = Path(bench_articles.__file__).parent
TABLES = ("mnist", "lmdb", "batch", "threads", "ladder")
Table = tuple[str, list[dict[str, Any]]]

pytestmark = pytest.mark.timeout(600)  # the first one waits for all tables


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 small JPEGs in two classes."""
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder, 40)
    return folder


@pytest.fixture(scope="module")
def tables(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """All tables as a user runs them, at once: of each its Markdown and its good runs."""
    output = tmp_path_factory.mktemp("tables")
    command = [
        sys.executable, str(BENCHMARKS / "bench_articles.py"), str(photos), "--tables", ",".join(TABLES),
        "--quick", "--device", "cpu", "--threads", "1", "--batch", "4", "--size", "32",
        "--output", str(output),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=580, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for table in TABLES:
        text = (output / f"{table}.md").read_text()
        assert text in done.stdout
        for suffix in (".png", ".svg"):
            assert (output / table).with_suffix(suffix).stat().st_size > 1000
        body = json.loads((output / f"{table}.json").read_text())
        found[table] = text, [one for one in body["runs"] if not one["error"]]
    return found


def names(runs: list[dict[str, Any]]) -> set[str]:
    return {one["name"] for one in runs}


def test_mnist(tables: dict[str, Table]) -> None:
    text, runs = tables["mnist"]
    assert names(runs) == {"torch, 0 workers", "torch, 8 workers", "fastload, PNG", "fastload, raw pixels"}
    assert len(runs) == 4 * REPEATS
    digits = bench_articles.QUICK["digits"]
    assert all(one["values"]["rate"] == pytest.approx(digits / one["values"]["seconds"]) for one in runs)
    assert f"{digits} gray pictures of 28x28 (drawn digits in MNIST's place)" in text
    assert "- torch, 8 workers, pinned: pinned memory needs a GPU" in text


def test_lmdb(tables: dict[str, Table]) -> None:
    text, runs = tables["lmdb"]
    assert len(names(runs)) == 4
    for one in runs:
        for key in (
            "disk, cold, in order",
            "disk, cold, shuffled",
            "disk, warm, in order",
            "disk, warm, shuffled",
        ):
            assert one["values"][key] > 0
            assert 0 <= one["values"][f"{key}, stayed"] <= 1
    assert "posix_fadvise(DONTNEED)" in text


def test_parts_of_a_step(tables: dict[str, Table]) -> None:
    text, runs = tables["batch"]
    assert names(runs) == {"torch_pil", "fastload"}
    for one in runs:
        assert all(one["values"][part] >= 0 for part in ("load", "copy", "step"))
        assert one["values"]["backward"] > 0
        assert one["values"]["forward"] > 0
    assert "nothing to copy without a GPU" in text


def test_threads(tables: dict[str, Table]) -> None:
    text, runs = tables["threads"]
    assert names(runs) == {"fastload 1", "torch_pil 1"}
    assert all(one["values"]["rate"] > 0 for one in runs)
    assert text.count("\n| 1 |") == 1


def test_ladder(tables: dict[str, Table]) -> None:
    text, runs = tables["ladder"]
    rungs = list(ladder.RUNGS)
    assert names(runs) == set(rungs[:4])
    assert f"| {rungs[4]} | needs two GPUs, here are 0 |" in text
    assert f"| {ladder.DDP} | needs two GPUs, here are 0 (--ranks 2 tries it on the CPU) |" in text


def test_ddp_runs_the_training_script_with_its_ranks(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(
        workdir=str(tmp_path), images=str(photos), device="cpu", gpus=0, threads=1, batch=4, size=32,
        model="resnet8", amp="off", seconds=0.1, digits=0, ranks=2,
    )  # fmt: skip
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    ladder.prepare(setting)
    values = ladder.start(ladder.DDP, setting)()
    assert values["ranks"] == 2
    assert values["rate"] > 0
    assert Setting.from_json(replace(setting, ranks=3).to_json()).ranks == 3


def test_the_ladder_compares_with_the_row_above_and_the_baseline(tmp_path: Path) -> None:
    rungs = list(ladder.RUNGS)
    rates = dict(zip(rungs[:3], (100.0, 150.0, 450.0), strict=True))
    runs = [Run(name, number, {"rate": rate}) for name, rate in rates.items() for number in range(5)]
    setting = Setting(
        workdir="", images="", device="cpu", gpus=0, threads=1, batch=4, size=32, model="resnet8", amp="off",
        seconds=0.1, digits=0,
    )  # fmt: skip
    text = ladder.report(runs, setting)
    assert f"| {rungs[2]} | 450 [450-450] | 3.00x | 4.50x |" in text


@pytest.mark.parametrize("kind", ["bars", "stacked", "lines"])
def test_charts_are_drawn(kind: str, tmp_path: Path) -> None:
    summary = Summary(2.0, 1.0, 3.0, 5)
    chart = Chart("title", "unit", kind, {"a": {"1": summary, "2": summary}, "b": {"2": summary}})
    files = plots.draw(chart, tmp_path / "chart")
    assert files[0].read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in files[1].read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--tables", "mnist,nothing"], "there is no table nothing"),
        (["--tables", "lmdb"], "need an IMAGE_FOLDER"),
        (["missing", "--tables", "lmdb"], "missing is not a folder"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench_articles.parse(arguments)
    assert text in capsys.readouterr().err
