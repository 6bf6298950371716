"""Which way a picture is to be turned before it is shown, by the EXIF in its file."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["orientation_of", "refuse_turned"]

_ORIENTATION, _SHORT = 0x0112, 3
_MARKER_BYTES = 4  # of a JPEG's segment: 0xFF, its kind, its length
_START_OF_SCAN, _APP1 = 0xDA, 0xE1


def orientation_of(data: bytes) -> int:
    """EXIF's orientation of a JPEG, PNG or WebP, 1 to 8; 1 (as it lies there) where nothing is said."""
    for exif in _exif_of(data):
        found = _orientation(exif.removeprefix(b"Exif\0\0"))
        if 1 <= found <= 8:
            return found
    return 1


def refuse_turned(data: bytes, exif: str) -> None:
    """Refuse a picture that EXIF turns, unless ``exif`` is "ignore".

    Raises:
        ValueError: nobody knows which way annotations in numbers count.
    """
    orientation = orientation_of(data) if exif == "refuse" else 1
    if orientation != 1:
        raise ValueError(
            f"EXIF turns this picture (orientation {orientation}), and nobody knows whether its annotations "
            "are of it as shown or as stored; fastload's are of it as stored. Turn the pixels (mogrify "
            "-auto-orient FILE); or pack with --exif ignore --restart if they are of it as stored"
        )


def _exif_of(data: bytes) -> Iterator[bytes]:
    if data.startswith(b"\xff\xd8"):
        yield from _of_jpeg(data)
    elif data.startswith(b"\x89PNG\r\n\x1a\n"):
        yield from _of_chunks(data, 8, ">", b"eXIf")
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        yield from _of_chunks(data, 12, "<", b"EXIF")


def _of_jpeg(data: bytes) -> Iterator[bytes]:
    """The segments before the first scan."""
    at = 2
    while at + _MARKER_BYTES <= len(data) and data[at] == 0xFF and data[at + 1] != _START_OF_SCAN:
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if kind == 0xFF:  # what fills up
            at += 1
            continue
        if kind == _APP1 and data[at + 4 : at + 10] == b"Exif\0\0":
            yield data[at + 4 : at + 2 + length]
        at += 2 + max(length, 2)


def _of_chunks(data: bytes, at: int, order: str, wanted: bytes) -> Iterator[bytes]:
    """PNG's chunks are length, name, bytes, checksum; RIFF's name, length, bytes, to an even number."""
    is_png = order == ">"
    while at + 8 <= len(data):
        first, second = data[at : at + 4], data[at + 4 : at + 8]
        name, size = (second, first) if is_png else (first, second)
        length = int.from_bytes(size, "big" if is_png else "little")
        if name == wanted:
            yield data[at + 8 : at + 8 + length]
        at += 8 + length + (4 if is_png else length % 2)


def _orientation(tiff: bytes) -> int:
    """Of the first directory of a TIFF; 0: it does not say, or is none."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    try:
        if order is None:
            return 0
        (at,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, at)
        for entry in range(count):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, at + 2 + 12 * entry)
            if tag == _ORIENTATION:
                return value if kind == _SHORT else 0
    except struct.error:
        pass  # cut off: nobody could show it turned
    return 0
