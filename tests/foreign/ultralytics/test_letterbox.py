"""Where T.Letterbox puts pictures and boxes, against Ultralytics' own reader and LetterBox."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

os.environ["YOLO_OFFLINE"] = "1"
import bare_torchvision  # noqa: F401
import numpy as np
from ultralytics.data import base
from ultralytics.data.augment import LetterBox
from ultralytics.utils.instance import Instances

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan

BLACK, FILL = 0, 114


def read(image: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The picture as Ultralytics' data set has it in validation."""
    monkeypatch.setattr(base, "imread", lambda *_, **__: image)
    dataset = SimpleNamespace(
        ims=[None], im_files=["picture"], npy_files=[Path("/there/is/none.npy")], imgsz=size, augment=False,
        channels=3, cv2_flag=1, im_hw0=[None], im_hw=[None], buffer=[], max_buffer_length=0, cache=None,
    )  # fmt: skip
    return base.BaseDataset.load_image(dataset, 0)[0]


def theirs(image: Any, box: Any, spec: T.Letterbox) -> tuple[Any, Any]:
    instances = Instances(box[None].astype(np.float32), np.zeros((0, 9, 2), np.float32), bbox_format="xyxy")
    instances.normalized = False
    labels = {"img": image, "cls": np.zeros((1, 1)), "instances": instances}
    scaleup = spec.rule == "letterbox" and spec.scaleup
    found = LetterBox(tuple(spec.size), scaleup=scaleup, center=spec.center)(labels)
    return found["img"], found["instances"].bboxes[0]


def ours(width: int, height: int, spec: T.Letterbox) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The picture's left, top, width and height in the sample, and the sample's (height, width)."""
    crop, resized, window, _ = _C.draw_view(compile_plan(spec).geometry_spec(), width, height, 0, 0, 0)
    if crop != (0, 0, width, height):  # fill around the stored pixels
        return (-crop[0], -crop[1], width, height), (crop[3], crop[2])
    return (-window[0], -window[1], *resized), (window[3], window[2])


@pytest.mark.parametrize("rule", ["dataset", "letterbox"])
def test_places_and_boxes(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are equal. Boxes are, by the data set's rule; LetterBox scales them by the factor before its
    sides are rounded, so that they lie half a pixel apart at most, or one where a side becomes 1."""
    drawn, differ = random.Random(4), []
    for _ in range(300):
        width, height = drawn.randint(1, 700), drawn.randint(1, 700)
        rows, columns = drawn.randint(1, 600), drawn.randint(1, 600)
        options = {"rule": rule, "center": drawn.random() < 0.5}
        if rule == "letterbox":
            spec = T.Letterbox((rows, columns), scaleup=drawn.random() < 0.5, **options)
        else:
            spec = T.Letterbox(rows, **options)
        image, box = np.full((height, width, 3), BLACK, np.uint8), np.array([0.0, 0.0, width, height])
        before = image if rule == "letterbox" else read(image, rows, monkeypatch)
        scale = np.array([before.shape[1] / width, before.shape[0] / height] * 2)
        found, moved = theirs(before, box * scale, spec)
        dark = found[..., 0] != FILL
        across, down = np.flatnonzero(dark.any(0)), np.flatnonzero(dark.any(1))
        place = int(across[0]), int(down[0]), len(across), len(down)
        x, y, w, h = place
        apart = np.abs(moved - [x, y, x + w, y + h]).max()
        bound = 1e-3 if rule == "dataset" else 0.501 if min(w, h) > 1 else 1.0
        if ours(width, height, spec) != (place, found.shape[:2]) or apart > bound:
            differ.append((width, height, spec, place, apart))
    assert differ == []
