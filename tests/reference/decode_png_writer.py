"""A plain PNG writer for what Pillow does not write: every depth and colour type, interlaced too."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

GRAY, RGB, PALETTE, GRAY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGB_ALPHA: 4}
# PNG specification, table 11.1.
KINDS = [
    (c, d)
    for c, depths in ((0, (1, 2, 4, 8, 16)), (2, (8, 16)), (3, (1, 2, 4, 8)), (4, (8, 16)), (6, (8, 16)))
    for d in depths
]
# PNG specification, 8.2: first column, first row, column step, row step.
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_rows(samples: np.ndarray[Any, Any], depth: int) -> bytes:
    """Rows of (height, width, channels) samples, each behind its filter byte (0: none)."""
    height = samples.shape[0]
    flat = samples.reshape(height, -1)
    if depth == 16:
        packed = flat.astype(">u2").view(np.uint8)
    else:
        bits = np.unpackbits(flat.astype(np.uint8)[..., None], axis=-1)[..., 8 - depth :]
        packed = np.packbits(bits.reshape(height, -1), axis=1)
    return np.concatenate([np.zeros((height, 1), np.uint8), packed], axis=1).tobytes()


def write_png(
    samples: np.ndarray[Any, Any],
    depth: int,
    colour: int,
    *,
    interlaced: bool = False,
    palette: np.ndarray[Any, Any] | None = None,
    extra: bytes = b"",
) -> bytes:
    """``samples``: (height, width, channels); ``palette``: (n, 3); ``extra``: chunks before IDAT."""
    height, width = samples.shape[:2]
    if interlaced:
        passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        data = b"".join(pack_rows(part, depth) for part in passes if part.size)
    else:
        data = pack_rows(samples, depth)
    out = b"\x89PNG\r\n\x1a\n"
    out += chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced)))
    if palette is not None:
        out += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    return out + extra + chunk(b"IDAT", zlib.compress(data, 1)) + chunk(b"IEND", b"")


def random_png(colour: int, depth: int, width: int, height: int, **options: Any) -> bytes:
    """A picture of noise of the given kind."""
    rng = np.random.default_rng([colour, depth, width, height])
    samples = rng.integers(0, 2**depth, (height, width, CHANNELS[colour]))
    if colour == PALETTE:
        options["palette"] = rng.integers(0, 256, (2**depth, 3))
    return write_png(samples, depth, colour, **options)
