"""bench_coefficients in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from small_photos import environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_coefficients(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(4):
        pixels = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((300 + number, 300)).save(tmp_path / "photos" / f"{number}.jpg")
    output = tmp_path / "coefficients.json"
    command = [
        sys.executable, str(BENCHMARKS / "bench_coefficients.py"), str(tmp_path / "photos"),
        "--levels", "scalar", "--jobs", "train_u8", "--images", "130", "--seconds", "0.1",
        "--workdir", str(tmp_path), "--output", str(output),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    body = json.loads(output.read_text())
    assert body["failures"] == {}
    assert all(one["values"]["rate"] > 0 for one in body["runs"])
    loaders = {f"scalar train_u8 {name}" for name in ("entries", "fast", "small")}
    others = {f"{action} {form}" for action in ("to", "back") for form in ("fast", "small")}
    assert {one["name"] for one in body["runs"]} == loaders | others
    sizes = {one["name"]: one["values"].get("bytes") for one in body["runs"]}
    assert sizes["to small"] < sizes["to fast"]
    assert "| back small |" in done.stdout
