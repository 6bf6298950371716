"""bench_nodes in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_figures(tmp_path: Path) -> None:
    options = ["--records", "96", "--nodes", "2", "--epochs", "3", "--output", str(tmp_path / "found.json")]
    subprocess.run([sys.executable, str(BENCHMARKS / "bench_nodes.py"), *options], check=True)
    found = json.loads((tmp_path / "found.json").read_text())["of the set"]
    assert list(found) == ["shuffle=True", "Block()", "Block(nodes=2)"]
    assert abs(found["Block(nodes=2)"]["whole"]) < 0.05
    assert found["shuffle=True"]["whole"] > 0.1
