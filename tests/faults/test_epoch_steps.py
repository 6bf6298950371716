"""The short form of epoch_steps.py, and that it finds planted defects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from process import HANG

HERE = Path(__file__).parent
POINTS = 25

# The instrument, in a library with a defect.
PLANTED = """
import json, os, sys
import epoch_steps
PLANT
sys.exit(epoch_steps.main(json.loads(sys.argv[1])))
"""
A_BATCH_IS_LOST = """
from fastload.loader import epochs
epochs.EpochIterator._take_back = lambda self, key: None
epochs.raised_by_a_handler = lambda error: False
"""
A_CHILD_HANGS = """
import threading
from fastload import DataLoader
mine = os.getpid()
close = DataLoader.close
def hangs(self):
    if os.getpid() != mine and os.getppid() != mine:  # a child of a point's
        threading.Event().wait()
    close(self)
DataLoader.close = hangs
"""
EXIT_FAILS = """
import atexit
mine = os.getpid()
atexit.register(lambda: os.getpid() == mine or os._exit(3))
"""
A_THREAD_IS_LEFT = """
import threading
import step_jobs
step_jobs.LEFT = epoch_steps.LEFT = 1.0
from fastload import DataLoader
mine = os.getpid()
close = DataLoader.close
def leaves(self):
    if os.getpid() != mine:
        threading.Thread(target=threading.Event().wait, name="left", daemon=True).start()
    close(self)
DataLoader.close = leaves
"""


def run(
    folder: Path, asked: dict[str, Any], plant: str | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    path = [str(HERE), *(entry for entry in sys.path if entry)]
    program = [str(HERE / "epoch_steps.py")] if plant is None else ["-c", PLANTED.replace("PLANT", plant)]
    done = subprocess.run(
        [sys.executable, *program, json.dumps({"folder": str(folder), **asked})],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=2 * HANG,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    return done, json.loads(lines[-1])


@pytest.mark.timeout(400)
def test_nothing_is_lost_and_nothing_hangs(tmp_path: Path) -> None:
    done, found = run(tmp_path, {"points": POINTS, "seed": 20})
    assert found["bad"] == [], done.stderr
    assert sum(found["points"].values()) == POINTS
    assert done.returncode == 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("plant", "events", "said"),
    [
        (A_BATCH_IS_LOST, ["sigterm_raises"], "lost ["),
        (A_CHILD_HANGS, ["fork"], "hangs; it said: "),
        (EXIT_FAILS, ["exit"], "exit status 3, not 7"),
        (A_THREAD_IS_LEFT, ["gc"], "threads are left: "),
    ],
    ids=["lost", "hangs", "exit", "left"],
)
def test_it_finds(tmp_path: Path, plant: str, events: list[str], said: str) -> None:
    asked = {"points": 8, "seed": 4, "kinds": ["plain"], "events": events, "patience": 15, "at_once": 8}
    done, found = run(tmp_path, asked, plant)
    assert done.returncode == 1
    assert any(said in what for _, what in found["bad"]), found["bad"]


def test_it_says_where_a_process_hangs(tmp_path: Path) -> None:
    asked = {"points": 6, "seed": 4, "kinds": ["plain"], "events": ["fork"], "patience": 15, "at_once": 6}
    _, found = run(tmp_path, asked, A_CHILD_HANGS)
    said = [what for _, what in found["bad"] if what.startswith("hangs")]
    assert said
    assert all("in hangs" in what for what in said), said
