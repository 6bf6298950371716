"""What is packed: numbered rows of one schema, and their bytes in batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import ChecksumError, FormatError, ObjectMissing
from fastload.packing.coefficients import RecodeOutcome
from fastload.packing.files import publish_folder, remove, temporary_of
from fastload.packing.folders import Ignored, Problem
from fastload.packing.listing import Listing, Row, Totals
from fastload.packing.options import PackOptions
from fastload.packing.pictures import Value, shown_schema
from fastload.sample.schema import Schema
from fastload.shard.columns import Chunk
from fastload.shard.dataset import PackedFiles

#: The entry of :meth:`Rows.identity` with the folders that go into the set as they are: bytes and CRC-32C
#: of their files.
CARRIED = "carried"
#: That with what decides how the videos of a LeRobot set become pictures.
FRAMES = "lerobot"
Sample = Mapping[str, Any]
_NO_FILE = b""


@dataclass(frozen=True)
class FailedSample:
    """A stand-in for a sample that the source cannot make."""

    error: Exception
    path: bytes = _NO_FILE  # of its picture below the root, if known


@dataclass(frozen=True)
class PartialSample:
    """A sample some of whose annotations cannot be packed."""

    sample: Sample  # without them
    left_out: Sequence[tuple[str, str]]  # which annotation, reason


@dataclass(frozen=True)
class StoredSample:
    """A sample of a packed set: the bytes of its fields, in the schema's order."""

    path: bytes  # that its key is made of
    values: Sequence[Value]


@dataclass(frozen=True)
class Batch:
    """Rows as bytes, in their order."""

    positions: npt.NDArray[np.int64]  # of the samples, in the source
    keys: list[bytes]
    fields: list[Chunk]  # in the schema's order
    stop: int  # one past the last position that was looked at
    failures: list[tuple[int, str, str]] = field(default_factory=list)  # position, key, reason
    left_out: list[tuple[int, str, str, str]] = field(default_factory=list)  # and annotation before reason
    outcomes: list[tuple[int, str, RecodeOutcome]] = field(default_factory=list)  # of JPEGs: position, key
    baselines: int = 0  # progressive JPEGs that became baseline ones
    is_whole: bool = False  # a container's batch is this one; otherwise the writer joins and cuts batches

    @property
    def sizes(self) -> npt.NDArray[np.uint64]:
        """Bytes of each sample."""
        lengths = [chunk.lengths for chunk in self.fields]
        total: npt.NDArray[np.uint64] = np.sum(lengths, axis=0, dtype=np.uint64)
        return total


def plain_fields(data: npt.NDArray[np.uint8], records: npt.NDArray[np.void]) -> list[Chunk]:
    """Return images and labels of records that lie back to back in ``data``."""
    labels = np.ascontiguousarray(records["label"].astype("<i4"))
    widths = np.full(len(labels), labels.itemsize, np.uint64)
    return [Chunk(data, records["length"].astype(np.uint64), records), Chunk(labels.view(np.uint8), widths)]


@dataclass
class Notes:
    """What a walk through a source meets besides rows: folders that it cannot read, and what it ignores."""

    problems: list[Problem] = field(default_factory=list)
    ignored: Ignored = field(default_factory=Ignored)


class Files(Protocol):
    """Where the files of rows are, if not on this machine."""

    def here(self, rows: Sequence[Row], folder: Path) -> AbstractContextManager[bytes]:
        """Fetch the files of rows, and yield the root that their paths start from.

        Args:
            rows: some rows; a file that is gone is left out.
            folder: a folder to make for them, which is removed afterwards.

        Raises:
            PackError: a file has another size.
            RemoteError: the store does not deliver a file.
        """


@dataclass(frozen=True)
class Carried:
    """A folder of files that a packed set has beside its own.

    Args:
        name: the folder's.
        files: its files by their paths below it, with a function that reads each.
    """

    name: str
    files: Mapping[str, Callable[[], bytes]]

    def facts(self) -> dict[str, Any]:
        """Return what the manifest says of its files: bytes and CRC-32C of each, by path."""
        return {name: _facts_of(read()) for name, read in self.files.items()}

    def write(self, stage: Path) -> None:
        """Write it into a set's folder, all of it or nothing."""
        final = stage / self.name
        temporary = temporary_of(final)
        remove(temporary)
        for name, read in self.files.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(read())
        remove(final)
        publish_folder(temporary, final)


def _facts_of(data: bytes) -> dict[str, int]:
    return {"bytes": len(data), "crc32c": int(_C.crc32c(np.frombuffer(data, np.uint8)))}


def carried_by(dataset: PackedFiles) -> list[Carried]:
    """Return the folders that a packed set has as its source had them.

    Reading one of their files raises ChecksumError if it is not there or not as it was packed.

    Raises:
        FormatError: a name leads out of the set's folder.
    """

    def read(name: str, known: Mapping[str, Any]) -> bytes:
        again = f"Put the file of the set's source there, or pack {dataset.where} again."
        try:
            if dataset.location is None:
                data = (dataset.folder / name).read_bytes()
            else:
                assert dataset.store is not None
                data = dataset.store.get((dataset.location / name).path)
        except (FileNotFoundError, NotADirectoryError, ObjectMissing):
            raise ChecksumError(f"{name} is not there. {again}") from None
        found = _facts_of(data)
        if found != known:
            raise ChecksumError(
                f"{name} has {found['bytes']} bytes with CRC-32C {found['crc32c']:#010x}, and was packed "
                f"with {known['bytes']} and {known['crc32c']:#010x}: it was changed. {again}"
            )
        return data

    folders = dataset.manifest.options.get(CARRIED) or {}
    for path in (Path(folder, name) for folder, files in folders.items() for name in files):
        if path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
            raise FormatError(
                f"{dataset.where}: the manifest's {CARRIED!r} has {str(path)!r}, which is no file below it."
            )
    for known in (known for files in folders.values() for known in files.values()):
        if not isinstance(known, dict) or [*map(type, map(known.get, ("bytes", "crc32c")))] != [int, int]:
            raise FormatError(
                f"{dataset.where}: the manifest's {CARRIED!r} has {known!r}, which must be an object of "
                "bytes and crc32c. Pack the set again."
            )
    return [
        Carried(
            folder,
            {name: functools.partial(read, f"{folder}/{name}", known) for name, known in files.items()},
        )
        for folder, files in folders.items()
    ]


class Rows:
    """What is packed. It pickles, so that any process, on any machine, can read any of the rows.

    Rows whose sizes are known before they are read (:meth:`listed`) are cut into shards by a plan, which
    several processes and hosts can share. Others are cut by one process, while it packs them.
    """

    schema: Schema
    root: bytes  # the folder that relative paths start from; in a store, its URL
    files: Files | None = None  # where the rows' files are; None: on this machine
    unit = "sample"  # of a row in messages
    process_bytes = 512 << 20  # packed in about the time that a process takes to start and import
    notes: tuple[str, ...] = ()  # what became of a source's columns, in words
    containers: tuple[Path, ...] = ()  # files of this machine with rows that have no files of their own
    walks = True  # whether they are what a folder holds, so that the output must lie outside it
    lists_paths = True  # whether listed rows' files are paths; else words that tell those of containers
    carried: Carried | None = None  # a folder that goes into the set as it is

    def __len__(self) -> int:
        """Return how many rows there are; TypeError: unknown."""
        raise NotImplementedError

    def listed(self, notes: Notes) -> Iterator[Row] | None:
        """Yield the rows in their order, without reading them; None: that is impossible.

        Args:
            notes: receives what is met besides.

        Raises:
            PackError: the source is damaged.
        """
        return None

    def batches(
        self, start: int, stop: int | None, options: PackOptions, listing: Listing | None
    ) -> Iterator[Batch]:
        """Yield the rows from position ``start`` to before ``stop`` (None: all) as bytes.

        Args:
            start: the first position.
            stop: one past the last.
            options: say how pictures are stored.
            listing: what :meth:`listed` gave, on this machine's disk; None: it is not known.
        """
        raise NotImplementedError

    def identity(self, options: PackOptions, totals: Totals | None) -> dict[str, Any] | None:
        """Return what tells these rows from others, as entries of the manifest's options; None: nothing,
        they come once.

        Args:
            options: those of the pack.
            totals: those of :meth:`listed`; None: it was not walked.
        """
        raise NotImplementedError

    def announced(self) -> list[str]:
        """Return what is said before the rows are packed."""
        return []

    def lost(self, skipped: Sequence[str]) -> list[str]:
        """Return what users must know of a pack that left some rows out, by their names."""
        return []

    def show(self, options: PackOptions) -> Rows:
        """Return the rows with their pictures shown as the options say, before any are read.

        Raises:
            PackError: that cannot be.
        """
        self.schema = shown_schema(self.schema, options.exif, options.alpha)
        return self

    def at(self, root: bytes) -> Rows:
        """Return the same rows with their files below another root: those of a store are fetched there."""
        return self
