"""``fastload index``: our index over files that others wrote (Arrow, tars and others), in place."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import FastloadError, FormatError, PackError
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
from fastload.packing.foreign_fields import ForeignFields
from fastload.packing.foreign_files import find_shards, format_of_file
from fastload.packing.foreign_records import LabelTable, bad_records, described, kept, key_of
from fastload.packing.lock import folder_lock
from fastload.packing.names import ESCAPED, encode_key
from fastload.packing.output import OutputFolder
from fastload.packing.part import ShardPart
from fastload.packing.plan import WORK_NAME
from fastload.packing.publish import make_manifest, publish_index, write_skipped
from fastload.packing.summary import Summary
from fastload.sample.fields import Label
from fastload.sample.kind_words import kind_of
from fastload.shard.dataset import PackedFiles
from fastload.shard.fields import entries_of, fields_digest
from fastload.shard.formats import INDEXED, Foreign, Kinds, readable_of
from fastload.shard.manifest import Manifest, Shard, names_fit

if TYPE_CHECKING:
    from fastload.packing.foreign_table import ForeignTable

__all__ = ["IndexOptions", "index_entries", "index_files"]

_TABLES = ("arrow", "parquet")


@dataclass(frozen=True)
class IndexOptions:
    """Options of :func:`index_files`; the command line has the same names.

    Args:
        column: the column or HDF5 dataset of the images; None: found by type and name.
        labels: a CSV or JSONL file of key and label, for files without labels.
        fields: (name, kind) of what else files have, as ("seg.png", "mask"); "none" leaves it out.
        on_error: "raise" stops at records that are not images, "skip" leaves them out and lists them.
        restart: replace another index that is there.
        entries: pixels between the JPEGs' entry points, 0: one for each row of MCUs, None: make none.
    """

    column: str | None = None
    labels: Path | None = None
    fields: tuple[tuple[str, str], ...] = ()
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
        raise PackError(f"nothing to index in {', '.join(map(str, paths))}.")
    formats = sorted({format_of_file(path) for path in shards})
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
    kinds = _kinds(format_name, options.fields)
    identity = index_identity(shards, options.column, options.labels, options.fields)
    manifest = earlier_index(folder, identity, options.restart)
    if manifest is None:
        work = folder / WORK_NAME
        work.mkdir()
        try:
            manifest = _Indexer(format_name, shards, work, options, kinds).run(folder, identity)
        except BaseException:
            OutputFolder(folder).discard()
            raise
        remove(work)
    if options.entries is not None:
        ensure_entries(folder, options.entries, None, observer, made)
    return manifest


def _kinds(format_name: str, fields: Sequence[tuple[str, str]]) -> Kinds:
    """What users said about fields.

    Raises:
        PackError: no legal kinds, or a format whose files have no fields here.
    """
    if fields and not INDEXED[format_name][1]:
        able = ", ".join(name for name, (_, has_fields) in INDEXED.items() if has_fields)
        raise PackError(
            f"--field is for {able}; of {format_name} files a picture and a label are indexed. "
            "'fastload pack' takes all fields."
        )
    if format_name in _TABLES:  # whose columns are told as pack's are
        return {}
    try:
        return {name: None if words.strip() == "none" else kind_of(words) for name, words in fields}
    except (ValueError, TypeError) as error:
        raise PackError(f"--field: {error}") from None


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


class _Indexer:
    """Indexes the files one after another; what is known of each goes to a part file."""

    def __init__(
        self, format_name: str, shards: list[Path], work: Path, options: IndexOptions, kinds: Kinds
    ) -> None:
        self._format_name, self._format = format_name, readable_of(format_name)
        self._shards, self._work, self._options, self._kinds = shards, work, options, kinds
        self._table = LabelTable(options.labels) if options.labels else None
        self._classes: tuple[str, ...] | None = self._table.classes if self._table else None
        self._labelled = self._table is not None
        self._hashes = array("q")
        self._failures: list[tuple[str, str]] = []
        self._left_out: list[tuple[str, str, str]] = []  # of records that stay: key, annotation, reason
        self._columns: ForeignTable | None = None
        if format_name in _TABLES:
            from fastload.packing.foreign_table import foreign_table  # and with it pyarrow

            self._columns = foreign_table(format_name, shards, dict(options.fields), options.column)
        self._fields = ForeignFields(self._part_path, kinds, loose=format_name == "tar")

    def run(self, output: Path, options: dict[str, Any]) -> Manifest:
        for number, path in enumerate(self._shards):
            self._index(number, path)
        named = len(np.unique(np.frombuffer(self._hashes, np.int64))) == len(self._hashes)
        classes = self._classes or ()
        schema = self._fields.schema(Label(classes) if self._labelled else None)
        fields = entries_of(schema, self._fields.write(output, schema)) if schema is not None else []
        wrong = names_fit(classes, [str(path) for path in self._shards], fields)
        if wrong:
            raise PackError(wrong)
        summary = Summary()
        keys = _Keys(self, named)
        index = publish_index(output, self._records(summary), keys, fields_digest(fields))
        write_skipped(output, self._failures, self._left_out)
        entries = [
            Shard(str(self._data_file(path)), *self._counts(number))
            for number, path in enumerate(self._shards)
        ]
        skipped, left_out = len(self._failures), len(self._left_out)
        manifest = make_manifest(
            self._format_name, summary, classes, entries, index, options, skipped, tuple(fields), left_out
        )
        manifest.write(output)
        return manifest

    def part(self, number: int) -> ShardPart:
        """What was found in one file."""
        return ShardPart.read(self._part_path(number))

    def keys(self, named: bool) -> Iterator[list[bytes]]:
        """The keys of each file: its own names where all are different, else the file's name before them, or
        before the position."""
        for number, path in enumerate(self._shards):
            keys, stem = self.part(number).keys, os.fsencode(path.stem)
            if named:
                yield keys
            elif self._format_name == "tar":
                yield [encode_key(stem + b"/" + key)[0] for key in keys]
            else:
                yield [b"%s/%08d" % (stem, i) for i in range(len(keys))]

    def _part_path(self, number: int) -> Path:
        return self._work / f"{number}.part"

    def _index(self, number: int, path: Path) -> None:
        foreign = self._format.read_foreign(path, self._options.column, self._kinds)
        if self._columns is not None:
            foreign = self._columns.completed(path, foreign, self._options.column, self._format)
        file = self._data_file(path)
        entries, failures = described(file, foreign)
        own = self._own_keys(path, foreign)
        keys = [key.decode() for key, _ in own]
        less = [(i, which, why) for i, found in foreign.lessened.items() for which, why in found]
        if self._options.on_error == "raise":
            for i, which, why in less:
                failures.setdefault(i, f"{which}: {why}")
        failed = [(path.name, i, reason) for i, reason in sorted(failures.items())]
        if failed and self._options.on_error == "raise":
            raise PackError(bad_records(failed, keys))
        self._failures += [(f"{name}: {keys[i]}", reason) for name, i, reason in failed]
        self._failures += [(f"{path.name}: {name}", reason) for name, reason in foreign.left_out]
        self._left_out += [(f"{path.name}: {keys[i]}", which, why) for i, which, why in less]
        entries["label"] = self._labels(path, foreign, keys)
        entries["flags"][[escaped for _, escaped in own]] |= ESCAPED
        good = entries["length"] > 0
        names = [key for (key, _), whole in zip(own, good.tolist(), strict=True) if whole]
        self._hashes.extend(hash(name) for name in names)
        self._labelled |= foreign.labels is not None
        self._fields.add(path, foreign, len(names))
        further = tuple(kept(values.chunk, good) for values in foreign.fields.values())
        part = ShardPart(entries[good], names, [], file.stat().st_size, further=further)
        part.write(self._part_path(number))

    def _own_keys(self, path: Path, foreign: Foreign) -> list[tuple[bytes, bool]]:
        if foreign.keys is not None:
            return [key_of(key) for key in foreign.keys]
        return [key_of(f"{path.stem}/{i:08d}") for i in range(len(foreign.located.offsets))]

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
