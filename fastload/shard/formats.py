"""The shard formats behind one interface; a format's library is imported when it is used."""

from __future__ import annotations

import errno
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastload.errors import FastloadError, FormatError, ShardError
from fastload.sample.schema import Schema
from fastload.shard.chunk import Chunk

__all__ = ["FORMATS", "Facts", "Foreign", "Format", "Located", "ShardSpec", "Writer", "format_of"]


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
class Foreign:
    """What a file that others wrote says about its records."""

    located: Located
    labels: npt.NDArray[np.int64] | None = None
    keys: list[str] | None = None
    classes: tuple[str, ...] = ()
    picture: tuple[int, int] | None = None  # width and height of raw uint8 RGB records


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

    @staticmethod
    def read_foreign(path: Path, column: str | None) -> Foreign:
        """Where the records of somebody else's file lie, and what it says about them."""


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
    try:
        return importlib.import_module(f"fastload.shard.{name}")  # type: ignore[return-value]
    except ImportError as error:
        library = FORMATS[name].library
        raise FastloadError(
            f"the {name} format needs {library}, which cannot be imported ({error}): pip install {library}"
        ) from error
