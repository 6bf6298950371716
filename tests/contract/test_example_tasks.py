"""examples/tasks: each trains two steps on a small packed set, and what it reads is prepared in the core.

Those that need a package of their own (torchvision, transformers, open_clip) run in tests/foreign.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_sets import write_field_set
from made_detection import CLASSES, made_set
from pictures import encoded, jpegs, picture
from PIL import Image as PilImage
from process import HANG

import fastload

TASKS = Path(__file__).parents[2] / "examples" / "tasks"
COUNT, BATCH, STEPS = 9, 4, 2
FOREIGN: set[str] = set()


def segmentation(folder: Path) -> Path:
    made = made_set(folder / "made", COUNT)
    samples = [
        {"image": made.images / name, "mask": made.folder / "masks" / f"{name[:-4]}.png"}
        for name in made.names
    ]
    schema = {"image": fastload.Image(), "mask": fastload.Mask(classes=("background", *CLASSES))}
    fastload.pack(samples, folder / "packed", schema, num_proc=1)
    return folder / "packed"


def two_views(folder: Path) -> Path:
    samples = [{"image": data, "label": number % 2} for number, data in enumerate(jpegs(COUNT))]
    schema = {"image": fastload.Image(), "label": fastload.Label(("cat", "dog"))}
    return write_field_set(folder / "packed", schema, samples)


def stereo(folder: Path) -> Path:
    samples: list[dict[str, Any]] = []
    for number in range(COUNT):
        disparity = np.full((72, 90), 256 * (number + 1), np.uint16)
        disparity[:, ::3] = 0
        pair = {side: encoded(picture(2 * number + at, 90, 72)) for at, side in enumerate(("left", "right"))}
        samples.append({**pair, "disparity": encoded(PilImage.fromarray(disparity), "PNG")})
    both = {"left": fastload.Image(), "right": fastload.Image()}
    return write_field_set(
        folder / "packed", {**both, "disparity": fastload.Mask(bits=16, ignore=0)}, samples
    )


SETS: dict[str, Callable[[Path], Path]] = {
    "segmentation": segmentation,
    "two_views": two_views,
    "stereo": stereo,
}


def test_all_tasks_are_tested() -> None:
    assert {path.stem for path in TASKS.glob("*.py")} == {*SETS, *FOREIGN, "training"}


@pytest.mark.parametrize("name", SETS)
def test_it_trains(tmp_path: Path, name: str) -> None:
    packed = SETS[name](tmp_path)
    line = [sys.executable, TASKS / f"{name}.py", packed, "--batch-size", BATCH, "--steps", STEPS]
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    steps = [text for text in done.stdout.splitlines() if text.startswith("step ")]
    assert [text.split(":")[0] for text in steps] == [f"step {number + 1}" for number in range(STEPS)]
    assert all(0 < float(text.split()[-1]) < 1000 for text in steps)
    assert "Python, in" not in done.stdout
