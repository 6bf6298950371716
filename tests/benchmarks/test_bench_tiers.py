"""bench_tiers in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_tables(tmp_path: Path) -> None:
    options = [
        "--records",
        "400",
        "--epochs",
        "4",
        "--megabytes",
        "2",
        "--output",
        str(tmp_path / "found.json"),
    ]
    line = [sys.executable, str(BENCHMARKS / "bench_tiers.py"), *options]
    run = subprocess.run(line, capture_output=True, text=True, check=True)
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["hits"]) == 8
    assert all(row["tier's"] <= row["Belady"] + 0.02 for row in found["hits"])
    assert [row["tier"] for row in found["epochs"]] == ["none", "a third", "all"]
    assert found["epochs"][2]["from_tier"] > 0.2
    assert "exact Belady" in run.stdout
