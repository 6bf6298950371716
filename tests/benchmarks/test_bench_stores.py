"""bench_stores in its smallest form: fastload's own readers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from small_photos import environment, write_photos

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_fastload_beside_itself(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 20)
    # More than is read ahead: else the second epoch is asked for before the first one is in the tier.
    line = [sys.executable, str(BENCHMARKS / "bench_stores.py"), str(tmp_path / "photos"), "--images", "2000"]
    line += ["--latency", "0.001", "--workdir", str(tmp_path), "--repeats", "1"]
    line += ["--output", str(tmp_path / "stores.json")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=280, env=environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = {run["name"]: run["values"] for run in json.loads((tmp_path / "stores.json").read_text())["runs"]}
    restart = runs.pop("restart")
    assert restart["again_bytes"] <= restart["restart_bytes"] <= restart["begin_bytes"]
    assert restart["held_records"] >= 1000  # the first job had 1800 of the 2000 records
    assert list(runs) == ["fastload", "fastload_block", "fastload_third", "fastload_local"]
    for name, values in runs.items():
        assert values["cold_images"] == values["second_images"] == 2000
        assert (values["cold_requests"] > 0) == (name != "fastload_local")
        if name != "fastload_third":
            assert values["second_bytes"] <= values["cold_bytes"] / 2  # the tier has it
    assert sum(line.startswith("| fastload") for line in done.stdout.splitlines()) == 4
    assert "at 90%" in done.stdout
