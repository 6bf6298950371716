"""bench_loader and bench_memory in their smallest form, so that they never rot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_photos import REPEATS, environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 small JPEGs in two classes."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(40):
        path = folder / f"class{number % 2}" / f"{number:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        pixels = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((80 + number, 64)).save(path, quality=85)
    return folder


def run(script: str, *arguments: object, expect: int = 0) -> str:
    """Run a benchmark as a user does; its standard output."""
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == expect, done.stderr
    return done.stdout


def test_loader_against_torch(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "loader.json"
    text = run(
        "bench_loader.py", photos, "--jobs", "train_u8", "--seconds", 0.2, "--images", 300, "--threads", 1,
        "--output", output,
    )  # fmt: skip
    assert "| torch_pil |" in text
    assert "| fastload |" in text
    body = json.loads(output.read_text())
    assert body["failures"] == {}
    assert len(body["runs"]) == 2 * REPEATS
    assert all(one["values"]["rate"] > 0 for one in body["runs"])
    assert all(one["values"]["first_batch"] > one["values"]["imports"] for one in body["runs"])
    for name, processes in (("train_u8 | torch_pil", 2), ("train_u8 | fastload", 1)):
        (one,) = [one for one in body["runs"] if one["name"] == name]
        at_end = one["values"]["memory_at_end"]
        assert at_end["processes"] == processes
        assert one["memory"]["anonymous"] + one["memory"]["file"] >= at_end["anonymous"] + at_end["file"] > 10


def test_loader_reports_a_rival_that_fails(photos: Path, tmp_path: Path) -> None:
    text = run(
        "bench_loader.py", photos, "--jobs", "val_f32", "--seconds", 0.1, "--images", 300, "--threads", 1,
        "--rivals", f"torch_simd={sys.executable}", "--only", "torch_simd",
        "--output", tmp_path / "loader.json", expect=1,
    )  # fmt: skip
    assert "| torch_simd | failed |" in text
    assert "is not pillow-simd" in text


def test_loader_refuses_too_few_repeats(photos: Path, tmp_path: Path) -> None:
    run("bench_loader.py", photos, "--repeats", REPEATS - 1, "--output", tmp_path / "loader.json", expect=1)
    assert not (tmp_path / "loader.json").exists()


def test_memory(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "memory.json"
    text = run(
        "bench_memory.py", photos, "--records", 20_000, "--seconds", 0.5, "--threads", 1, "--output", output
    )
    assert "| torch 20,000 | anonymous |" in text
    body = json.loads(output.read_text())
    assert body["failures"] == {}
    for one in body["runs"][:3]:
        assert one["values"]["curve"][-1]["anonymous"] > 10
