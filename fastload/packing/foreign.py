"""``fastload index``: our index over files that others wrote (Arrow, tars and others), in place."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import FastloadError, FormatError, PackError
from fastload.packing.earlier_index import earlier_index, index_identity
from fastload.packing.entries import (
    Maker,
    build_entries,
    ensure_entries,
    remove_entries,
    write_entries,
)
from fastload.packing.files import make_folder, remove
from fastload.packing.foreign_fields import ForeignFields, field_of
from fastload.packing.foreign_files import braced, find_shards, format_of_file
from fastload.packing.foreign_job import TABLE, IndexJob, IndexOptions, Source
from fastload.packing.foreign_stored import StoredTar, contents_of, tars_at
from fastload.packing.lock import folder_lock
from fastload.packing.names import encode_key
from fastload.packing.output import OutputFolder
from fastload.packing.packer import fitting_processes
from fastload.packing.part import ShardPart
from fastload.packing.plan import WORK_NAME
from fastload.packing.pool import write_shards
from fastload.packing.progress import Observer, Work, entries_work
from fastload.packing.publish import make_manifest, publish_index, write_skipped
from fastload.packing.summary import Summary
from fastload.remote.location import is_url
from fastload.remote.opening import refuse_options
from fastload.sample.fields import Label, kind_of
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import INDEXED, Kinds
from fastload.shard.manifest import Manifest, Shard, entries_of, fields_digest, names_fit

__all__ = ["IndexOptions", "index_entries", "index_files"]


def index_files(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: IndexOptions | None = None,
    observer: Observer | None = None,
    made: Maker | None = None,
) -> Manifest:
    """Index shards where they lie; ``output`` gets the index and a manifest with their paths or URLs.

    Each tar in a store is fetched once, and again by parts for the entry points. The same files give the same
    bytes, for any ``num_proc``.

    Interrupted at any moment, or stopped by an error, the same call goes on with the files that are missing
    (of tables it begins anew); of an index that is complete it makes the entry points that are missing, and
    nothing else. ``made``: as in :func:`ensure_entries`.

    Raises:
        FormatError: a file of unknown kind, or records in it that are no plain byte ranges.
        PackError: records that are not images; an ``output`` that is in use, or cannot be written.
    """
    options = options or IndexOptions()
    shards, format_name = _found([str(path) for given in paths for path in braced(given)], options)
    folder = Path(output).absolute()
    try:
        make_folder(folder)
        with folder_lock(folder):
            return _index_into(folder, format_name, shards, options, observer, made)
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot index into {folder}: {error}.") from error


def _found(paths: list[str], options: IndexOptions) -> tuple[Sequence[Source], str]:
    """The files that paths or URLs stand for, and their format."""
    stored = [path for path in paths if is_url(path)]
    if stored:
        if len(stored) < len(paths):
            raise PackError(
                f"files of a store and of this machine cannot share an index. Found: {stored[0]}."
            )
        return tars_at(stored, options.storage_options), "tar"
    refuse_options(", ".join(paths), options.storage_options)
    shards = [found for path in paths for found in find_shards(Path(path))]
    formats = sorted({format_of_file(path) for path in shards})
    if not shards:
        raise PackError(f"nothing to index in {', '.join(paths)}.")
    if len(formats) > 1:
        raise PackError(f"files of different formats cannot share an index: {', '.join(formats)}.")
    return shards, formats[0]


def _index_into(
    folder: Path,
    format_name: str,
    shards: Sequence[Source],
    options: IndexOptions,
    observer: Observer | None,
    made: Maker | None,
) -> Manifest:
    kinds = _kinds(format_name, options.fields)
    stored = contents_of([shard for shard in shards if isinstance(shard, StoredTar)])
    contents = stored if isinstance(shards[0], StoredTar) else ""
    identity = index_identity(shards, options.column, options.labels, options.fields, contents)
    manifest = earlier_index(folder, identity, options.on_error, options.restart)
    if manifest is None:
        job = IndexJob(format_name, shards, folder / WORK_NAME, options, kinds)
        try:
            _index_missing(job, folder, observer or Observer())
            manifest = _Indexer(job).run(folder, identity)
        except BaseException:
            job.tidy()  # terminated processes have not
            if not any(job.work.glob("*.part")):
                OutputFolder(folder).discard()
            raise
        remove(job.work)
    if options.entries is not None:
        ensure_entries(folder, options.entries, None, observer, made, options.storage_options)
    return manifest


def _index_missing(job: IndexJob, folder: Path, observer: Observer) -> None:
    """Make the parts that an earlier call has not left."""
    job.tidy()
    sizes = [path.size if isinstance(path, StoredTar) else _bytes_of(job, path) for path in job.shards]
    missing = [number for number in range(len(sizes)) if not job.is_finished(number)]
    left = sum(sizes[number] for number in missing)
    done = len(sizes) - len(missing), sum(sizes) - left
    observer.started(Work("indexing", folder, "file", len(sizes), sum(sizes), *done, "into"))
    processes = 1
    if job.format_name != TABLE:
        processes = job.options.num_proc or fitting_processes(left)
    write_shards(job, missing, processes, observer.advanced)


def _bytes_of(job: IndexJob, path: Path) -> int:
    return os.stat(job.data_file(path)).st_size


def _kinds(format_name: str, fields: Sequence[tuple[str, str]]) -> Kinds:
    """What users said about fields.

    Raises:
        PackError: no legal kinds, or a format whose files have no fields here.
    """
    if fields and not INDEXED[format_name]:
        able = ", ".join(name for name, has_fields in INDEXED.items() if has_fields)
        raise PackError(
            f"--field is for {able}; of {format_name} files a picture and a label are indexed. "
            "'fastload pack' takes all fields."
        )
    if format_name == TABLE:  # whose columns are told as pack's are
        return {}
    try:
        return {name: None if words.strip() == "none" else kind_of(words) for name, words in fields}
    except (ValueError, TypeError) as error:
        raise PackError(f"--field: {error}") from None


def index_entries(
    folder: str | os.PathLike[str],
    spacing: int | None,
    observer: Observer | None = None,
    made: Maker | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Make the entry points of a packed or indexed dataset anew, or remove them (``spacing`` None).

    ``made``, ``storage_options``: as in :func:`ensure_entries`.

    Raises:
        FormatError: not a dataset.
        PackError: another process is packing it, or the disk is full.
        ChecksumError: a damaged record.
    """
    place = Path(folder).absolute()
    dataset = PackedFiles(place, entries=False, storage_options=storage_options)
    with folder_lock(place):
        if spacing is None:
            remove_entries(place)
            return
        observer = observer or Observer()
        observer.started(entries_work(place, len(dataset)))
        if made is not None:
            write_entries(place, dataset.manifest, dataset.index.digest, spacing, made(dataset, spacing))
            return
        build_entries(dataset, spacing, len(os.sched_getaffinity(0)), observer.advanced)


class _Indexer:
    """Joins what is known of the files, in their order."""

    def __init__(self, job: IndexJob) -> None:
        self._job = job
        self._classes: tuple[str, ...] | None = job.table.classes if job.table else None
        self._labelled = job.table is not None
        self._hashes = array("q")
        self._failures: list[tuple[str, str]] = []
        self._left_out: list[tuple[str, str, str]] = []  # of records that stay: key, annotation, reason
        self._counts: list[tuple[int, int]] = []  # bytes and records of each file
        self._fields = ForeignFields(job.part_path, job.kinds, loose=job.format_name == "tar")

    def run(self, output: Path, options: dict[str, Any]) -> Manifest:
        shards = self._job.shards
        for number, path in enumerate(shards):
            self._add(path, self.part(number))
        named = len(np.unique(np.frombuffer(self._hashes, np.int64))) == len(self._hashes)
        classes = self._classes or ()
        schema = self._fields.schema(Label(classes) if self._labelled else None)
        fields = entries_of(schema, self._fields.write(output, schema)) if schema is not None else []
        wrong = names_fit(classes, [str(path) for path in shards], fields)
        if wrong:
            raise PackError(wrong)
        summary = Summary()
        keys = _Keys(self, named)
        index = publish_index(output, self._records(summary), keys, fields_digest(fields))
        write_skipped(output, self._failures, self._left_out)
        entries = [
            Shard(self._job.data_file(path), *counts)
            for path, counts in zip(shards, self._counts, strict=True)
        ]
        skipped, left_out = len(self._failures), len(self._left_out)
        manifest = make_manifest(
            self._job.format_name, summary, classes, entries, index, options, skipped, tuple(fields), left_out
        )
        manifest.write(output)
        return manifest

    def part(self, number: int) -> ShardPart:
        """What was found in one file."""
        return ShardPart.read(self._job.part_path(number))

    def keys(self, named: bool) -> Iterator[list[bytes]]:
        """The keys of each file: its own names where all are different, else the file's name before them, or
        before the position."""
        for number, path in enumerate(self._job.shards):
            keys, stem = self.part(number).keys, os.fsencode(path.stem)
            if named:
                yield keys
            elif self._job.format_name == "tar":
                yield [encode_key(stem + b"/" + key)[0] for key in keys]
            else:
                yield [b"%s/%08d" % (stem, i) for i in range(len(keys))]

    def _add(self, path: Source, part: ShardPart) -> None:
        facts = part.facts
        classes = tuple(facts["classes"])
        if self._job.table is None:
            if self._classes not in (None, classes):
                raise FormatError(f"{path} has other class names than the files before it; index them apart.")
            self._classes = classes
        self._labelled |= facts["labelled"]
        self._failures += part.skipped
        self._left_out += part.left_out
        self._counts.append((part.shard_bytes, len(part.records)))
        self._hashes.extend(map(hash, part.keys))
        fields = [field_of(entry) for entry in facts["fields"]]
        self._fields.add(path, field_of(facts["picture"]), fields, len(part.records))

    def _records(self, summary: Summary) -> Iterator[npt.NDArray[np.void]]:
        for number in range(len(self._job.shards)):
            entries = self.part(number).records.copy()
            entries["shard"] = number
            summary.add(entries)
            yield entries


class _Keys:
    """Re-iterable keys for ``write_index``."""

    def __init__(self, indexer: _Indexer, named: bool) -> None:
        self._indexer, self._named = indexer, named

    def __iter__(self) -> Iterator[list[bytes]]:
        return self._indexer.keys(self._named)
