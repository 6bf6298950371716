"""bench_ranks in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pictures import encoded, picture
from small_photos import environment

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_ranks.py"


def test_ranks(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(2):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(encoded(picture(number, 60, 50)))
    output = tmp_path / "ranks.json"
    command = [
        sys.executable,
        str(BENCHMARK),
        str(tmp_path / "photos"),
        "--once",
        "--only",
        "rate,kill,resume",
    ]
    command += ["--ranks", "2", "--records", "8192", "--images", "8192", "--seconds", "0.1"]
    command += ["--only", "rate,kill,resume", "--output", str(output)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    body = json.loads(output.read_text())
    errors = [run["error"] for run in body["runs"] if run["error"]]
    assert done.returncode == 0, (done.stderr, errors)
    values = {run["name"]: run["values"] for run in body["runs"]}
    assert set(values) == {"rate x2", "kill x2", "resume"}
    assert values["rate x2"]["rate"] > 0
    assert values["rate x2"]["pss"] > values["rate x2"]["anonymous"] > 0
    assert values["kill x2"]["error_after"] > 0
    assert values["resume"]["state_bytes"] < 1000
    assert values["resume"]["epoch_position"] == 8192 // 256 * 9 // 10 * 256
