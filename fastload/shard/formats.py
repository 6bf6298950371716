"""The shard formats behind one interface; a format's library is imported when it is used."""

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

#: Kinds that users gave to fields of files that others wrote; None: leave it out.
Kinds: TypeAlias = Mapping[str, Kind | None]


@dataclass(frozen=True)
class Facts:
    """What is known of a format before its module and library are imported."""

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
# What says nothing about the file's contents.
_NO_DAMAGE = (
    errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.ENOMEM, errno.EPERM,
    errno.ESTALE,
)  # fmt: skip


@dataclass(frozen=True)
class ShardSpec:
    """What a writer may know before the first record."""

    classes: Sequence[str]
    records: int  # at most
    data_bytes: int  # about
    raw: bool = False  # records are pixels: readers need each one's width and height
    size: tuple[int, int] | None = None  # raw: width and height of every record
    schema: Schema | None = None  # None: an image and a label, and nothing else


@dataclass(frozen=True)
class Located:
    """Byte ranges of a shard file's records, in its own order."""

    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Values:
    """A further field of somebody else's file."""

    field: Field
    chunk: Chunk  # a value a record; of pictures lengths, and entries of which offset and label are known


@dataclass(frozen=True)
class Foreign:
    """What a file that others wrote says about its records."""

    located: Located
    labels: npt.NDArray[np.int64] | None = None
    keys: list[str] | None = None  # UTF-8 with surrogates for other bytes
    classes: tuple[str, ...] = ()
    picture: tuple[int, int] | None = None  # width and height of raw uint8 RGB records
    fields: Mapping[str, Values] = field(default_factory=dict)  # besides the pictures and the label
    bad: Mapping[int, str] = field(default_factory=dict)  # records that are none, and why
    left_out: Sequence[tuple[str, str]] = ()  # what is in no record: name, reason
    lessened: Mapping[int, Sequence[tuple[str, str]]] = field(default_factory=dict)
    # of records: annotations that they cannot have, which and why
    name: str = "image"  # of the pictures' field
    kind: Kind | None = None  # likewise; None: Image()


class Writer(Protocol):
    """Writes one shard. The caller gives a temporary path, syncs and renames."""

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
        """Let go of the file after an error."""


class Format(Protocol):
    """What a module of this package has that is a format."""

    @staticmethod
    def Writer(path: Path, spec: ShardSpec) -> Writer:
        """Begin a shard at ``path``."""

    @staticmethod
    def data_file(path: Path) -> Path:
        """The file of the shard ``path`` that holds the records' bytes."""

    @staticmethod
    def shard_bytes(lengths: npt.NDArray[np.uint64]) -> int:
        """About how large the data file of records of these lengths becomes."""

    @staticmethod
    def locate(path: Path, names: Sequence[str] = ...) -> list[Located]:
        """Where the pictures of a shard of our own lie, for each field of ``names``, the index's first."""


class Readable(Protocol):
    """What a module of this package has that reads files that others wrote."""

    @staticmethod
    def data_file(path: Path) -> Path:
        """The file of ``path`` that holds the records' bytes."""

    @staticmethod
    def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
        """Where the records of somebody else's file lie, and what it says about them; ``column`` is that of
        the pictures (None: to be found)."""


@contextmanager
def damage_reported(path: Path, kind: str) -> Iterator[None]:
    """Turns whatever a format's library raises on a damaged file into a FormatError.

    Raises:
        FormatError: damage.
        ShardError: the system could not open or read the file, whole as it may be.
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
    """The errno of a system call that failed; h5py has it in the text of any exception."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = re.search(r"\berrno = (\d+)", str(error))
    return int(found[1]) if found else None


def format_of(name: str) -> Format:
    """The module of a format, and with it its library.

    Raises:
        FastloadError: the library cannot be imported.
    """
    return _module(name, FORMATS[name].library)  # type: ignore[no-any-return]


def readable_of(name: str) -> Readable:
    """The module that reads a format of :data:`INDEXED`, and with it its library.

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
