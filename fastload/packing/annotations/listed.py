"""Samples that are files: each a picture, and the files that say something of it."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import read_regular
from fastload.packing.annotations.turned import refuse_turned
from fastload.packing.folders import Problem, walk_images
from fastload.packing.ingest import as_rows
from fastload.packing.looks import said_later
from fastload.packing.names import printable
from fastload.packing.samples.encode import Encoder, Failed, Lessened
from fastload.packing.samples.given import Sample, at_least
from fastload.packing.samples.pictures import NUMPY, read_picture
from fastload.sample.schema import Schema
from fastload.shard.index import RECORD

__all__ = ["FileSamples", "Paths", "facts_of", "pictures_below", "read_text", "stem_of", "unturned"]

_LOOKED_AT = 16
_MOST_TEXT = 64 << 20  # bytes of one picture's annotations; far more than anybody draws


class Paths:
    """Paths in their order, as one string of bytes: a million of them take what they are long."""

    def __init__(self, paths: Iterable[bytes] = ()) -> None:
        self._ends, self._text = array("q"), bytearray()
        for path in paths:
            self.append(path)

    def append(self, path: bytes) -> None:
        """One more, behind the others."""
        self._text += path
        self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        if not 0 <= number < len(self._ends):
            raise IndexError(number)
        return bytes(self._text[self._ends[number - 1] if number else 0 : self._ends[number]])


class FileSamples:
    """What packs of listed files have in common; see :class:`fastload.packing.samples.given.Given`.

    Subclasses say what a sample is (:meth:`sample`), and which files it is made of (:meth:`files`).

    Args:
        root: the folder that all paths start from.
        schema: the fields.
        count: how many samples there are.
        settings: what else decides the samples; JSON values.
    """

    def __init__(self, root: bytes, schema: Schema, count: int, settings: Mapping[str, Any]) -> None:
        self.root, self.schema = root, schema
        self._count, self._settings = count, settings
        self._facts: tuple[str, int, int] | None = None

    def sample(self, position: int) -> Sample | Lessened:
        """One sample. What it raises is the reason why it cannot be packed."""
        raise NotImplementedError

    def files(self, position: int) -> Iterator[bytes]:
        """The files that a sample is made of, from ``root`` on, whether they are there or not."""
        raise NotImplementedError

    def picture(self, position: int) -> bytes:
        """The path of its picture, from ``root`` on; empty: there is none."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._count

    def first(self) -> list[Sample]:
        found = (one.sample if isinstance(one, Lessened) else one for one in self.samples(0, _LOOKED_AT))
        return [sample for sample in found if not isinstance(sample, Failed)]

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | Failed | Lessened]:
        for position in range(start, self._count if stop is None else min(stop, self._count)):
            try:
                yield self.sample(position)
            except (OSError, ValueError, TypeError) as error:
                yield Failed(error, self.picture(position))

    def identity(self, encoder: Encoder) -> dict[str, Any] | None:
        return {"samples": self._count, "files": self._looked()[0], **self._settings}

    def compared(self) -> int:
        return self._count

    def newest_ns(self) -> int:
        return self._looked()[1]

    def about_bytes(self, encoder: Encoder) -> int:
        if encoder.transcoder is not None:
            return at_least(encoder, self.first(), self._count)
        return self.needed_bytes()

    def needed_bytes(self) -> int:
        """Bytes of the files."""
        return self._looked()[2]

    def _looked(self) -> tuple[str, int, int]:
        """A digest of names and sizes, the latest change in ns, and the bytes of all files; looks once."""
        if self._facts is None:
            hashed, newest, total = hashlib.blake2b(digest_size=16), 0, 0
            for path in (path for position in range(self._count) for path in self.files(position)):
                size = -1
                try:
                    status = os.stat(os.path.join(self.root, path))
                    size, newest = status.st_size, max(newest, status.st_mtime_ns)
                    total += size
                except (OSError, ValueError) as error:
                    said_later(path, error)
                hashed.update(path + b"\0" + size.to_bytes(8, "little", signed=True))
            self._facts = hashed.hexdigest(), newest, total
        return self._facts


def pictures_below(root: bytes, folder: bytes) -> Iterator[bytes]:
    """The image files of ``root/folder`` in ImageFolder's order, their paths from ``root`` on.

    Raises:
        PackError: a folder that cannot be read.
    """
    problems: list[Problem] = []
    for path, _, _ in walk_images(root, folder, problems):
        yield path
    if problems:
        path, reason = problems[0]
        raise PackError(f"{printable(os.path.join(root, path))}: {reason}.")


def stem_of(path: bytes) -> bytes:
    """A path without its last suffix."""
    return os.path.splitext(path)[0]


def read_small(path: str | bytes | os.PathLike[str]) -> bytes:
    """A small file.

    Raises:
        OSError, ValueError: it cannot be read, is no regular file, or is too large.
    """
    data = read_regular(path, _MOST_TEXT)
    if data is None:
        raise ValueError(f"{os.fsdecode(path)} has more than {_MOST_TEXT} bytes, and is no file of this kind")
    return data


def read_text(path: str | bytes | os.PathLike[str]) -> str:
    """A small text file, with or without a byte order mark.

    Raises:
        OSError, ValueError: it cannot be read, is too large, or is no UTF-8.
    """
    try:
        return read_small(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{os.fsdecode(path)} is not UTF-8: {error}") from None


def unturned(root: bytes, path: bytes, exif: str) -> Any:
    """A picture with its path from ``root`` on, as samples have it; where it may be turned, only its path.

    Raises:
        OSError, ValueError: it cannot be read; or EXIF turns it and ``exif`` is "refuse".
    """
    if exif == "ignore":
        return os.fsdecode(path)
    data = read_picture(os.path.join(root, path))
    if data.startswith(NUMPY):  # pixels, which nothing turns
        return os.fsdecode(path)
    refuse_turned(data, exif)
    return {"bytes": data, "path": os.fsdecode(path)}


def facts_of(data: bytes, exif: str) -> tuple[int, int]:
    """Width and height of a picture that annotations in numbers go with.

    Raises:
        ValueError: no picture; or EXIF turns it, and nobody knows which way the annotations count (unless
            ``exif`` is "ignore").
    """
    refuse_turned(data, exif)
    chunk = np.frombuffer(data, np.uint8)
    records = np.zeros(1, RECORD)
    records["length"], records["label"] = len(data), -1
    for _, reason in _C.describe(chunk, as_rows(records)):
        raise ValueError(reason.decode("utf-8", "backslashreplace"))
    return int(records["width"][0]), int(records["height"][0])
