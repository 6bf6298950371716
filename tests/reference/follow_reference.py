"""What follows operations that move pixels, slowly: masks by Pillow, points by matrices of NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import points_reference
from motion_reference import MOVING, inverse_matrix
from PIL import Image
from pixel_reference import Step
from transform_reference import View


def moved_mask(ids: np.ndarray, steps: Iterable[Step], fill: int) -> np.ndarray:
    """An (H, W) mask, by the nearest pixel."""
    picture = Image.fromarray(np.ascontiguousarray(ids))
    for name, numbers in steps:
        if name in MOVING:
            by_nearest = (*numbers[:-4], 0, fill, fill, fill) if numbers else ()
            picture = MOVING[name][0](picture, by_nearest)
    return np.asarray(picture)


def moved_area(area: Mapping[str, Any], steps: Iterable[Step]) -> dict[str, list[int]]:
    """Run lengths, which are moved as a mask of 0 and 1."""
    height, width = area["size"]
    values = [number % 2 for number in range(len(area["counts"]))]
    inside = np.repeat(np.array(values, np.uint8), area["counts"]).reshape(width, height).T
    shown = moved_mask(inside, steps, 0)
    counts = [len(list(run)) for _, run in itertools.groupby(shown.ravel(order="F").tolist())]
    return {"size": [height, width], "counts": [0] * int(shown[0, 0]) + counts}


def inverse(name: str, numbers: Sequence[float], size: tuple[int, int]) -> np.ndarray:
    """Where a pixel of the moved picture comes from, as a 3 x 3 matrix; without perspective."""
    width, height = size
    middle, still = (width / 2, height / 2), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    if name == "affine":
        center = numbers[7:9] if numbers[6] else middle
        move = [round(numbers[1] * width), round(numbers[2] * height)]
        found = inverse_matrix(center, numbers[0], move, numbers[3], numbers[4:6])
    elif name == "rotate":  # Pillow's angles are counter-clockwise
        found = inverse_matrix(numbers[2:4] if numbers[1] else middle, -numbers[0], (0, 0), 1, (0, 0))
    elif name == "horizontal_flip":
        found = [-1.0, 0.0, width, 0.0, 1.0, 0.0]
    elif name == "vertical_flip":
        found = [1.0, 0.0, 0.0, 0.0, -1.0, height]
    elif name in ("shear_x", "shear_y"):
        found = still.copy()
        found[1 if name == "shear_x" else 3] = numbers[0]
    else:
        axis = ["translate_x", "translate_y"].index(name)
        distance = numbers[0] + numbers[1] * size[axis]
        found = still.copy()
        found[2 + 3 * axis] = -float(int(distance) if numbers[2] else distance)
    return np.array([*found, 0, 0, 1], float).reshape(3, 3)


def moved_points(xy: Any, matrices: Iterable[np.ndarray]) -> np.ndarray:
    """Points (..., 2) in pixels, after each of the motions in turn."""
    found = np.asarray(xy, float)
    for matrix in matrices:
        with_one = np.concatenate([found, np.ones((*found.shape[:-1], 1))], -1)
        to = with_one @ np.linalg.inv(matrix).T
        found = to[..., :2] / to[..., 2:]
    return found


def moved_boxes(
    rows: Any, view: View, size: tuple[int, int], form: str, relative: bool, matrices: Sequence[np.ndarray]
) -> np.ndarray:
    """Boxes (n, 4) under a view: its corners moved, and the box around them."""
    rows, window = np.asarray(rows, float), np.array(view[2][2:], float)
    first, last = rows[:, :2], rows[:, 2:]
    if form == "cxcywh":
        first = first - last / 2
    if form != "xyxy":
        last = first + last
    ends = [
        points_reference.moved(end, view, size, relative) * (window if relative else 1)
        for end in (first, last)
    ]
    corners = [moved_points(np.stack([x[:, 0], y[:, 1]], -1), matrices) for x in ends for y in ends]
    low, high = np.min(corners, 0), np.max(corners, 0)
    if relative:
        low, high = low / window, high / window
    if form == "xyxy":
        return np.concatenate([low, high], 1)
    return np.concatenate([(low + high) / 2 if form == "cxcywh" else low, high - low], 1)
