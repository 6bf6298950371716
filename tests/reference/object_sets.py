"""Small sets of pictures and objects, for tests of batches of objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from field_sets import write_field_set
from pictures import encoded, picture

from fastload.sample.fields import Array, Boxes, Image, Keypoints, Polygons, Scalar

__all__ = ["object_samples", "object_schema", "object_set"]


def object_schema(form: str = "xywh", relative: bool = False, **more: Any) -> dict[str, Any]:
    """The fields of a set of objects."""
    return {
        "image": Image(),
        "image_id": Scalar("int64"),
        "boxes": Boxes(form, relative),
        "labels": Array("int64", (None,)),
        "area": Array("float64", (None,)),
        "iscrowd": Array("bool", (None,)),
        "keypoints": Keypoints(3),
        "masks": Polygons(),
        **more,
    }


def object_samples(
    count: int, form: str = "xywh", relative: bool = False, seed: int = 0
) -> list[dict[str, Any]]:
    """Samples of that schema: 0 to 4 boxes well inside of pictures of 40 to 60 pixels a side."""
    rng = np.random.default_rng(seed)
    return [_sample(rng, number, form, relative) for number in range(count)]


def _sample(rng: np.random.Generator, number: int, form: str, relative: bool) -> dict[str, Any]:
    width, height, objects = 40 + number % 21, 60 - number % 19, number % 5
    corner, sides = rng.integers(0, 15, (objects, 2)), rng.integers(4, 20, (objects, 2))
    first = {"xywh": corner, "xyxy": corner, "cxcywh": corner + sides / 2}[form]
    second = corner + sides if form == "xyxy" else sides
    boxes = np.concatenate([first, second], 1).astype(np.float32)
    if relative:
        boxes = boxes / np.array([width, height] * 2, np.float32)
    return {
        "image": encoded(picture(seed=number, width=width, height=height), quality=80),
        "image_id": 1000 + 7 * number,
        "boxes": boxes,
        "labels": rng.integers(0, 3, objects),
        "area": rng.uniform(10, 99, objects),
        "iscrowd": rng.integers(0, 2, objects).astype(bool),
        "keypoints": np.abs(rng.normal(9, 3, (objects, 3, 3))).astype(np.float32),
        "masks": [[_outline(*box)] for box in np.concatenate([corner, corner + sides], 1).tolist()],
    }


def _outline(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float32)


def object_set(folder: Path, count: int, **schema: Any) -> tuple[Path, list[dict[str, Any]]]:
    """A set of such samples in ``folder``, and the samples."""
    form, relative = schema.pop("form", "xywh"), schema.pop("relative", False)
    samples = object_samples(count, form, relative)
    fields = {**object_schema(form, relative), **schema}
    left = {name: kind for name, kind in fields.items() if kind is not None}
    return write_field_set(folder, left, [{name: one[name] for name in left} for one in samples]), samples
