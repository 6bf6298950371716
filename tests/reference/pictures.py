"""Synthetic pictures, encoded in memory."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def picture(seed: int, width: int, height: int) -> Image.Image:
    """A smooth random picture with some noise, so that codecs have something to do."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    return Image.fromarray((smooth + rng.integers(-8, 9, smooth.shape)).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, format: str = "JPEG", **options: object) -> bytes:
    """The bytes of a picture in a format."""
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def jpegs(count: int) -> list[bytes]:
    """Small JPEGs of different sizes and subsamplings."""
    return [
        encoded(picture(i, 40 + 7 * i % 60, 36 + 11 * i % 50), quality=60 + i % 35, subsampling=i % 3)
        for i in range(count)
    ]
