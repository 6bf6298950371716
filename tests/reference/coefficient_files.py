"""Small JPEGs, their coefficient records, and records with something changed and all else put right."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from coefficient_reader import read_header, read_rest, rest_dictionary
from PIL import Image

from fastload import _C

__all__ = [
    "FORMS",
    "SAMPLINGS",
    "bits_of",
    "jpeg",
    "jpeg_by_core",
    "picture",
    "rebuilt",
    "summed",
    "to_record",
    "with_bytes",
    "with_frame",
]

FORMS = ("fast", "small")
SAMPLINGS = {"4:4:4": ("RGB", 0), "4:2:2": ("RGB", 1), "4:2:0": ("RGB", 2), "gray": ("L", 0)}


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Smooth colours on the left, noise on the right."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 90 * np.sin(x / (7.0 + 9 * c)) * np.cos(y / (11.0 + 5 * c)) for c in range(3)]
    noise = np.random.default_rng(0).normal(0, 25, (height, width, 3)) * (x > width // 2)[..., None]
    pixels = np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def jpeg(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def to_record(data: bytes, form: str) -> bytes:
    return bytes(_C.to_coefficients(np.frombuffer(data, np.uint8), form))


def jpeg_by_core(record: bytes) -> bytes:
    return bytes(_C.coefficients_to_jpeg(np.frombuffer(record, np.uint8)))


def summed(data: bytes) -> bytes:
    """With its CRC-32C."""
    crc = _C.crc32c(np.frombuffer(data[:60] + data[64:], np.uint8))
    return data[:60] + struct.pack("<I", crc) + data[64:]


def with_bytes(data: bytes, at: int, value: bytes) -> bytes:
    return summed(data[:at] + value + data[at + len(value) :])


def rebuilt(data: bytes, segments: list[bytes] | None = None, rest: bytes | None = None) -> bytes:
    """The record with these segments, with this rest, or with its own."""
    head = read_header(data)
    if segments is None:
        ends = np.cumsum([0, *head.lengths]).tolist()
        segments = [head.segments[ends[i] : ends[i + 1]] for i in range(len(head.lengths))]
    rest = head.rest if rest is None else rest
    lengths_at = len(data) - max(len(head.rest), 64) - len(head.segments) - 2 * len(head.lengths)
    found = data[:52] + struct.pack("<3I", sum(map(len, segments)), len(rest), 0) + data[64:lengths_at]
    found += struct.pack(f"<{len(segments)}H", *map(len, segments)) + b"".join(segments)
    return summed(found + rest.ljust(64, b"\0"))


def with_frame(data: bytes, change: Callable[[bytes], bytes], packed: bool = False) -> bytes:
    """The record with another file around its coefficients."""
    ones, frame = read_rest(read_header(data).rest)
    frame = change(frame)
    head = struct.pack("<BI", ones | packed << 1, len(frame))
    if not packed:
        return rebuilt(data, rest=head + frame)
    packer = zlib.compressobj(zdict=rest_dictionary())
    return rebuilt(data, rest=head + packer.compress(frame) + packer.flush())


def bits_of(*numbers: tuple[int, int]) -> bytes:
    """A segment of numbers with so many bits, the lowest bit first, and zeros up to a whole byte."""
    value, at = 0, 0
    for number, bits in numbers:
        value |= (number & (1 << bits) - 1) << at
        at += bits
    return value.to_bytes(-(-at // 8), "little")
