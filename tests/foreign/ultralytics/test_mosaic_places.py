"""Where T.Mosaic puts pictures and boxes, against Ultralytics' own Mosaic and RandomPerspective, which are
given the numbers that the core draws."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

os.environ["YOLO_OFFLINE"] = "1"
import bare_torchvision  # noqa: F401
import mosaic_reference as reference
import numpy as np
from mosaic_reference import MOSAIC, PERSPECTIVE, Spec
from transform_reference import Draws
from ultralytics.data import augment
from ultralytics.utils.instance import Instances

from fastload._native import _C

SEED, EPOCH, COUNT = 5, 2, 40
SPECS = [
    Spec(96),
    Spec(96, 9),
    Spec(160, 4, 20.0, 0.2, 0.9, 8.0),
    Spec(160, 9, 20.0, 0.1, 0.5, 8.0),
    Spec(96, 4, 180.0, 0.5, 0.5, 5.0, 0.0005),
]


class Pictures:
    """A data set of Ultralytics', of pictures that are their own number."""

    cache = "ram"

    def __init__(self, sizes: list[tuple[int, int]], boxes: list[np.ndarray]) -> None:
        self.sizes, self.boxes = sizes, boxes

    def __len__(self) -> int:
        return len(self.sizes)

    def get_image_and_label(self, number: int) -> dict[str, Any]:
        (width, height), boxes = self.sizes[number], self.boxes[number].astype(np.float32)
        instances = Instances(boxes, np.zeros((0, 9, 2), np.float32), bbox_format="xyxy", normalized=False)
        return {
            "img": np.full((height, width, 1), number + 1, np.uint8),
            "cls": number * 100 + np.arange(len(boxes)),
            "instances": instances,
            "im_file": str(number),
            "ori_shape": (height, width),
        }


def numbers(spec: Spec, draws: Draws) -> list[float]:
    """What Ultralytics draws, in its order, each in [0, 1)."""
    blocks = [(MOSAIC, 0)] if spec.tiles == 4 else []
    blocks += [(PERSPECTIVE, block) for block in range(4)]
    return [one for op, block in blocks for one in reference.two(draws, op, block)]


def theirs(spec: Spec, pictures: Pictures, drawn: list[float], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The canvas, its motion, and which boxes stay where."""
    rest, partners = iter(drawn), iter(range(1, spec.tiles))
    stub = SimpleNamespace(
        uniform=lambda low, high: low + (high - low) * next(rest), randint=lambda *_: next(partners)
    )
    monkeypatch.setattr(augment, "random", stub)
    mosaic = augment.Mosaic(pictures, imgsz=spec.size, n=spec.tiles)
    labels = pictures.get_image_and_label(0)
    params = mosaic.get_params(labels)
    labels = mosaic.apply_instances(mosaic.apply_image(labels, params), params)
    canvas = labels["img"][..., 0].copy()
    motion = augment.RandomPerspective(
        spec.degrees, spec.translate, spec.scale, spec.shear, spec.perspective, size=(spec.size, spec.size)
    )
    params = motion.get_params(labels)
    labels = motion.apply_instances(labels, params)
    assert next(rest, None) is None
    return canvas, params["M"], labels["cls"], labels["instances"].bboxes


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_places_motion_and_boxes(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are equal, to the pixel; boxes to what float32 makes of the motion there."""
    rng, apart, kept, gone = np.random.default_rng(spec.size), [0.0], 0, 0
    for sample in range(COUNT):
        stored = [(int(w), int(h)) for w, h in rng.integers(5, 200, (spec.tiles, 2))]
        boxes = [
            np.sort(rng.uniform(-0.1, 1.1, (int(rng.integers(0, 4)), 2, 2)) * size, 1).reshape(-1, 4)
            for size in stored
        ]
        sizes = [reference.resized(spec, *size) for size in stored]
        scaled = [
            one * ([now[0] / old[0], now[1] / old[1]] * 2)
            for one, old, now in zip(boxes, stored, sizes, strict=True)
        ]
        draws = Draws(SEED, EPOCH, sample)
        canvas, matrix, rows, found = theirs(spec, Pictures(sizes, scaled), numbers(spec, draws), monkeypatch)
        ours = _C.compose(spec.core(), stored, SEED, EPOCH, sample)
        painted = np.full((2 * spec.size, 2 * spec.size), 114, np.uint8)
        for number, (x, y, width, height, _) in enumerate(ours["pictures"]):
            painted[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)] = number + 1
        assert np.array_equal(painted, canvas)
        back = np.array([*ours["of_canvas"], 1.0]).reshape(3, 3)
        corners = (
            matrix.astype(np.float64) @ back @ np.array([[0, spec.size, 9], [0, 9, spec.size], [1, 1, 1]])
        )
        at = corners[:2] / corners[2]
        assert np.abs(at - [[0, spec.size, 9], [0, 9, spec.size]]).max() < 1e-2
        wanted, places = reference.objects(spec, reference.compose(spec, stored, draws), boxes, stored)
        assert rows.tolist() == [100 * tile + row for tile, row in wanted]
        apart.append(np.abs(found - places).max(initial=0.0))
        kept, gone = kept + len(rows), gone + sum(map(len, boxes)) - len(rows)
    assert max(apart) < 1e-2
    assert kept > COUNT
    assert gone > COUNT
