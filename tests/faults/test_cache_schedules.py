"""Some orders of the steps of processes at a cache, by a seed; and that a defect on purpose is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from process import HANG

PROGRAM = Path(__file__).with_name("cache_schedules.py")
ROOT = PROGRAM.parents[2]
PLANTS = {
    "files are made without the folder's lock": "File exists",
    "who attaches does not look again": "cannot open",
    "room is judged without the lock": "leaves",
    "what a killed process left takes room": "the next start has no cache",
    "a stopped warmer is waited for": "no end after",
}
SMALL_ROOM = ("room is judged", "what a killed")  # these need a file system of their own


def run(**request: Any) -> dict[str, Any]:
    """What the program tells at its end."""
    if not (shutil.which("cc") or shutil.which("gcc")) or not os.path.isdir("/dev/shm"):
        pytest.skip("needs a C compiler and /dev/shm")
    path = os.pathsep.join([str(PROGRAM.parent), str(ROOT / "tests" / "reference"), *filter(None, sys.path)])
    command = [sys.executable, str(PROGRAM), json.dumps(request)]
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * HANG, env=env, check=False)
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines()
    told: dict[str, Any] = json.loads(lines[-1])
    assert done.returncode == bool(told["bad"])
    told["skipped"] = sum("needs a small tmpfs" in line for line in lines)
    return told


def test_some_schedules_of_each_scenario(tmp_path: Path) -> None:
    """FASTLOAD_FAULTS_SEED for other ones."""
    seed = int(os.environ.get("FASTLOAD_FAULTS_SEED", "1"))
    told = run(points=12, seed=seed, folder=str(tmp_path))
    assert not told["bad"], f"seed {seed}: {told['bad']}"
    assert told["points"]["schedules"] >= 12 * (15 - told["skipped"])
    assert told["points"]["kills"] > 10


@pytest.mark.parametrize("plant", PLANTS)
def test_a_defect_on_purpose_is_found(tmp_path: Path, plant: str) -> None:
    told = run(points=0, bound=1, plant=plant, folder=str(tmp_path))
    if told["skipped"] and plant.startswith(SMALL_ROOM):
        pytest.skip("this machine lets nobody mount a small file system")
    assert PLANTS[plant] in told["bad"][0][1]
