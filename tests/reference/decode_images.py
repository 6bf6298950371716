"""Odd pictures made on the spot, and Pillow's answer to what their pixels are."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from PIL import Image

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def photo(width: int, height: int, seed: int = 0) -> Pixels:
    """Something like a photograph, (height, width, 3): smooth colour fields, edges and noise."""
    rng = np.random.default_rng([seed, width, height])
    coarse = rng.integers(0, 256, (height // 4 + 2, width // 4 + 2, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    noisy = smooth.astype(int) + rng.integers(-20, 21, (height, width, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def encode(pixels: Pixels, kind: str, mode: str = "RGB", **options: Any) -> bytes:
    """The picture as a file of Pillow's format ``kind``, converted to ``mode`` first."""
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind, **options)
    return out.getvalue()


def pillow_rgb(data: bytes) -> Pixels:
    """Pillow's full decode."""
    with Image.open(io.BytesIO(data)) as image, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Palette images with Transparency")
        return np.asarray(image.convert("RGB"))


def frame_header(jpeg: bytes) -> int:
    """Where the frame header's marker (SOF0, 1 or 2) begins."""
    at = 2
    while jpeg[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return at


def patch_frame(jpeg: bytes, **changes: Any) -> bytes:
    """Other values in the frame header: marker, precision, height, width, factors (one byte a component)."""
    at = frame_header(jpeg)
    out = bytearray(jpeg)
    if "marker" in changes:
        out[at + 1] = changes["marker"]
    if "precision" in changes:
        out[at + 4] = changes["precision"]
    for name, where in (("height", at + 5), ("width", at + 7)):
        if name in changes:
            out[where : where + 2] = changes[name].to_bytes(2, "big")
    for component, factor in enumerate(changes.get("factors", ())):
        out[at + 11 + 3 * component] = factor
    return bytes(out)


# Sampling factors (0xHV for Y, Cb, Cr) with 2 or 4 blocks of Y, then one of Cb and Cr, in an MCU. A file of
# Pillow's 4:2:2 or 4:2:0 has as many, so that with a changed header its data are a valid (if scrambled)
# picture of the other sampling.
FACTORS: dict[str, tuple[int, int, int]] = {
    "4:4:0": (0x12, 0x11, 0x11),
    "4:2:2": (0x21, 0x11, 0x11),
    "4:2:0": (0x22, 0x11, 0x11),
    "4:1:1": (0x41, 0x11, 0x11),
    "1x4": (0x14, 0x11, 0x11),
}


def resampled_jpeg(name: str, columns: int, rows: int, cut: tuple[int, int], **options: Any) -> bytes:
    """A JPEG of ``columns`` by ``rows`` MCUs with FACTORS[name], less ``cut`` pixels right and below.

    Progressive files must not be cut: their scans count blocks by the picture's size.
    """
    factors = FACTORS[name]
    blocks = sum((f >> 4) * (f & 15) for f in factors)
    source, width, height = ("4:2:2", 16, 8) if blocks == 4 else ("4:2:0", 16, 16)
    jpeg = encode(photo(columns * width, rows * height), "JPEG", subsampling=source, **options)
    mcu_width, mcu_height = 8 * max(f >> 4 for f in factors), 8 * max(f & 15 for f in factors)
    size = {"width": columns * mcu_width - cut[0], "height": rows * mcu_height - cut[1]}
    return patch_frame(jpeg, factors=factors, **size)


def scans(jpeg: bytes) -> list[tuple[int, int]]:
    """Begin and end of each scan, its tables included: from behind the last scan to the next one's end."""
    found, begin, at = [], 0, 2
    while jpeg[at + 1] != 0xD9:
        marker = jpeg[at + 1]
        if marker in (0xC4, 0xDA) and begin == 0:
            begin = at
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if marker == 0xDA:
            while jpeg[at] != 0xFF or jpeg[at + 1] == 0 or 0xD0 <= jpeg[at + 1] <= 0xD7:
                at += 1
            found.append((begin, at))
            begin = 0
    return found
