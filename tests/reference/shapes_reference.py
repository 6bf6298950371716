"""Values of outlines and areas as FORMAT.md lays them out, made and read slowly; and what pycocotools and
Pillow make of them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from PIL import Image
from pycocotools import mask as coco

__all__ = ["bytes_of", "coco_mask", "nearest_view", "objects_in", "random_area", "random_outlines"]


def bytes_of(form: str, objects: list[Any]) -> np.ndarray:
    """The bytes of a value.

    Args:
        form: polygons, rle or mixed.
        objects: of each a list of (m, 2) arrays, or {"size": [height, width], "counts": [...]}.
    """
    outlines = [one for one in objects if not isinstance(one, dict)]
    areas = [one for one in objects if isinstance(one, dict)]
    words = [len(objects)]
    if form == "mixed":
        words += [int(isinstance(one, dict)) for one in objects]
    if form != "rle":
        words += [len(one) for one in outlines] + [len(points) for one in outlines for points in one]
    for one in areas:
        words += [*one["size"], len(one["counts"])]
    data = struct.pack(f"<{len(words)}I", *words)
    if form == "mixed":
        data += bytes(-len(data) % 8)
    dtype = "<f8" if form == "mixed" else "<f4"
    for one in outlines:
        for points in one:
            data += np.asarray(points, dtype).tobytes()
    for one in areas:
        data += struct.pack(f"<{len(one['counts'])}I", *one["counts"])
    return np.frombuffer(data, np.uint8)


def objects_in(form: str, data: bytes) -> list[Any]:
    """The other way round."""
    at = 0

    def take(count: int) -> list[int]:
        nonlocal at
        found = struct.unpack_from(f"<{count}I", data, at)
        at += 4 * count
        return list(found)

    (count,) = take(1)
    forms = take(count) if form == "mixed" else [int(form == "rle")] * count
    polygons = take(forms.count(0)) if form != "rle" else []
    points = take(sum(polygons))
    heads = [take(3) for _ in range(forms.count(1))]
    if form == "mixed":
        at += -at % 8
    dtype = np.dtype("<f8" if form == "mixed" else "<f4")
    outlines = []
    for number in points:
        outlines.append(np.frombuffer(data, dtype, 2 * number, at).reshape(-1, 2))
        at += 2 * number * dtype.itemsize
    areas = [{"size": [height, width], "counts": take(runs)} for height, width, runs in heads]
    assert at == len(data)
    shapes = iter(polygons)
    each, rest = iter(areas), iter(outlines)
    return [next(each) if is_area else [next(rest) for _ in range(next(shapes))] for is_area in forms]


def coco_mask(one: Any, height: int, width: int) -> np.ndarray:
    """What pycocotools decodes of an object: (height, width) of the picture, or of the area, uint8."""
    if isinstance(one, dict):
        coded = coco.frPyObjects(one, *one["size"])
    elif not one:
        return np.zeros((height, width), np.uint8)
    else:
        coded = coco.merge(coco.frPyObjects([np.ravel(points).tolist() for points in one], height, width))
    found: np.ndarray = coco.decode(coded)
    return found


def nearest_view(mask: np.ndarray, view: Any) -> np.ndarray:
    """A view (crop, resized, window, flip) of a mask, by Pillow alone."""
    (x, y, width, height), resized, (left, top, columns, rows), flip = view
    picture = Image.fromarray(mask).crop((x, y, x + width, y + height))
    picture = picture.resize(resized, Image.Resampling.NEAREST)
    picture = picture.crop((left, top, left + columns, top + rows))
    found = np.asarray(picture)
    return np.rot90(found[:, ::-1] if flip else found, getattr(view, "quarter", 0))


def random_outlines(rng: np.random.Generator, height: int, width: int) -> list[np.ndarray]:
    """One to three outlines, partly beyond the picture's borders; corners may repeat or lie on pixels."""
    found = []
    for _ in range(rng.integers(1, 4)):
        corners = int(rng.integers(3, 12))
        spread = rng.choice([0.3, 1.0, 3.0])
        points = rng.random((corners, 2)) * spread + rng.random(2) - spread / 2
        points = points * [width, height]
        if rng.random() < 0.3:
            points = np.round(points)
        if rng.random() < 0.3:
            points = np.round(points, 2)
        if rng.random() < 0.2:
            points[1] = points[0]
        found.append(points)
    return found


def random_area(rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
    """An area with runs of nought, too."""
    flat = (rng.random(height * width) < rng.choice([0.02, 0.5])).astype(np.uint8)
    if rng.random() < 0.5:
        flat = np.repeat(flat, 9)[: height * width]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flat, [1 - flat[-1]]])))
    counts = np.diff(np.concatenate([[0], edges])).tolist()
    if rng.random() < 0.3:
        counts = [*counts[:1], 0, 0, *counts[1:]]
    return {"size": [height, width], "counts": [int(count) for count in counts]}
