"""Small sets of annotated pictures, written by each format's own rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["ids_of", "write_mask", "write_photo"]


def write_photo(path: Path, number: int, size: tuple[int, int] = (40, 30), orientation: int = 1) -> None:
    """A small JPEG (or PNG) of its own, which EXIF says is turned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(number)
    pixels = np.broadcast_to(rng.integers(0, 255, 3, np.uint8), (size[1], size[0], 3))
    exif = Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, exif=exif.tobytes() if orientation != 1 else b"")


def ids_of(number: int, size: tuple[int, int] = (40, 30), most: int = 20) -> npt.NDArray[np.uint16]:
    """The ids of a mask."""
    return np.random.default_rng(number + 1000).integers(0, most, (size[1], size[0]), np.uint16)


def write_mask(path: Path, ids: npt.NDArray[np.uint16]) -> None:
    """A mask as a PNG of 8 bits, or of 16 where it needs them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(ids if ids.max() > 255 else ids.astype(np.uint8)).save(path)
