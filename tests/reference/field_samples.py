"""Samples of every kind of field, small and different from each other."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image as Pillow

from fastload.sample.schema import Schema

SCHEMA = Schema.of(
    {
        "caption": "text",
        "image": "image",
        "mask": "mask(classes=['sky', 'road', 'car'])",
        "label": "label(classes=['cat', 'dog'])",
        "depth": "image(1, 16)",
        "bands": "image(5)",
        "second": "label",
        "age": "scalar(float32)",
        "flag": "scalar(bool)",
        "pose": "array(float64, (3, 4))",
        "track": "array(int16, (None, 2))",
        "bits": "array(bool, (3,))",
        "boxes": "boxes(xywh)",
        "outlines": "polygons",
        "areas": "polygons(rle)",
        "points": "keypoints(4)",
        "extra": "bytes",
        "facts": "json",
    }
)


def photo(seed: int, kind: str = "JPEG") -> bytes:
    """An encoded picture, different for each seed."""
    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    pixels = rng.integers(0, 255, (int(rng.integers(9, 40)), int(rng.integers(9, 40)), 3), np.uint8)
    Pillow.fromarray(pixels).save(out, kind)
    return out.getvalue()


def sample(i: int) -> dict[str, Any]:
    """Sample number ``i`` of :data:`SCHEMA`; some have no rows, no text, no label."""
    rng = np.random.default_rng(1000 + i)
    rows = i % 4
    return {
        "caption": "" if i % 5 == 4 else f"picture {i}, naïve",
        "image": photo(i, "PNG" if i % 3 else "JPEG"),
        "mask": rng.integers(0, 3, (12 + i, 17), np.uint8),
        "label": None if i % 7 == 6 else ("cat", "dog")[i % 2],
        "depth": rng.integers(0, 1 << 16, (8, 6 + i), np.uint16),
        "bands": rng.integers(0, 255, (4, 3 + i % 2, 5), np.uint8),
        "second": i,
        "age": np.float32(i / 3),
        "flag": i % 2 == 0,
        "pose": rng.normal(size=(3, 4)),
        "track": rng.integers(-99, 99, (rows, 2)),
        "bits": rng.integers(0, 2, 3).astype(bool),
        "boxes": rng.uniform(0, 9, (rows, 4)).astype(np.float32),
        "outlines": [[[0, 0, 4, 0, i, 5]] * (1 + k % 2) for k in range(rows)],
        "areas": [{"size": [3, 4], "counts": [2, 5, 5]} for _ in range(rows)],
        "points": rng.uniform(0, 2, (rows, 4, 3)).astype(np.float32),
        "extra": rng.bytes(i % 6),
        "facts": None if i % 3 == 2 else {"id": i, "tags": ["a", "b"][: i % 3]},
        "ignored": object(),
    }


class Samples:
    """The first ``count`` samples, by position; those in ``broken`` raise."""

    def __init__(self, count: int, broken: tuple[int, ...] = ()) -> None:
        self._count, self._broken = count, broken

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i in self._broken:
            raise LookupError(f"sample {i} is lost")
        return sample(i)
