"""bench_entries in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from small_photos import environment

from fastload.packing import PackOptions, pack

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, *arguments: object) -> str:
    """Run a benchmark as a user does; its standard output."""
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_entries(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(4):
        pixels = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).resize((300 + number, 300))
        image.save(tmp_path / "photos" / f"{number}.jpg", progressive=number == 3)
    output = tmp_path / "entries.json"
    shown = run(
        "bench_entries.py", tmp_path / "photos", "--spacings", "row", "--threads", 1, "--images", 260,
        "--seconds", 0.1, "--workdir", tmp_path, "--output", output,
    )  # fmt: skip
    body = json.loads(output.read_text())
    assert body["failures"] == {}
    names = {one["name"] for one in body["runs"]}
    expected = {"loader x1 row", "build row", "decode fastload"}
    assert expected <= names <= expected | {"decode libjpeg-turbo"}
    assert all(one["values"]["rate"] > 0 for one in body["runs"])
    built = next(one["values"] for one in body["runs"] if one["name"] == "build row")
    rows = -(-300 // 16)  # of MCUs, 4:2:0
    assert built["entry_bytes"] == 7 * rows
    assert f"| row | {7 * rows} |" in shown
    pack(tmp_path / "photos", tmp_path / "set", PackOptions(num_proc=1))
    assert json.loads(run("child.py", "runs.entries", "cold", tmp_path / "set"))["rate"] > 0
