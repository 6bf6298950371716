"""bench_coefficients, bench_transcode and bench_cold_records in their smallest form."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_entries import has_turbojpeg
from PIL import Image
from runs.turbo_transform import Transcoder
from small_photos import environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FORMS = ("fast", "small")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four JPEGs that become records, and are smaller as small ones."""
    random = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("photos")
    for number in range(4):
        pixels = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((300 + number, 300)).save(folder / f"{number}.jpg")
    return folder


def run(script: str, photos: Path, workdir: Path, *options: object) -> tuple[dict[str, Any], str]:
    """A benchmark's JSON and its standard output."""
    output = workdir / "output.json"
    command = [
        sys.executable,
        BENCHMARKS / script,
        photos,
        "--workdir",
        workdir,
        "--output",
        output,
        *options,
    ]
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    body = json.loads(output.read_text())
    assert body["failures"] == {}
    assert body["runs"]
    assert all(one["values"]["rate"] > 0 for one in body["runs"])
    return body, done.stdout


def test_the_loader(photos: Path, tmp_path: Path) -> None:
    options = ("--levels", "scalar", "--jobs", "train_u8", "--images", 130, "--seconds", 0.1)
    body, text = run("bench_coefficients.py", photos, tmp_path, *options)
    assert {one["name"] for one in body["runs"]} == {
        f"scalar train_u8 {name}" for name in ("entries", "fast", "small")
    }
    shares = {row.split(" | ")[2]: float(row.split(" | ")[-1][:-2]) for row in rows(text, "scalar")}
    assert shares["small"] < shares["fast"]


def test_transcoding(photos: Path, tmp_path: Path) -> None:
    options = ("--images", 8, "--processes", 1, "--forms", "small")
    body, text = run("bench_transcode.py", photos, tmp_path, *options)
    found = {one["name"]: one["values"] for one in body["runs"]}
    memory = {f"JPEG to {form}" for form in FORMS} | {f"{form} to JPEG" for form in FORMS}
    commands = {"pack, entry points", "pack, small", "recode, JPEG to small", "recode, small to JPEG"}
    yardsticks = {name for name in found if name.startswith("JPEG to JPEG")}
    assert set(found) == memory | yardsticks | {f"{name}, x1" for name in commands}
    assert found["JPEG to small"]["bytes"] < found["JPEG to fast"]["bytes"]
    assert found["JPEG to small"]["images"] == 4
    assert found["pack, small, x1"]["images"] == 8
    to, back = (found[f"recode, {way}, x1"]["bytes"] for way in ("JPEG to small", "small to JPEG"))
    assert to * back == pytest.approx(1, rel=0.02)
    assert len(rows(text, "pack, ")) == 2


def test_cold_records(photos: Path, tmp_path: Path) -> None:
    options = ("--gigabytes", 0.001, "--limit", 0, "--bandwidths", "--seconds", 5, "--threads", 1)
    body, text = run("bench_cold_records.py", photos, tmp_path, *options)
    found = {one["name"]: one["values"] for one in body["runs"]}
    assert set(found) == {"full speed | entries", "full speed | fast"}
    assert all(values["images"] > 0 for values in found.values())
    assert len(rows(text, "full speed")) == 2


@pytest.mark.skipif(not has_turbojpeg(), reason="libturbojpeg.so.0 is not installed")
def test_libjpeg_turbos_transcoding_keeps_the_picture_and_its_markers(photos: Path) -> None:
    comment = b"\xff\xfe\x00\x07kept."
    paths = sorted(photos.iterdir())
    assert paths
    for path in paths:
        jpeg = path.read_bytes()
        made = Transcoder([jpeg])(jpeg[:2] + comment + jpeg[2:])
        assert comment in made
        with Image.open(io.BytesIO(made)) as after, Image.open(path) as before:
            assert np.array_equal(np.asarray(after), np.asarray(before))


def rows(text: str, beginning: str) -> list[str]:
    """A table's rows that begin so."""
    return [line for line in text.splitlines() if line.startswith(f"| {beginning}")]
