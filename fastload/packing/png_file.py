"""Pixels as a PNG file (PNG specification, third edition: 11.2.1 IHDR, 9.2 filter types).

Not by Pillow, which need not be installed.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

__all__ = ["png_file"]

_LEVEL = 3  # of zlib: most of what more would save, in a third of the time
_UP = 2  # each byte as its difference to the one above
_COLOUR = {1: 0, 2: 4, 3: 2, 4: 6}  # colour type by channels: gray, gray and alpha, RGB, RGB and alpha


def png_file(pixels: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]) -> bytes:
    """A PNG of (height, width, channels) pixels, uint8 or uint16, of 1 to 4 channels."""
    height, width, channels = pixels.shape
    bits = 8 * pixels.itemsize
    rows = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">")).view(np.uint8).reshape(height, -1)
    filtered = np.empty((height, 1 + rows.shape[1]), np.uint8)
    filtered[:, 0] = _UP
    filtered[:1, 1:] = rows[:1]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, bits, _COLOUR[channels], 0, 0, 0)
    data = zlib.compress(filtered.tobytes(), _LEVEL)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
