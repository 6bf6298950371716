"""Pictures beside annotation files: found by name, read, and refused where EXIF turns them."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import read_regular
from fastload.packing.files import printable
from fastload.packing.folders import Problem, walk_images
from fastload.packing.listing import Listing, Row
from fastload.packing.options import PackOptions
from fastload.packing.pictures import NUMPY, read_picture
from fastload.packing.rows import Batch, FailedSample, Notes, PartialSample, Sample
from fastload.packing.sample_rows import SampleRows, row_of
from fastload.sample.schema import Schema
from fastload.shard.index import RECORD, as_rows

# ---- The orientation that EXIF gives a picture ------------------------------------------------------

_ORIENTATION, _SHORT = 0x0112, 3
_MARKER_BYTES = 4  # at the start of a JPEG's segment: 0xFF, its kind, its length
_START_OF_SCAN, _APP1 = 0xDA, 0xE1


def orientation_of(data: bytes) -> int:
    """Return EXIF's orientation of a JPEG, PNG or WebP, 1 to 8; 1 (as stored) without EXIF."""
    for exif in _exif_of(data):
        orientation = _orientation(exif.removeprefix(b"Exif\0\0"))
        if 1 <= orientation <= 8:
            return orientation
    return 1


def refuse_turned(data: bytes, exif: str) -> None:
    """Refuse a picture that EXIF turns, unless ``exif`` is "ignore".

    Raises:
        ValueError: it is unknown whether annotations are of the picture as stored or as shown.
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
    """Yield the EXIF segments before the first scan."""
    at = 2
    while at + _MARKER_BYTES <= len(data) and data[at] == 0xFF and data[at + 1] != _START_OF_SCAN:
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if kind == 0xFF:  # a fill byte
            at += 1
            continue
        if kind == _APP1 and data[at + 4 : at + 10] == b"Exif\0\0":
            yield data[at + 4 : at + 2 + length]
        at += 2 + max(length, 2)


def _of_chunks(data: bytes, at: int, order: str, wanted: bytes) -> Iterator[bytes]:
    """Yield EXIF chunks; PNG's are length, name, bytes, checksum, RIFF's name, length, bytes (padded)."""
    is_png = order == ">"
    while at + 8 <= len(data):
        first, second = data[at : at + 4], data[at + 4 : at + 8]
        name, size = (second, first) if is_png else (first, second)
        length = int.from_bytes(size, "big" if is_png else "little")
        if name == wanted:
            yield data[at + 8 : at + 8 + length]
        at += 8 + length + (4 if is_png else length % 2)


def _orientation(tiff: bytes) -> int:
    """Return the orientation in the first directory of a TIFF; 0: it has none, or is no TIFF."""
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
        pass  # cut off: no program could show it turned
    return 0


# ---- Samples that are files: a picture, and the files of its annotations ----------------------------

_MOST_TEXT = 64 << 20  # bytes of one picture's annotations; far more than anybody draws


class Paths:
    """Paths in order, as one string of bytes, so that a million of them take only their own length."""

    def __init__(self, paths: Iterable[bytes] = ()) -> None:
        self._ends, self._text = array("q"), bytearray()
        for path in paths:
            self.append(path)

    def append(self, path: bytes) -> None:
        """Append a path."""
        self._text += path
        self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        if not 0 <= number < len(self._ends):
            raise IndexError(number)
        return bytes(self._text[self._ends[number - 1] if number else 0 : self._ends[number]])


class FileSamples(SampleRows):
    """The common part of packs of listed files.

    Subclasses say what a sample is (:meth:`sample`), and which files it is made of (:meth:`sources`).

    Args:
        root: the folder that all paths start from.
        schema: the fields.
        count: the number of samples.
        settings: what else decides the samples, as JSON values.
    """

    def __init__(self, root: bytes, schema: Schema, count: int, settings: Mapping[str, Any]) -> None:
        super().__init__(root, schema)
        self._count, self._settings = count, dict(settings)

    def sample(self, position: int) -> Sample | PartialSample:
        """Return one sample; an exception is the reason why it cannot be packed."""
        raise NotImplementedError

    def sources(self, position: int) -> Iterator[bytes]:
        """Yield the files that a sample is made of, from ``root`` on, whether they exist or not."""
        raise NotImplementedError

    def picture(self, position: int) -> bytes:
        """Return the path of its picture, from ``root`` on; empty: there is none."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._count

    def settings(self) -> dict[str, Any]:
        return self._settings

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | FailedSample | PartialSample]:
        for position in range(start, self._count if stop is None else min(stop, self._count)):
            try:
                yield self.sample(position)
            except (OSError, ValueError, TypeError) as error:
                yield FailedSample(error, self.picture(position))

    def listed(self, notes: Notes) -> Iterator[Row]:
        return (row_of(self.root, self.names(position)) for position in range(self._count))

    def batches(
        self, start: int, stop: int | None, options: PackOptions, listing: Listing | None
    ) -> Iterator[Batch]:
        if listing is not None:
            self.check(listing, start, stop)
        return super().batches(start, stop, options, listing)

    def check(
        self, listing: Listing, start: int, stop: int | None, name: Callable[[bytes], bytes] = bytes
    ) -> None:
        """Compare samples with their listing, which may be another machine's: this one has found the files
        for itself.

        Args:
            name: returns what the listing calls a file.

        Raises:
            PackError: samples are of other files.
        """
        for position, row in enumerate(listing.rows(start, stop), start):
            if row.files != b"\0".join(map(name, self.names(position))):
                now = printable(self.picture(position)) or "another one"
                raise PackError(
                    "the source has changed since this pack was planned: files have come or gone, and sample "
                    f"{position} is {now} now. --restart throws the unfinished pack away."
                )

    def names(self, position: int) -> list[bytes]:
        """Return those of a sample's files that can exist: no name has a NUL."""
        return [path for path in self.sources(position) if b"\0" not in path]


def pictures_below(root: bytes, folder: bytes) -> Iterator[bytes]:
    """Yield the image files of ``root/folder`` in ImageFolder's order, as paths from ``root`` on.

    Raises:
        PackError: a folder cannot be read.
    """
    problems: list[Problem] = []
    for path, _, _ in walk_images(root, folder, problems):
        yield path
    if problems:
        path, reason = problems[0]
        raise PackError(f"{printable(os.path.join(root, path))}: {reason}.")


def stem_of(path: bytes) -> bytes:
    """Return a path without its last suffix."""
    return os.path.splitext(path)[0]


def read_small(path: str | bytes | os.PathLike[str]) -> bytes:
    """Read a small file.

    Raises:
        OSError, ValueError: it cannot be read, is no regular file, or is too large.
    """
    data = read_regular(path, _MOST_TEXT)
    if data is None:
        raise ValueError(f"{os.fsdecode(path)} has over {_MOST_TEXT} bytes, too many for a file of this kind")
    return data


def read_text(path: str | bytes | os.PathLike[str]) -> str:
    """Read a small text file, with or without a byte order mark.

    Raises:
        OSError, ValueError: it cannot be read, is too large, or is not UTF-8.
    """
    try:
        return read_small(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{os.fsdecode(path)} is not UTF-8: {error}") from None


def unturned(root: bytes, path: bytes, exif: str) -> Any:
    """Return a picture with its path from ``root`` on; only the path if EXIF may turn it (``exif`` "ignore").

    Raises:
        OSError, ValueError: it cannot be read, or EXIF turns it and ``exif`` is "refuse".
    """
    if exif == "ignore":
        return os.fsdecode(path)
    data = read_picture(os.path.join(root, path))
    if data.startswith(NUMPY):  # pixels, which have no EXIF
        return os.fsdecode(path)
    refuse_turned(data, exif)
    return {"bytes": data, "path": os.fsdecode(path)}


def facts_of(data: bytes, exif: str) -> tuple[int, int]:
    """Return width and height of a picture that annotations in numbers go with.

    Raises:
        ValueError: it is no picture, or EXIF turns it (unless ``exif`` is "ignore"), so that it is unknown
            which way the annotations count.
    """
    refuse_turned(data, exif)
    chunk = np.frombuffer(data, np.uint8)
    records = np.zeros(1, RECORD)
    records["length"], records["label"] = len(data), -1
    for _, reason in _C.describe(chunk, as_rows(records)):
        raise ValueError(reason.decode("utf-8", "backslashreplace"))
    return int(records["width"][0]), int(records["height"][0])
