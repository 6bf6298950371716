"""bench_remote in its smallest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from small_photos import environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_remote(tmp_path: Path) -> None:
    line = [sys.executable, str(BENCHMARKS / "bench_remote.py"), "--records", "200", "--seconds", "0.1"]
    line += ["--latency", "0.001", "--workdir", str(tmp_path), "--output", str(tmp_path / "remote.json")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=280, env=environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row.split("|")[1].strip() for row in done.stdout.splitlines() if "[" in row]
    assert rows == ["110 KB", "1 MB", "8 MB", "exact shuffle", "block shuffle"]
