"""``fastload index``: our index over Arrow (HF datasets), LMDB and HDF5 files that others wrote, in place."""

from __future__ import annotations

import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FastloadError, FormatError, PackError
from fastload.machine.sizes import counted
from fastload.packing.earlier_index import earlier_index, index_identity
from fastload.packing.entries import (
    DEFAULT_SPACING,
    EntriesObserver,
    Maker,
    build_entries,
    ensure_entries,
    remove_entries,
    write_entries,
)
from fastload.packing.files import remove
from fastload.packing.ingest import as_rows
from fastload.packing.lock import folder_lock
from fastload.packing.part import ShardPart
from fastload.packing.plan import MAX_LISTED, WORK_NAME
from fastload.packing.publish import make_manifest, publish_index, write_skipped
from fastload.packing.summary import Summary
from fastload.packing.tables import Labels, read_table
from fastload.shard.codecs import RAW
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import Foreign, format_of
from fastload.shard.index import RECORD
from fastload.shard.manifest import Manifest, Shard, names_fit

__all__ = ["IndexOptions", "find_shards", "index_entries", "index_files"]

_SUFFIXES = (".arrow", ".lmdb", ".mdb", ".h5", ".hdf5")
_CHUNK = 512  # records described in one call
_LMDB_MAGIC = b"\xde\xc0\xef\xbe"


@dataclass(frozen=True)
class IndexOptions:
    """Options of :func:`index_files`; the command line has the same names.

    Args:
        column: the Arrow column or HDF5 dataset of the images; None: found by type and name.
        labels: a CSV or JSONL file of key and label, for files without labels.
        on_error: "raise" stops at records that are not images, "skip" leaves them out and lists them.
        restart: replace another index that is there.
        entries: pixels between the JPEGs' entry points, 0: one for each row of MCUs, None: make none.
    """

    column: str | None = None
    labels: Path | None = None
    on_error: str = "raise"
    restart: bool = False
    entries: int | None = DEFAULT_SPACING


def index_files(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: IndexOptions | None = None,
    observer: EntriesObserver | None = None,
    made: Maker | None = None,
) -> Manifest:
    """Index shards where they lie; ``output`` gets the index and a manifest with their absolute paths.

    Interrupted at any moment, the same call begins anew; of an index that is complete it makes the entry
    points that are missing, and nothing else. ``made``: as in :func:`ensure_entries`.

    Raises:
        FormatError: a file of unknown kind, or records in it that are no plain byte ranges.
        PackError: records that are not images; an ``output`` that is in use, or cannot be written.
    """
    options = options or IndexOptions()
    shards = [found for path in paths for found in find_shards(Path(path))]
    if not shards:
        raise PackError(f"no Arrow, LMDB or HDF5 files in {', '.join(map(str, paths))}.")
    formats = sorted({kind_of(path) for path in shards})
    if len(formats) > 1:
        raise PackError(f"files of different formats cannot share an index: {', '.join(formats)}.")
    folder = Path(output).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder):
            return _index_into(folder, formats[0], shards, options, observer, made)
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot index into {folder}: {error}.") from error


def _index_into(
    folder: Path,
    format_name: str,
    shards: list[Path],
    options: IndexOptions,
    observer: EntriesObserver | None,
    made: Maker | None,
) -> Manifest:
    identity = index_identity(shards, options.column, options.labels)
    manifest = earlier_index(folder, identity, options.restart)
    if manifest is None:
        work = folder / WORK_NAME
        work.mkdir()
        try:
            manifest = _Indexer(format_name, shards, work, options).run(folder, identity)
        finally:
            remove(work)
    if options.entries is not None:
        ensure_entries(folder, options.entries, None, observer, made)
    return manifest


def index_entries(
    folder: str | os.PathLike[str],
    spacing: int | None,
    observer: EntriesObserver | None = None,
    made: Maker | None = None,
) -> None:
    """Make the entry points of a packed or indexed dataset anew, or remove them (``spacing`` None).

    ``made``: as in :func:`ensure_entries`.

    Raises:
        FormatError: not a dataset.
        PackError: another process is packing it, or the disk is full.
        ChecksumError: a damaged record.
    """
    place = Path(folder).absolute()
    dataset = PackedFiles(place, entries=False)
    with folder_lock(place):
        if spacing is None:
            remove_entries(place)
            return
        observer = observer or EntriesObserver()
        observer.entries_started(place, len(dataset))
        if made is not None:
            write_entries(place, dataset.manifest, dataset.index.digest, spacing, made(dataset, spacing))
            return
        build_entries(dataset, spacing, len(os.sched_getaffinity(0)), observer.entries_advanced)


def find_shards(path: Path) -> list[Path]:
    """The shard files that ``path`` stands for: itself, or those of an HF dataset or of a folder.

    Raises:
        FormatError: nothing there, or an HF folder that must be opened otherwise.
    """
    if not path.exists():
        raise FormatError(f"{path} does not exist.")
    if path.is_file() or (path / "data.mdb").exists():
        return [path.absolute()]
    if (path / "dataset_dict.json").exists():
        raise FormatError(f"{path} holds several splits; index one of its folders at a time.")
    if (path / "state.json").exists():
        return _hf_shards(path)
    found = sorted(p.absolute() for p in path.iterdir() if p.suffix.lower() in _SUFFIXES and p.name[0] != ".")
    if not found:
        raise FormatError(f"{path} holds no {', '.join(_SUFFIXES)} files.")
    return found


def _hf_shards(path: Path) -> list[Path]:
    try:
        state = json.loads((path / "state.json").read_bytes())
        names = [str(file["filename"]) for file in state["_data_files"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{path / 'state.json'} is not one of an HF dataset: {error!r}") from None
    if state.get("_indices_data_files"):
        raise FormatError(f"{path} has an indices mapping; call flatten_indices() and save it again.")
    if any(os.path.basename(name) != name for name in names):
        raise FormatError(f"{path / 'state.json'} names files outside its folder.")
    return [(path / name).absolute() for name in names]


def kind_of(path: Path) -> str:
    """The format by the file's first bytes.

    Raises:
        FormatError: none of ours.
    """
    if path.is_dir():
        return "lmdb"
    with open(path, "rb") as file:
        head = file.read(20)
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "hdf5"
    if head[16:20] == _LMDB_MAGIC:
        return "lmdb"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    raise FormatError(f"{path} is not an Arrow IPC, LMDB or HDF5 file by its first bytes.")


class _Indexer:
    """Indexes the files one after another; what is known of each goes to a part file."""

    def __init__(self, format_name: str, shards: list[Path], work: Path, options: IndexOptions) -> None:
        self._format_name, self._format = format_name, format_of(format_name)
        self._shards, self._work, self._options = shards, work, options
        self._table = _LabelTable(options.labels) if options.labels else None
        self._classes: tuple[str, ...] | None = self._table.classes if self._table else None
        self._hashes = array("q")
        self._failures: list[tuple[str, str]] = []

    def run(self, output: Path, options: dict[str, Any]) -> Manifest:
        for number, path in enumerate(self._shards):
            self._index(number, path)
        named = len(np.unique(np.frombuffer(self._hashes, np.int64))) == len(self._hashes)
        wrong = names_fit(self._classes or (), [str(path) for path in self._shards])
        if wrong:
            raise PackError(wrong)
        summary = Summary()
        index = publish_index(output, self._records(summary), _Keys(self, named))
        write_skipped(output, self._failures)
        entries = [
            Shard(str(self._data_file(path)), *self._counts(number))
            for number, path in enumerate(self._shards)
        ]
        manifest = make_manifest(
            self._format_name, summary, self._classes or (), entries, index, options, len(self._failures)
        )
        manifest.write(output)
        return manifest

    def part(self, number: int) -> ShardPart:
        """What was found in one file."""
        return ShardPart.read(self._work / f"{number}.part")

    def keys(self, named: bool) -> Iterator[list[bytes]]:
        """The keys of each file: its own names where all are different, else file name and position."""
        for number, path in enumerate(self._shards):
            keys = self.part(number).keys
            yield keys if named else [b"%s/%08d" % (os.fsencode(path.stem), i) for i in range(len(keys))]

    def _index(self, number: int, path: Path) -> None:
        foreign = self._format.read_foreign(path, self._options.column)
        file = self._data_file(path)
        records = _described(file, foreign)
        keys = self._own_keys(path, foreign)
        failed = [(path.name, i, reason) for i, reason in records[1]]
        if failed and self._options.on_error == "raise":
            raise PackError(_bad_records(failed, keys))
        self._failures += [(f"{name}: {keys[i]}", reason) for name, i, reason in failed]
        entries = records[0]
        entries["label"] = self._labels(path, foreign, keys)
        good = entries["length"] > 0
        names = [key.encode() for key, whole in zip(keys, good.tolist(), strict=True) if whole]
        self._hashes.extend(hash(name) for name in names)
        ShardPart(entries[good], names, [], file.stat().st_size).write(self._work / f"{number}.part")

    def _own_keys(self, path: Path, foreign: Foreign) -> list[str]:
        if foreign.keys is not None:
            return [key.encode("utf-8", "backslashreplace").decode() for key in foreign.keys]
        return [f"{path.stem}/{i:08d}" for i in range(len(foreign.located.offsets))]

    def _labels(self, path: Path, foreign: Foreign, keys: list[str]) -> npt.NDArray[np.int64]:
        if self._table is not None:
            return np.array([self._table.label(key, path) for key in keys], np.int64)
        labels = foreign.labels if foreign.labels is not None else np.full(len(keys), -1, np.int64)
        classes = foreign.classes
        if self._classes is not None and classes != self._classes:
            raise FormatError(f"{path} has other class names than the files before it; index them apart.")
        self._classes = classes
        limit = len(classes) or np.iinfo(np.int32).max
        if len(labels) != len(keys) or (len(labels) and not -1 <= labels.min() <= labels.max() < limit):
            raise FormatError(f"{path}: there are labels outside [-1, {limit}), or not one a record.")
        return labels

    def _records(self, summary: Summary) -> Iterator[npt.NDArray[np.void]]:
        for number in range(len(self._shards)):
            entries = self.part(number).records.copy()
            entries["shard"] = number
            summary.add(entries)
            yield entries

    def _counts(self, number: int) -> tuple[int, int]:
        part = self.part(number)
        return part.shard_bytes, len(part.records)

    def _data_file(self, path: Path) -> Path:
        return (self._format.data_file(path) if path.is_dir() else path).resolve()


class _Keys:
    """Re-iterable keys for ``write_index``."""

    def __init__(self, indexer: _Indexer, named: bool) -> None:
        self._indexer, self._named = indexer, named

    def __iter__(self) -> Iterator[list[bytes]]:
        return self._indexer.keys(self._named)


class _LabelTable:
    """Labels by key, from a CSV or JSONL file."""

    def __init__(self, path: Path) -> None:
        labels = Labels(label for _, label in read_table(path))
        self.path, self.classes = path, labels.classes
        self._numbers = {key: labels.number(label) for key, label in read_table(path)}

    def label(self, key: str, file: Path) -> int:
        """The label of one key.

        Raises:
            PackError: the table does not have it.
        """
        try:
            return self._numbers[key]
        except KeyError:
            raise PackError(f"{self.path} has no label for the record {key!r} of {file}.") from None


def _described(file: Path, foreign: Foreign) -> tuple[npt.NDArray[np.void], list[tuple[int, str]]]:
    """Index entries of all records, and the positions and reasons of those that are no images (length 0)."""
    located = foreign.located
    records = np.zeros(len(located.offsets), RECORD)
    records["offset"] = located.offsets
    too_long = located.lengths > np.uint64(np.iinfo(np.uint32).max)
    records["length"] = np.where(too_long, np.uint64(np.iinfo(np.uint32).max), located.lengths)
    if foreign.picture is not None:
        records["width"], records["height"] = foreign.picture
        records["codec"], records["channels"] = RAW, 3
    failures = []
    for start in range(0, len(records), _CHUNK):
        found = _C.describe_file(os.fsencode(file), as_rows(records[start : start + _CHUNK]))
        failures += [(start + i, reason.decode("utf-8", "backslashreplace")) for i, reason in found]
    return records, failures


def _bad_records(failed: list[tuple[str, int, str]], keys: list[str]) -> str:
    lines = [f"  {name}, record {i} ({keys[i]}): {reason}" for name, i, reason in failed[:MAX_LISTED]]
    reasons = Counter(reason for _, _, reason in failed)
    more = f"\n  ... {len(failed)} in all" if len(failed) > MAX_LISTED else ""
    return (
        f"not usable as images: {counted(len(failed), 'record')} ({counted(len(reasons), 'reason')}):\n"
        + "\n".join(lines)
        + f"{more}\nLeave them out with --on-error skip."
    )
