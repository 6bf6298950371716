"""bench_packing in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from small_photos import environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_packing(tmp_path: Path) -> None:
    output = tmp_path / "packing.json"
    line = [sys.executable, str(BENCHMARKS / "bench_packing.py"), "--samples", "20000", "--drawn", "30000"]
    done = subprocess.run(
        [*line, "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(output.read_text())
    full = {(one["set"], one["way"]): one["full"] for one in measured["full"]}
    assert full["usual", "PackingSampler (4,096)"] >= 99.8
    assert full["long", "PackingSampler (4,096)"] >= 99.5
    assert len(measured["idle"]) == 6
    assert all(row["by cost"] <= row["in turn"] for row in measured["idle"])
    assert "us a pack" in done.stdout
