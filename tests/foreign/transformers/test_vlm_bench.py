"""bench_vision in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pictures import jpegs
from small_photos import environment

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_vision(tmp_path: Path) -> None:
    for number, data in enumerate(jpegs(8)):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    output = tmp_path / "vision.json"
    line = [sys.executable, str(BENCHMARKS / "bench_vision.py"), str(tmp_path), "--every", "4"]
    line += ["--transformers", sys.prefix]  # as all.py, in whose environment there is no transformers
    done = subprocess.run(
        [*line, "--only", "Qwen2-VL", "--repeats", "5", "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    body = json.loads(output.read_text())
    measured = body["seconds"]
    assert {len(times) for job in measured.values() for times in job.values()} == {5}
    assert {"PIL", "float32", "uint8"} <= set(measured["Qwen2-VL"])
    without = [job for job, ways in measured.items() if "PIL" in ways and "torchvision" not in ways]
    assert list(body["failures"]) == [f"{job} | torchvision" for job in without]
    assert body["outside_cores"] >= 0
    assert "| Qwen2-VL | float32 |" in done.stdout
