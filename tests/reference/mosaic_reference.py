"""Mosaics slowly and obviously: places, motion, objects by Ultralytics' rules in float64; pixels by Pillow.

Rules of version 8.4: data/augment.py's Mosaic, RandomPerspective and MixUp, data/base.py's load_image.

Which numbers are drawn is csrc/core/transform/mosaic.h's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from transform_reference import Draws, uniform

MOSAIC, PERSPECTIVE = 15, 16  # DrawOp

Placed = tuple[int, int, int, int]  # x, y of the corner on the canvas, width, height


@dataclass(frozen=True)
class Spec:
    """The arguments of ``fastload.transforms.Mosaic``."""

    size: int
    tiles: int = 4
    degrees: float = 0.0
    translate: float = 0.1
    scale: float = 0.5
    shear: float = 0.0
    perspective: float = 0.0
    fill: tuple[int, int, int] = (114, 114, 114)

    def core(self, alpha: float = 32.0) -> Any:
        """As the core takes it."""
        motion = self.degrees, self.translate, self.scale, self.shear, self.perspective
        return self.size, self.tiles, motion, self.fill, alpha


@dataclass(frozen=True)
class Made:
    """Where the pictures of a mosaic lie, and where the canvas goes."""

    canvas: tuple[int, int]
    pictures: list[Placed]
    matrix: np.ndarray  # (3, 3), from the canvas to the sample
    gain: float


def resized(spec: Spec, width: int, height: int) -> tuple[int, int]:
    """load_image: the longer side is the mosaic's, the other one rounded up."""
    ratio = spec.size / max(width, height)
    return min(math.ceil(width * ratio), spec.size), min(math.ceil(height * ratio), spec.size)


def two(draws: Draws, op: int, block: int) -> tuple[float, float]:
    words = draws.words(op, block)
    return uniform(words[0], words[1]), uniform(words[2], words[3])


def four(spec: Spec, sizes: list[tuple[int, int]], draws: Draws) -> list[Placed]:
    """_mosaic4: the rectangles on the canvas, and which part of the picture each shows."""
    s = spec.size
    u, v = two(draws, MOSAIC, 0)
    yc, xc = (int(s // 2 + (s + s % 2) * one) for one in (u, v))
    found = []
    for i, (w, h) in enumerate(sizes):
        left, top = i in (0, 2), i in (0, 1)
        x1a, x2a = (max(xc - w, 0), xc) if left else (xc, min(xc + w, 2 * s))
        y1a, y2a = (max(yc - h, 0), yc) if top else (yc, min(yc + h, 2 * s))
        x1b = w - (x2a - x1a) if left else 0
        y1b = h - (y2a - y1a) if top else 0
        found.append((x1a - x1b, y1a - y1b, w, h))
    return found


def nine(spec: Spec, sizes: list[tuple[int, int]]) -> list[Placed]:
    """_mosaic9: on a canvas of three times the size, of which the middle is taken."""
    s = spec.size
    found = []
    w0, h0 = sizes[0]
    wp = hp = -1
    for i, (w, h) in enumerate(sizes):
        x, y = [
            (s, s),
            (s, s - h),
            (s + wp, s - h),
            (s + w0, s),
            (s + w0, s + hp),
            (s + w0 - w, s + h0),
            (s + w0 - wp - w, s + h0),
            (s - w, s + h0 - h),
            (s - w, s + h0 - hp - h),
        ][i]
        found.append((x - s // 2, y - s // 2, w, h))
        wp, hp = w, h
    return found


def compose(spec: Spec, pictures: list[tuple[int, int]], draws: Draws) -> Made:
    """Of pictures of these (width, height) as stored."""
    s = spec.size
    sizes = [resized(spec, *size) for size in pictures]
    if len(sizes) == 1:
        canvas, placed = sizes[0], [(0, 0, *sizes[0])]
    else:
        canvas = (2 * s, 2 * s)
        placed = four(spec, sizes, draws) if spec.tiles == 4 else nine(spec, sizes)

    def drawn(block: int, most: float) -> tuple[float, float]:
        u, v = two(draws, PERSPECTIVE, block)
        return -most + 2 * most * u, -most + 2 * most * v

    C, P, R, S, T = (np.eye(3) for _ in range(5))
    C[0, 2], C[1, 2] = -canvas[0] / 2, -canvas[1] / 2
    P[2, :2] = drawn(0, spec.perspective)
    u, v = two(draws, PERSPECTIVE, 1)
    a = math.radians(-spec.degrees + 2 * spec.degrees * u)
    gain = 1 - spec.scale + 2 * spec.scale * v
    R[:2, :2] = gain * np.array([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]])
    S[0, 1], S[1, 0] = (math.tan(math.radians(shear)) for shear in drawn(2, spec.shear))
    T[:2, 2] = [(0.5 + shift) * s for shift in drawn(3, spec.translate)]
    return Made(canvas, placed, T @ S @ R @ P @ C, gain)


def weights(length: int, start: float, step: float, count: int) -> np.ndarray:
    """(count, length) of Pillow's precompute_coeffs for boxes that begin anywhere, as its 22-bit numbers."""
    wide = max(step, 1.0)
    found = np.zeros((count, length), np.int64)
    for i in range(count):
        middle = start + (i + 0.5) * step
        first, last = max(int(middle - wide + 0.5), 0), min(int(middle + wide + 0.5), length)
        raw = [max(0.0, 1.0 - abs((j - middle + 0.5) * (1.0 / wide))) for j in range(first, last)]
        total = 0.0
        for one in raw:
            total += one
        found[i, first:last] = [int(one / total * 2**22 + 0.5) for one in raw]
    return found


Axis = tuple[float, float, int]


def placed(pixels: np.ndarray, across: Axis, down: Axis) -> np.ndarray:
    """(height, width, 3) resized by (start, step, count) of each axis: columns, rounded, then rows.

    Float64 holds the sums of whole numbers exactly.
    """
    h, v = weights(pixels.shape[1], *across), weights(pixels.shape[0], *down)
    rows = np.einsum("yxc,ox->yoc", pixels.astype(np.float64), h.astype(np.float64), optimize=True)
    rows = np.floor((rows + 2**21) / 2**22).clip(0, 255)
    both = np.einsum("yxc,oy->oxc", rows, v.astype(np.float64), optimize=True)
    return np.floor((both + 2**21) / 2**22).clip(0, 255).astype(np.uint8)


def upright(spec: Spec, made: dict[str, Any], pictures: list[Image.Image], fill: Any) -> Image.Image:
    """What the sample shows where pictures are only scaled and moved: each is resized to its place.

    Those that are larger than on the canvas are resized to that before.
    """
    found = np.zeros((spec.size, spec.size, 3), np.uint8)
    found[:] = fill
    a = made["of_canvas"]
    pixels = np.arange(spec.size) + 0.5
    if 0 in made["visible"][2:]:
        return Image.fromarray(found)
    for (x, y, w, h, _), image in zip(made["pictures"], pictures, strict=True):
        kept = image.resize((w, h), Image.Resampling.BILINEAR) if max(image.size) > max(w, h) else image
        axes, where = [], []
        for step, shift, place, length, canvas, own in (
            (a[0], a[2], x, w, made["canvas"][0], kept.size[0]),
            (a[4], a[5], y, h, made["canvas"][1], kept.size[1]),
        ):
            at = step * pixels + shift
            (shown,) = np.nonzero((at >= max(place, 0)) & (at < min(place + length, canvas)))
            where.append(shown)
            first = int(shown[0]) if len(shown) else 0
            axes.append(((step * first + shift - place) * (own / length), step * (own / length), len(shown)))
        if len(where[0]) and len(where[1]):
            found[np.ix_(where[1], where[0])] = placed(np.asarray(kept), *axes)
    return Image.fromarray(found)


def picture(
    spec: Spec,
    made: dict[str, Any],
    pictures: list[Image.Image],
    resample: Image.Resampling,
    fill: Any,
) -> Image.Image:
    """What the sample shows; ``made``: of the core's compose(), whose motion is a last bit another."""
    if resample is Image.Resampling.BILINEAR and spec.degrees == spec.shear == spec.perspective == 0:
        return upright(spec, made, pictures, fill)
    x0, y0, width, height = made["visible"]
    canvas = Image.new(pictures[0].mode, (max(width, 1), max(height, 1)), fill)
    for (x, y, w, h, _), image in zip(made["pictures"], pictures, strict=True):
        canvas.paste(image.resize((w, h), resample), (x - x0, y - y0))
    if width == 0 or height == 0:
        return Image.new(pictures[0].mode, (spec.size, spec.size), fill)
    motion = made["motion"]
    perspective = motion[6] != 0 or motion[7] != 0
    kind = Image.Transform.PERSPECTIVE if perspective else Image.Transform.AFFINE
    numbers = motion if perspective else motion[:6]
    return canvas.transform((spec.size, spec.size), kind, numbers, resample, fillcolor=fill)


def objects(
    spec: Spec, made: Made, boxes: list[np.ndarray], stored: list[tuple[int, int]]
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """(tile, row) of the objects that stay, and their boxes (n, 4) xyxy in the sample.

    ``boxes``: xyxy of each picture as stored.
    """
    rows, found = [], []
    for tile, (x, y, w, h) in enumerate(made.pictures):
        for row, box in enumerate(np.asarray(boxes[tile], np.float64).reshape(-1, 4)):
            scale = np.array([w / stored[tile][0], h / stored[tile][1]] * 2)
            before = box * scale + [x, y, x, y]
            if len(made.pictures) > 1:  # cut to the canvas
                before = before.clip(0, 2 * spec.size)
                if (before[2] - before[0]) * (before[3] - before[1]) <= 0:
                    continue
            x1, y1, x2, y2 = before
            corners = made.matrix @ np.array([[x1, x2, x2, x1], [y1, y1, y2, y2], [1, 1, 1, 1]])
            corners = corners[:2] / corners[2]
            after = np.concatenate([corners.min(1), corners.max(1)]).clip(0, spec.size)
            w1, h1 = (before[2:] - before[:2]) * made.gain
            w2, h2 = after[2:] - after[:2]
            eps = 1e-16
            ratio = max(w2 / (h2 + eps), h2 / (w2 + eps))
            if w2 > 2 and h2 > 2 and w2 * h2 / (w1 * h1 + eps) > 0.1 and ratio < 100:
                rows.append((tile, row))
                found.append(after)
    return rows, np.array(found).reshape(-1, 4)
