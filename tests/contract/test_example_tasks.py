"""examples/tasks: each trains two steps on a small packed set, and what it reads is prepared in the core.

Those that need a package of their own (torchvision, transformers, open_clip) run in tests/foreign.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_tasks import COUNT, TASKS, train
from field_sets import write_field_set
from made_detection import CLASSES, made_set
from pictures import encoded, jpegs, picture
from PIL import Image as PilImage

import fastload

FOREIGN = {"clip": "openclip", "detr": "transformers", "faster_rcnn": "torchvision"}


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
    assert {path.stem for path in TASKS.glob("*.py")} == {*SETS, *FOREIGN, "short_run"}
    foreign = Path(__file__).parents[1] / "foreign"
    assert all((foreign / package / f"test_{name}.py").exists() for name, package in FOREIGN.items())


@pytest.mark.parametrize("name", SETS)
def test_it_trains(tmp_path: Path, name: str) -> None:
    losses, printed = train(name, SETS[name](tmp_path))
    assert all(0 < loss < 1000 for loss in losses)
    assert "Python, in" not in printed
