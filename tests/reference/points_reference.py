"""Boxes, points and outlines under a view, slowly: float64 by NumPy, rounded to float32 once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from transform_reference import View

Floats = npt.NDArray[np.float64]


def quarters(view: Any) -> int:
    """The quarter turns of a view; tuples have none."""
    return int(getattr(view, "quarter", 0))


def moved(xy: Floats, view: View, size: tuple[int, int], relative: bool) -> Floats:
    """Points (..., 2) of a picture of ``size`` (width, height) in pixels of the view."""
    (x, y, width, height), (resized_width, resized_height), window, flip = view
    xy = np.array(xy, np.float64)
    if relative:
        xy = xy * np.array(size, np.float64)
    scale = np.array([resized_width / width, resized_height / height])
    xy = (xy - np.array([x, y])) * scale - np.array(window[:2])
    if flip:
        xy[..., 0] = window[2] - xy[..., 0]
    made = np.array(window[2:])
    for _ in range(quarters(view)):  # counter-clockwise: what was at the right is above
        xy = np.stack([xy[..., 1], made[0] - xy[..., 0]], -1)
        made = made[::-1]
    return xy / made if relative else xy


def grown(wh: Floats, view: View, size: tuple[int, int], relative: bool) -> Floats:
    """Widths and heights (..., 2) likewise."""
    (_, _, width, height), (resized_width, resized_height), window, _ = view
    odd = quarters(view) % 2
    made = np.array(window[2:])[:: -1 if odd else 1]
    wh = np.array(wh, np.float64)
    if relative:
        wh = wh * np.array(size, np.float64)
    wh = wh * np.array([resized_width / width, resized_height / height])
    wh = wh[:, ::-1] if odd else wh
    return wh / made if relative else wh


def boxes(rows: npt.NDArray[Any], view: View, size: tuple[int, int], form: str, relative: bool) -> Any:
    """Boxes (n, 4) under the view."""
    first = moved(rows[:, :2], view, size, relative)
    unit = moved(np.array([[0, 0], [1, 1]], np.float32), view, size, False)
    falls = unit[1] < unit[0]  # where what was the first corner becomes the last one
    if form == "xyxy":
        last = moved(rows[:, 2:], view, size, relative)
        first, last = np.where(falls, last, first), np.where(falls, first, last)
        return np.concatenate([first, last], 1).astype(np.float32)
    extent = grown(rows[:, 2:], view, size, relative)
    if form == "xywh":
        first = np.where(falls, first - extent, first)
    return np.concatenate([first, extent], 1).astype(np.float32)


def points(rows: npt.NDArray[Any], view: View, size: tuple[int, int], relative: bool = False) -> Any:
    """Points (..., 2), or (..., 3) with a number that stays, under the view."""
    found = rows.copy()
    found[..., :2] = moved(rows[..., :2], view, size, relative).astype(np.float32)
    return found
