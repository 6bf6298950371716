"""Running examples/tasks for two steps, and the sets that they are run on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from made_detection import MadeSet, made_set
from process import HANG

import fastload

__all__ = ["BATCH", "COUNT", "STEPS", "TASKS", "pack_objects", "train"]

TASKS = Path(__file__).parents[2] / "examples" / "tasks"
COUNT, BATCH, STEPS = 9, 4, 2
# As a script would be run, but that a torchvision whose operators do not load is helped first.
_RUN = """
import bare_torchvision, runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def train(name: str, packed: Path, *arguments: object) -> tuple[list[float], str]:
    """The losses of a task's steps, and all that it printed; AssertionError with its error if it fails."""
    folder = str(TASKS)
    path = os.pathsep.join([folder, *(one for one in sys.path if one)])
    steps = ["--batch-size", BATCH, "--steps", STEPS, *arguments]
    line = [sys.executable, "-c", _RUN, TASKS / f"{name}.py", packed, *steps]
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=HANG, env=env)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^step (\d+): loss (\S+)$", done.stdout, re.MULTILINE)
    assert [int(step) for step, _ in found] == list(range(1, STEPS + 1))
    return [float(loss) for _, loss in found], done.stdout


def pack_objects(folder: Path) -> tuple[Path, MadeSet]:
    """A made set of objects and captions, packed from COCO's JSONs."""
    made = made_set(folder / "made", COUNT)
    annotations = [made.json, made.json.with_name("captions.json")]
    fastload.pack(made.folder, folder / "packed", annotations=annotations, as_="coco", num_proc=1)
    return folder / "packed", made
