"""Pictures beside annotation files: found by name, read, and refused where EXIF turns them."""

from __future__ import annotations

import os
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

# ---- Pictures that EXIF turns ------------------------------------------------------------------------


def refuse_turned(data: bytes, exif: str) -> None:
    """Refuse a picture that EXIF turns, if ``exif`` is "refuse".

    Raises:
        ValueError: it is unknown whether annotations are of the picture as stored or as shown.
    """
    orientation = _C.orientation(np.frombuffer(data, np.uint8)) if exif == "refuse" else 1
    if orientation != 1:
        raise ValueError(
            f"EXIF turns this picture (orientation {orientation}), and nobody knows whether its annotations "
            "are of it as shown or as stored. Pack with --exif turn --restart if they are of it as shown, "
            "with --exif ignore --restart if they are of it as stored"
        )


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
    """Return a picture with its path from ``root`` on; only the path if EXIF may turn it (``exif`` "ignore"
    or "turn").

    Raises:
        OSError, ValueError: it cannot be read, or EXIF turns it and ``exif`` is "refuse".
    """
    if exif != "refuse":
        return os.fsdecode(path)
    data = read_picture(os.path.join(root, path))
    if data.startswith(NUMPY):  # pixels, which have no EXIF
        return os.fsdecode(path)
    refuse_turned(data, exif)
    return {"bytes": data, "path": os.fsdecode(path)}


def check_size(data: bytes, entry: Mapping[str, Any]) -> None:
    """Refuse a picture of another size than its entry in COCO's list of images says, if it says one.

    Raises:
        ValueError: they differ, so that it is unknown which size boxes and masks are of.
    """
    said = entry.get("width"), entry.get("height")
    if all(isinstance(side, int) for side in said):
        found = facts_of(data, "ignore")
        if found != said:
            raise ValueError(
                f"it has {found[0]}x{found[1]} pixels, and its annotations are of a picture of "
                f"{said[0]}x{said[1]} (its width and height in the list of images)"
            )


def facts_of(data: bytes, exif: str) -> tuple[int, int]:
    """Return width and height of a picture that annotations in numbers go with.

    Raises:
        ValueError: it is no picture, or EXIF turns it (if ``exif`` is "refuse"), so that it is unknown
            which way the annotations count.
    """
    refuse_turned(data, exif)
    chunk = np.frombuffer(data, np.uint8)
    records = np.zeros(1, RECORD)
    records["length"], records["label"] = len(data), -1
    for _, reason in _C.describe(chunk, as_rows(records), (exif == "turn", False)):
        raise ValueError(reason.decode("utf-8", "backslashreplace"))
    return int(records["width"][0]), int(records["height"][0])
