"""Running programs of examples/ for two steps, and the sets that they are run on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from made_detection import MadeSet, made_set
from process import HANG

import fastload

__all__ = ["BATCH", "COUNT", "EXAMPLES", "STEPS", "environment", "losses_in", "pack_objects", "run", "train"]

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNT, BATCH, STEPS = 9, 4, 2
# As a script would be run, but that a torchvision whose operators do not load is helped first.
_RUN = """
import bare_torchvision, runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def environment() -> dict[str, str]:
    """This process's, where examples find each other and fastload."""
    path = os.pathsep.join([str(EXAMPLES), *(one for one in sys.path if one)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def run(name: str, *arguments: object, launcher: Sequence[str] = ("-c", _RUN)) -> str:
    """All that a program printed; AssertionError with its error if it fails."""
    line = [sys.executable, *launcher, EXAMPLES / f"{name}.py", *arguments]
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=HANG, env=environment())
    assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr}"
    return done.stdout


def losses_in(printed: str, what: str = "step") -> dict[int, float]:
    """The loss of each step, or of each epoch, that a program printed."""
    found = re.findall(rf"^{what} (\d+): loss (\d+\.\d+)", printed, re.MULTILINE)
    return {int(number): float(loss) for number, loss in found}


def train(name: str, packed: Path, *arguments: object) -> tuple[list[float], str]:
    """The losses of a program's steps, and all that it printed."""
    printed = run(name, packed, "--batch-size", BATCH, "--steps", STEPS, *arguments)
    found = losses_in(printed)
    assert list(found) == list(range(1, STEPS + 1))
    return list(found.values()), printed


def pack_objects(folder: Path) -> tuple[Path, MadeSet]:
    """A made set of objects and captions, packed from COCO's JSONs."""
    made = made_set(folder / "made", COUNT)
    annotations = [made.json, made.json.with_name("captions.json")]
    fastload.pack(made.folder, folder / "packed", annotations=annotations, as_="coco", num_proc=1)
    return folder / "packed", made
