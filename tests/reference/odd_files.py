"""Pictures of every kind that the decoders treat differently, small and larger than the bounds of tests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["ODD_FILES", "odd_file", "write_files"]


def odd_file(width: int, height: int, kind: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    """A smooth picture with some noise, as a file of Pillow's format ``kind``."""
    rng = np.random.default_rng([width, height])
    coarse = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    pixels = (smooth + rng.integers(-9, 10, smooth.shape)).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind, **options)
    return out.getvalue()


def _turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif.tobytes()


# Names sort as they are listed. Bounds of tests: 48 and 64.
ODD_FILES = {
    "c/00.jpg": odd_file(150, 100, subsampling=0),
    "c/01.jpg": odd_file(100, 150, subsampling=2, exif=_turned()),
    "c/02.jpg": odd_file(129, 129, mode="L"),
    "c/03.jpg": odd_file(97, 143, mode="CMYK"),
    "c/04.jpg": odd_file(131, 77, progressive=True),
    "c/05.jpg": odd_file(40, 36, subsampling=1),
    "c/06.png": odd_file(128, 64, "PNG"),
    "c/07.png": odd_file(200, 31, "PNG", "P"),
    "c/08.png": odd_file(65, 63, "PNG", "LA"),
    "c/09.png": odd_file(30, 47, "PNG", "RGBA"),
    "c/10.webp": odd_file(130, 50, "WEBP"),
    "c/11.png": odd_file(99, 101, "GIF"),
    "c/12.png": odd_file(70, 72, "BMP"),
    "d/00.png": odd_file(33, 190, "TIFF"),
    "d/01.jpg": odd_file(640, 2),
    "d/02.jpg": odd_file(48, 48),
    "d/03.jpg": odd_file(64, 64),
}


def write_files(root: Path, files: dict[str, bytes] = ODD_FILES) -> Path:
    """A folder of them."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root
