"""Boxes, points and outlines under a view, slowly: float64 by NumPy, rounded to float32 once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from transform_reference import View

Floats = npt.NDArray[np.float64]


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
    return xy / np.array(window[2:]) if relative else xy


def grown(wh: Floats, view: View, size: tuple[int, int], relative: bool) -> Floats:
    """Widths and heights (..., 2) likewise."""
    (_, _, width, height), (resized_width, resized_height), window, _ = view
    wh = np.array(wh, np.float64)
    if relative:
        wh = wh * np.array(size, np.float64)
    wh = wh * np.array([resized_width / width, resized_height / height])
    return wh / np.array(window[2:]) if relative else wh


def boxes(rows: npt.NDArray[Any], view: View, size: tuple[int, int], form: str, relative: bool) -> Any:
    """Boxes (n, 4) under the view."""
    first = moved(rows[:, :2], view, size, relative)
    flip = view[3]
    if form == "xyxy":
        last = moved(rows[:, 2:], view, size, relative)
        if flip:
            first[:, 0], last[:, 0] = last[:, 0].copy(), first[:, 0].copy()
        return np.concatenate([first, last], 1).astype(np.float32)
    extent = grown(rows[:, 2:], view, size, relative)
    if flip and form == "xywh":
        first[:, 0] -= extent[:, 0]
    return np.concatenate([first, extent], 1).astype(np.float32)


def points(rows: npt.NDArray[Any], view: View, size: tuple[int, int], relative: bool = False) -> Any:
    """Points (..., 2), or (..., 3) with a number that stays, under the view."""
    found = rows.copy()
    found[..., :2] = moved(rows[..., :2], view, size, relative).astype(np.float32)
    return found
