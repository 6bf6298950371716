"""The interface of the shard formats; a format's library is imported at first use."""

from __future__ import annotations

import errno
import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload.errors import FastloadError, FormatError, ShardError
from fastload.extras import library_missing
from fastload.sample.fields import Kind
from fastload.sample.schema import Field, Schema
from fastload.shard.columns import Chunk

#: Kinds that users set for fields of files that others wrote; None: leave it out.
Kinds: TypeAlias = Mapping[str, Kind | None]


@dataclass(frozen=True)
class Facts:
    """The facts about a format before its module and library are imported."""

    suffix: str  # of its shards
    library: str  # that writes them


#: The formats: each is a module of this package.
FORMATS = {
    "arrow": Facts(".arrow", "pyarrow"),
    "lmdb": Facts(".lmdb", "lmdb"),
    "hdf5": Facts(".h5", "h5py"),
}
#: Formats that others write and ``fastload index`` reads, each a module of this package: whether their
#: further values become fields.
INDEXED = {"arrow": True, "lmdb": False, "hdf5": False, "tar": True, "mds": True}
# Errors that say nothing about the file's contents.
_NO_DAMAGE = (
    errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.ENOMEM, errno.EPERM,
    errno.ESTALE,
)  # fmt: skip


@dataclass(frozen=True)
class ShardSpec:
    """What a writer may know before the first record."""

    classes: Sequence[str]
    records: int  # maximum
    data_bytes: int  # approximate
    raw: bool = False  # records are pixels: readers need each one's width and height
    size: tuple[int, int] | None = None  # raw: width and height of every record
    schema: Schema | None = None  # None: only an image and a label


@dataclass(frozen=True)
class Located:
    """Byte ranges of a shard file's records, in its own order."""

    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]


#: Of a field that there is not.
NOTHING_LOCATED = Located(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


@dataclass(frozen=True)
class Values:
    """A further field of a file that others wrote."""

    field: Field
    chunk: Chunk  # one value per record; for pictures lengths, and entries with known offset and label
    # (for lists of them, see foreign_lists.py, known length, too)


@dataclass(frozen=True)
class Foreign:
    """The contents of a file that others wrote."""

    located: Located
    labels: npt.NDArray[np.int64] | None = None
    keys: list[str] | None = None  # UTF-8 with surrogates for other bytes
    classes: tuple[str, ...] = ()
    picture: tuple[int, int] | None = None  # width and height of raw uint8 RGB records
    fields: Mapping[str, Values] = field(default_factory=dict)  # besides the pictures and the label
    bad: Mapping[int, str] = field(default_factory=dict)  # invalid records, and why
    left_out: Sequence[tuple[str, str]] = ()  # values in no record: name, reason
    lessened: Mapping[int, Sequence[tuple[str, str]]] = field(default_factory=dict)
    # by record: the annotations dropped from it, and why
    name: str = "image"  # of the pictures' field
    kind: Kind | None = None  # of the pictures' field; None: Image()
    in_lists: bool = False  # samples have no picture each, only lists of them: ``located`` is empty


class Writer(Protocol):
    """A writer of one shard. The caller passes a temporary path, syncs and renames."""

    def append(
        self,
        data: npt.NDArray[np.uint8],
        records: npt.NDArray[np.void],
        keys: list[bytes],
        further: Sequence[Chunk] = (),
    ) -> None:
        """Add records: ``RECORD`` entries whose offset counts from the start of ``data`` (borrowed for
        the call), back to back, with UTF-8 ``keys``. ``further``: the values of the schema's ``columns``."""

    def close(self) -> None:
        """Finish the file (not synced)."""

    def abort(self) -> None:
        """Close the file after an error."""


class Format(Protocol):
    """The interface of a module of this package that is a format."""

    #: Whether a list of pictures is one value that begins with their lengths; else they lie back to back.
    LISTS_HAVE_HEADS: bool

    @staticmethod
    def Writer(path: Path, spec: ShardSpec) -> Writer:
        """Begin a shard at ``path``."""

    @staticmethod
    def data_file(path: Path) -> Path:
        """Return the file of the shard ``path`` that holds the records' bytes."""

    @staticmethod
    def shard_bytes(lengths: npt.NDArray[np.uint64]) -> int:
        """Estimate the size of the data file for records of these lengths."""

    @staticmethod
    def locate(path: Path, names: Sequence[str | None] = ...) -> list[Located]:
        """Locate the pictures of one of our shards, for each field of ``names``: the index's first (None: it
        has none, and nothing is located), then others', and lists of pictures by sample."""


class Readable(Protocol):
    """The interface of a module of this package that reads files that others wrote."""

    @staticmethod
    def data_file(path: Path) -> Path:
        """Return the file of ``path`` that holds the records' bytes."""

    @staticmethod
    def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
        """Locate the records of a file that others wrote, and read their facts; ``column`` is that of the
        pictures (None: find it)."""


@contextmanager
def damage_reported(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a format's library raises on a damaged file into a FormatError.

    Raises:
        FormatError: damage.
        ShardError: the system could not open or read the file, which may be intact.
    """
    try:
        yield
    except FastloadError:
        raise
    except Exception as error:  # h5py alone raises OSError, KeyError, RuntimeError, ValueError and TypeError
        code = _system_error(error)
        if code in _NO_DAMAGE:
            raise ShardError(f"{path} cannot be read: {os.strerror(code)}.") from error
        raise FormatError(f"{path} is not a whole {kind}: {type(error).__name__}: {error}") from error


def _system_error(error: Exception) -> int | None:
    """Return the errno of a failed system call; h5py has it in the text of any exception."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = re.search(r"\berrno = (\d+)", str(error))
    return int(match[1]) if match else None


def format_of(name: str) -> Format:
    """Import and return the module of a format, and with it its library.

    Raises:
        FastloadError: the library cannot be imported.
    """
    return _module(name, FORMATS[name].library)  # type: ignore[no-any-return]


def readable_of(name: str) -> Readable:
    """Import and return the module that reads a format of :data:`INDEXED`, and with it its library.

    Raises:
        FastloadError: the library cannot be imported.
    """
    library = FORMATS[name].library if name in FORMATS else "pyarrow"
    return _module(name, library)  # type: ignore[no-any-return]


def _module(name: str, library: str) -> Any:
    try:
        return importlib.import_module(f"fastload.shard.{name}")
    except ImportError as error:
        raise library_missing(library, f"the {name} format", error) from error
