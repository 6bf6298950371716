"""Samples of one size for all of their fields. A module of its own: processes that pack them import it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from fastload.sample.schema import Schema

SCHEMA = Schema.of(
    {
        "image": "image",
        "mask": "mask",
        "ids": "mask(bits=16)",
        "gray": "image(1)",
        "depth": "image(1, 16)",
        "bands": "image(5)",
        "boxes": "boxes",
        "centres": "boxes(cxcywh, relative=True)",
        "points": "keypoints(2)",
        "outlines": "polygons",
        "areas": "polygons(rle)",
        "n": "int64",
    }
)
LIMIT = 40


def jpeg(pixels: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", **options)
    return out.getvalue()


def sample(i: int) -> dict[str, Any]:
    """Pictures of one size, from 20 to 93 pixels wide; every third is small enough to stay."""
    rng = np.random.default_rng(i)
    width, height = (LIMIT - i, 20) if i % 3 == 2 else (60 + 3 * i, 50 + i)
    smooth = np.add.outer(np.arange(height), np.arange(width))[..., None] * np.array([1, 2, 1])
    corners = rng.uniform(0, 20, (i % 4, 4)).astype(np.float32)
    corners[:, 2:] += corners[:, :2]
    runs = [3, 5, width * height - 8]
    return {
        "image": jpeg(smooth.astype(np.uint8), progressive=i % 2 == 0),
        "mask": rng.integers(0, 200, (height, width), np.uint8),
        "ids": rng.integers(0, 1 << 16, (height, width), np.uint16),
        "gray": smooth[..., 0].astype(np.uint8),
        "depth": (smooth[..., 0] * 300).astype(np.uint16),
        "bands": rng.integers(0, 255, (height, width, 5), np.uint8),
        "boxes": corners,
        "centres": corners / 100,
        "points": rng.uniform(0, 20, (i % 3, 2, 3)).astype(np.float32),
        "outlines": [[rng.uniform(0, 20, (4, 2)).astype(np.float32)] for _ in range(i % 3)],
        "areas": [{"size": [height, width], "counts": runs} for _ in range(i % 3)],
        "n": i,
    }


class Samples:
    """Pickled into processes."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i >= 12:
            raise IndexError(i)
        return sample(i)
