"""bench_detection in its smallest form, and its sets and rows."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import bench_detection
import pytest
from detection.fastload import LOADERS
from detection.jobs import CONTEXT, JOBS, tokens
from detection.sets import TARS, make_forms
from harness.measure import Run
from made_detection import made_set
from small_photos import environment, write_photos

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COUNT = 70


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detection")
    write_photos(folder / "photos", 6)
    make_forms(folder / "work", folder / "photos", COUNT)
    return folder


def test_the_tars_hold_each_picture_and_its_caption(work: Path) -> None:
    found = {}
    for path in sorted((work / "work" / "tars").glob("*.tar")):
        with tarfile.open(path) as tar:
            found |= {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert len(list((work / "work" / "tars").glob("*.tar"))) == TARS
    made = work / "work" / "made"
    captions = json.loads((made / "annotations" / "captions.json").read_text())
    first = {one["image_id"]: one["caption"] for one in reversed(captions["annotations"])}
    assert len(captions["images"]) == COUNT == len(found) / 2
    for image in captions["images"]:
        stem = image["file_name"][:-4]
        assert found[f"{stem}.jpg"] == (made / "images" / image["file_name"]).read_bytes()
        assert found[f"{stem}.txt"].decode() == first[image["id"]]


def test_each_job_of_fastload_is_measured(work: Path) -> None:
    options = ["--work", work / "work", "--count", COUNT, "--seconds", 0.05, "--threads", 1]
    line = [BENCHMARKS / "bench_detection.py", work / "photos", *options, "--output", work / "found.json"]
    done = subprocess.run(
        [sys.executable, *map(str, line)],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    measured = {name: cells for name, *cells in rows[2:]}
    assert set(measured) == set(LOADERS)
    for rate, micros, *_ in measured.values():
        assert float(rate.split()[0]) > 0
        assert float(micros) > 0


def test_a_row_compares_the_medians() -> None:
    values = {"rate": 600.0, "micros": 1666.0, "cpu_micros": 3000.0}
    theirs = {"rate": 100.0, "micros": 10000.0, "cpu_micros": 20000.0}
    runs = [Run("mask | fastload", at, values) for at in range(5)]
    runs += [Run("mask | torchvision pil, 2 workers", at, theirs) for at in range(5)]
    found = bench_detection.row(JOBS["mask"], runs)
    assert found[0] == "mask"
    assert found[2:5] == ("1666", "3000", "torchvision pil, 2 workers")
    assert found[-2:] == ("6.0", "5")


def test_a_job_without_a_rival_has_no_ratio() -> None:
    values = {"rate": 600.0, "micros": 1666.0, "cpu_micros": 3000.0}
    runs = [Run("clip | fastload", at, values) for at in range(5)]
    failed = Run("clip | webdataset, 2 workers", 0, {}, "there is no such module")
    assert bench_detection.row(JOBS["clip"], [*runs, failed])[4:] == ("webdataset", "-", "-", "-", "-", "8")


def test_tokens_are_as_many_for_every_text(tmp_path: Path) -> None:
    captions = made_set(tmp_path, 2).captions["annotations"]
    assert {len(tokens(one["caption"])) for one in captions} == {CONTEXT}
    assert len(tokens("a long caption " * 20)) == CONTEXT
