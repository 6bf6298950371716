"""Which objects stay under a view, and their boxes: torchvision's steps one by one, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["kept"]

Box = list[float]  # left, top, right, bottom


def _corners(row: np.ndarray, form: str) -> Box:
    a, b, c, d = (float(number) for number in row)
    if form == "cxcywh":
        a, b = a - c / 2, b - d / 2
    return [a, b, c, d] if form == "xyxy" else [a, b, a + c, b + d]


def _as(box: Box, form: str) -> Box:
    left, top, right, bottom = box
    if form == "xyxy":
        return box
    width, height = right - left, bottom - top
    if form == "xywh":
        return [left, top, width, height]
    return [left + width / 2, top + height / 2, width, height]


def _clamped(box: Box, left: float, top: float, right: float, bottom: float) -> Box:
    """torchvision/transforms/v2/functional/_misc.py, _clamp_bounding_boxes."""
    xs = [min(max(x, left), right) for x in (box[0], box[2])]
    ys = [min(max(y, top), bottom) for y in (box[1], box[3])]
    return [xs[0], ys[0], xs[1], ys[1]]


def _moved(box: Box, motion: Sequence[float]) -> Box:
    """The box around its corners, where ``motion``, from outputs to inputs, takes them."""
    a = np.array([*motion, 1.0]).reshape(3, 3)
    corners = np.array([[x, y, 1.0] for x in (box[0], box[2]) for y in (box[1], box[3])])
    there = np.linalg.solve(a, corners.T).T
    there = there[:, :2] / there[:, 2:]
    return [*there.min(0).tolist(), *there.max(0).tolist()]


def _mirrors(motion: Sequence[float]) -> bool:
    """Whether it is a flip, behind which torchvision clips nothing."""
    return (abs(motion[0]), motion[1], motion[3], abs(motion[4])) == (1, 0, 0, 1)


def kept(
    rows: np.ndarray,
    form: str,
    relative: bool,
    size: tuple[int, int],
    view: Any,
    *,
    clip: bool,
    clamp: bool = False,
    inside: bool = False,
    least: tuple[float, float] | None,
    without: Sequence[bool] | None = None,
    motions: Sequence[Sequence[float]] = (),
    source: Sequence[Sequence[float]] = (),
) -> tuple[list[int], np.ndarray]:
    """Numbers of the rows that stay, and their boxes in the same form, (n, 4) float64.

    Args:
        rows: (n, 4) as stored.
        form, relative: of them.
        size: width and height of the picture.
        view: a ``_C.View``.
        clip: whether boxes are clipped by crops and by what moves pixels, but for flips.
        clamp: whether they are in the end.
        inside: whether those that then reach over the border by more than rounding are dropped.
        least: width and height, and area, that boxes must have; None: nothing is dropped.
        without: rows that are dropped.
        motions, source: of the view's pixels, and of the whole picture's.
    """
    (x, y, crop_width, crop_height), resized, window, flip = view.crop, view.resized, view.window, view.flip
    numbers, boxes = [], []
    for number, row in enumerate(rows):
        if without is not None and without[number]:
            continue
        box = _corners(row, form)
        if relative:
            box = [box[0] * size[0], box[1] * size[1], box[2] * size[0], box[3] * size[1]]
        for motion in source:
            box = _moved(box, motion)
            if clip and not _mirrors(motion):
                box = _clamped(box, 0, 0, *size)
        if view.centres is not None:
            left, top, width, height = view.centres
            clamped = _clamped(box, *view.centred)
            centre = (clamped[0] + clamped[2]) / 2, (clamped[1] + clamped[3]) / 2
            within = left < centre[0] < left + width and top < centre[1] < top + height
        if view.centres is not None and not within:
            box = [0.0, 0.0, 0.0, 0.0]
        else:
            across, down = resized[0] / crop_width, resized[1] / crop_height
            box = [(box[0] - x) * across, (box[1] - y) * down, (box[2] - x) * across, (box[3] - y) * down]
            if clip:
                box = _clamped(box, *view.area)
            box = [box[0] - window[0], box[1] - window[1], box[2] - window[0], box[3] - window[1]]
            if flip:
                box = [window[2] - box[2], box[1], window[2] - box[0], box[3]]
            made = window[2:]
            for _ in range(view.quarter):  # counter-clockwise: the right side is the upper one then
                box = [box[1], made[0] - box[2], box[3], made[0] - box[0]]
                made = made[::-1]
            for motion in motions:
                box = _moved(box, motion)
                if clip and not _mirrors(motion):
                    box = _clamped(box, 0, 0, *made)
        made = view.made
        if clamp:
            box = _clamped(box, 0, 0, *made)
        if inside:
            whole = _clamped(box, 0, 0, *made)
            if (
                max(abs(a - b) / made[i % 2] for i, (a, b) in enumerate(zip(box, whole, strict=True)))
                > 2**-23
            ):
                continue
            box = whole
        width, height = box[2] - box[0], box[3] - box[1]
        if least is not None and (min(width, height) < least[0] or width * height < least[1]):
            continue
        if relative:
            box = [box[0] / made[0], box[1] / made[1], box[2] / made[0], box[3] / made[1]]
        numbers.append(number)
        boxes.append(_as(box, form))
    return numbers, np.array(boxes, np.float64).reshape(-1, 4)
