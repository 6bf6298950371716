"""Files of other programs, indexed in place: read by several processes, resumed after a stop."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FastloadError, FormatError, PackError, ShardTruncated
from fastload.machine.paths import exists, is_dir
from fastload.machine.temporary import TemporaryFolder
from fastload.packing.cut import WORK_NAME
from fastload.packing.entries import (
    DEFAULT_SPACING,
    Maker,
    build_entries,
    ensure_entries,
    remove_entries,
    write_entries,
)
from fastload.packing.facts import Summary
from fastload.packing.files import (
    ESCAPED,
    encode_key,
    folder_lock,
    make_folder,
    publishing,
    remove,
)
from fastload.packing.foreign_fields import (
    ForeignFields,
    LabelTable,
    bad_records,
    described,
    field_of,
    kept,
    key_of,
    refuse_unfit,
)
from fastload.packing.foreign_files import (
    StoredTar,
    braced,
    contents_of,
    find_shards,
    format_of_file,
    tars_at,
)
from fastload.packing.options import parse_runs
from fastload.packing.pictures import AS_STORED
from fastload.packing.progress import Observer, Work, entries_work
from fastload.packing.publish import make_manifest, publish_index, runs_in, with_runs, write_skipped
from fastload.packing.shard_writer import ShardPart
from fastload.packing.spread import Advance, Claim, NoClaim, fitting_processes, write_shards
from fastload.packing.target import OutputFolder
from fastload.remote.location import is_url
from fastload.remote.opening import refuse_options
from fastload.sample.fields import Image, Label, kind_of
from fastload.sample.schema import Field
from fastload.shard.contents import with_content
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import INDEXED, Foreign, Kinds, Readable, readable_of
from fastload.shard.index import as_rows
from fastload.shard.manifest import MANIFEST_NAME, Manifest, Shard, entries_of, fields_digest, names_fit

if TYPE_CHECKING:
    from fastload.packing.foreign_table import ForeignTable


# ---- Indexing one file of another program -----------------------------------------------------------

#: The format whose files are together one table, read in order.
TABLE = "arrow"
FileOrTar = Path | StoredTar

#: Calls a function with its first argument and each of the items, in other processes, and yields items and
#: results as they finish.
AsFinished = Callable[[Callable[[Any, Any], Any], Any, Iterable[Any]], Iterator[tuple[Any, Any]]]


@dataclass(frozen=True)
class IndexOptions:
    """Options of :func:`fastload.packing.foreign.index_files`; the command line has the same names.

    Args:
        column: the column or HDF5 dataset of the images; None: found by type and name.
        labels: a CSV or JSONL file of key and label, for files without labels.
        fields: (name, kind) of the files' other fields, as ("seg.png", "mask"); "none" leaves one out.
        on_error: "raise" stops at records that are not images, "skip" leaves them out and lists them.
        restart: replace another existing index.
        entries: pixels between the JPEGs' entry points; 0: one per row of MCUs; None: make none.
        storage_options: options of URLs' stores, such as credentials and endpoint.
        num_proc: processes that read files; None: one per CPU, fewer for small files, one for tables.
        exif, alpha, runs: as ``PackOptions``', but EXIF is never a reason to refuse.
    """

    column: str | None = None
    labels: Path | None = None
    fields: tuple[tuple[str, str], ...] = ()
    on_error: str = "raise"
    restart: bool = False
    entries: int | None = DEFAULT_SPACING
    storage_options: Mapping[str, Any] | None = None
    num_proc: int | None = None
    exif: str = "ignore"
    alpha: str = "drop"
    runs: str | None = None

    @property
    def shown(self) -> tuple[str, str]:
        """``exif`` and ``alpha``."""
        return self.exif, self.alpha


@dataclass(frozen=True)
class IndexJob:
    """All that a process needs to index any of the files.

    A part file has what is known of each; its ``facts`` say what must be the same in all.
    """

    format_name: str
    shards: Sequence[FileOrTar]
    work: Path
    options: IndexOptions
    kinds: Kinds

    def part_path(self, number: int) -> Path:
        """Return where the part of a file is."""
        return self.work / f"{number}.part"

    def is_finished(self, number: int) -> bool:
        """Whether the part of a file exists, and the file is unchanged since."""
        path, shard = self.part_path(number), self.shards[number]
        if self.format_name == TABLE or not exists(path):
            return False
        try:
            part = ShardPart.read(path)
            return isinstance(shard, StoredTar) or [part.shard_bytes, part.facts["ns"]] == self._state(shard)
        except PackError:
            return False

    def claim(self, number: int) -> Claim | None:
        """Claim the right to index a file, which the holder of the folder has."""
        return NoClaim()

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Index a file.

        Raises:
            FormatError: it is of another kind, or its records are no plain byte ranges.
            PackError: records are not images, or the file was changed meanwhile.
        """
        path = self.shards[number]
        state = [path.size, 0] if isinstance(path, StoredTar) else self._state(path)
        with self._here(number) as file:
            foreign = self._format.read_foreign(file, self.options.column, self.kinds)
            if self._columns is not None:
                foreign = self._columns.completed(file, foreign, self.options.column, self._format)
            data = file if isinstance(path, StoredTar) else Path(self.data_file(path))
            part = self._part(path, data, foreign, state)
        if not isinstance(path, StoredTar) and self._state(path) != state:
            raise PackError(f"{path} was changed while it was indexed. Index it again when it is finished.")
        advance(1, part.shard_bytes)
        return part

    def publish(self, number: int, part: ShardPart) -> None:
        """Write the part: now the file counts as done."""
        part.write(self.part_path(number))

    def discard(self, number: int) -> None:
        """Do nothing, as a file leaves nothing before its part is written."""

    def data_file(self, path: FileOrTar) -> str:
        """Return where the records of a file are, as the manifest says it."""
        if isinstance(path, StoredTar):
            return str(path)
        return str((self._format.data_file(path) if is_dir(path) else path).resolve())

    @cached_property
    def _format(self) -> Readable:
        return readable_of(self.format_name)

    @cached_property
    def table(self) -> LabelTable | None:
        """The labels that users gave."""
        return LabelTable(self.options.labels) if self.options.labels else None

    @cached_property
    def _columns(self) -> ForeignTable | None:
        if self.format_name != TABLE:
            return None
        from fastload.packing.foreign_table import foreign_table  # imports pyarrow

        tables = [shard for shard in self.shards if isinstance(shard, Path)]
        return foreign_table(tables, dict(self.options.fields), self.options.column)

    @contextmanager
    def _here(self, number: int) -> Iterator[Path]:
        path = self.shards[number]
        if not isinstance(path, StoredTar):
            yield path
            return
        with path.here(self.work / f"{number}.tar") as copy:
            if format_of_file(copy) != self.format_name:
                raise FormatError(f"{path} is not a tar; only tars can be indexed by URL.")
            yield copy

    def _part(self, path: FileOrTar, file: Path, foreign: Foreign, state: list[int]) -> ShardPart:
        """Return the part of a file in that state whose records are in ``file``."""
        size, ns = state
        entries, failures = described(file, foreign, self.kinds, self.options.shown)
        refuse_unfit(file, foreign, entries, failures, self.kinds)
        own = _own_keys(path, foreign)
        keys = [key.decode() for key, _ in own]
        less = [(i, which, why) for i, found in foreign.lessened.items() for which, why in found]
        if self.options.on_error == "raise":
            for i, which, why in less:
                failures.setdefault(i, f"{which}: {why}")
        failed = [(path.name, i, reason) for i, reason in sorted(failures.items())]
        if failed and self.options.on_error == "raise":
            raise PackError(bad_records(failed, keys))
        skipped = [(f"{name}: {keys[i]}", reason) for name, i, reason in failed]
        skipped += [(f"{path.name}: {name}", reason) for name, reason in foreign.left_out]
        entries["label"] = self._labels(path, foreign, keys)
        entries["flags"][[escaped for _, escaped in own]] |= ESCAPED
        good = np.array([number not in failures for number in range(len(entries))], np.bool_)
        names = [key for (key, _), is_good in zip(own, good.tolist(), strict=True) if is_good]
        picture = None if foreign.in_lists else Field(foreign.name, foreign.kind or Image()).to_json()
        facts = {
            "ns": ns,
            "classes": list(foreign.classes),
            "labelled": foreign.labels is not None,
            "picture": picture,
            "fields": [values.field.to_json() for values in foreign.fields.values()],
        }
        return ShardPart(
            entries[good], names, skipped, size, facts=facts,
            further=tuple(kept(values.chunk, good) for values in foreign.fields.values()),
            left_out=[(f"{path.name}: {keys[i]}", which, why) for i, which, why in less],
        )  # fmt: skip

    def _labels(self, path: FileOrTar, foreign: Foreign, keys: list[str]) -> npt.NDArray[np.int64]:
        if self.table is not None:
            return np.array([self.table.label(key, path) for key in keys], np.int64)
        labels = foreign.labels if foreign.labels is not None else np.full(len(keys), -1, np.int64)
        limit = len(foreign.classes) or np.iinfo(np.int32).max
        if len(labels) != len(keys) or (len(labels) and not -1 <= labels.min() <= labels.max() < limit):
            raise FormatError(f"{path}: there are labels outside [-1, {limit}), or not one per record.")
        return labels

    def _state(self, path: Path) -> list[int]:
        """Return the bytes of a file of this machine, and its modification time."""
        status = os.stat(self.data_file(path))
        return [status.st_size, status.st_mtime_ns]

    def tidy(self) -> None:
        """Remove copies of files that a killed process has left."""
        for path in self.work.glob("*.tar"):
            remove(path)


def _own_keys(path: FileOrTar, foreign: Foreign) -> list[tuple[bytes, bool]]:
    if foreign.keys is not None:
        return [key_of(key) for key in foreign.keys]
    return [key_of(f"{path.stem}/{i:08d}") for i in range(len(foreign.located.offsets))]


# ---- The remains of an earlier ``fastload index`` in its folder -------------------------------------

_BEGUN = "index.json"  # in the work folder: what an index was asked to do
_CHUNK = 1 << 12  # records checked per call


def index_identity(
    paths: Sequence[object],
    column: str | None,
    labels: Path | None,
    fields: Sequence[tuple[str, str]] = (),
    contents: str = "",
    shown: tuple[str, str] = AS_STORED,
    runs: str | None = None,
) -> dict[str, Any]:
    """Return what decides an index besides the files' bytes, as JSON values.

    Args:
        paths: the files' paths. column, labels, fields, shown, runs: see ``IndexOptions``.
        contents: for files in a store, a text that changes when their bytes do.

    Raises:
        OSError: the file of labels cannot be read.
    """
    facts: dict[str, Any] = {"indexed": [str(path) for path in paths], "column": column}
    if labels is not None:
        facts["labels"] = hashlib.blake2b(labels.read_bytes(), digest_size=16).hexdigest()
    if fields:
        facts["fields"] = [list(field) for field in fields]
    if contents:
        facts["contents"] = contents
    if shown != AS_STORED:
        facts["shown"] = list(shown)
    if runs is not None:
        facts["runs"] = runs
    return facts


def earlier_index(folder: Path, identity: Mapping[str, Any], on_error: str, restart: bool) -> Manifest | None:
    """Return the manifest if the folder holds this very index, complete. Else return None and leave a work
    folder with the unfinished parts of this very index; those of another one, or of one to replace, are gone.

    Args:
        folder: the index's folder; the caller holds its lock.
        identity: see :func:`index_identity`.
        on_error: see ``IndexOptions``.
        restart: replace an existing index.

    Raises:
        PackError: the folder holds another index, a packed dataset, or other files.
    """
    output = OutputFolder(folder)
    state = output.state()
    if state == "foreign":
        raise output.refusal()
    if state == "unfinished":
        output.refuse_others(None)
    if state == "complete":
        manifest = Manifest.read(folder)
        if not manifest.options.get("indexed"):
            raise PackError(
                f"{folder} holds a packed dataset, not an index of other files; choose another folder."
            )
        if not restart:
            _check_same(folder, manifest, identity)
            output.tidy()
            return manifest
    begun = state == "unfinished" and not restart and _begun(output.work, identity)
    # What was finished under "raise" has no bad records, so "skip" would give the same.
    if not begun or begun not in ("raise", on_error):
        output.discard()
        output.work.mkdir()
    record = output.work / _BEGUN
    with publishing(record) as temporary:
        temporary.write_text(json.dumps({**identity, "on_error": on_error}), encoding="utf-8")
    return None


def _begun(work: Path, identity: Mapping[str, Any]) -> str | None:
    """Return how the unfinished index in this work folder takes bad records; None: it is another one."""
    try:
        record = json.loads((work / _BEGUN).read_text(encoding="utf-8"))
        on_error = record.pop("on_error")
        return str(on_error) if record == identity else None
    except (OSError, ValueError, AttributeError, KeyError, RecursionError):
        return None


def _check_same(folder: Path, manifest: Manifest, identity: Mapping[str, Any]) -> None:
    """Raise PackError unless the manifest is of this index, over files as they are now."""
    names = ("indexed", "column", "labels", "fields", "shown", "runs")
    different = [name for name in names if manifest.options.get(name) != identity.get(name)]
    changed = "it indexes other files or has other options" if different else None
    if manifest.in_store and manifest.options.get("contents") != identity.get("contents"):
        changed = changed or "a file in the store has other contents now"
    if not manifest.in_store:
        changed = changed or _changed_file(folder, manifest)
    if changed:
        raise PackError(f"{folder} holds an index already, and {changed}; --restart replaces it.")


def _changed_file(folder: Path, manifest: Manifest) -> str | None:
    """Return how an indexed file has changed; one with a newer time is read, as it may only be touched."""
    written_ns = (folder / MANIFEST_NAME).stat().st_mtime_ns
    for number, shard in enumerate(manifest.shards):
        try:
            status = os.stat(shard.file)
        except OSError as error:
            return f"{shard.file} cannot be opened now ({error.strerror})"
        if status.st_size != shard.size:
            return f"{shard.file} had {shard.size} bytes then and has {status.st_size} now"
        if status.st_mtime_ns > written_ns and not _same_records(folder, number, shard.file):
            return f"{shard.file} has other contents now"
    return None


def _same_records(folder: Path, number: int, file: str) -> bool:
    dataset = PackedFiles(folder, entries=False)
    lists = [] if dataset.is_plain else [f.name for f in dataset.schema if f.storage == "records"]
    for records in (dataset.records, *map(dataset.field_records, lists)):
        for start in range(0, len(records), _CHUNK):
            part = records[start : start + _CHUNK]
            part = np.ascontiguousarray(part[(part["shard"] == number) & (part["length"] > 0)])
            try:
                if len(part) and _C.verify_file(os.fsencode(file), as_rows(part)):
                    return False
            except ShardTruncated:
                return False
    return True


# ---- ``fastload index`` -----------------------------------------------------------------------------


def index_files(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    options: IndexOptions | None = None,
    observer: Observer | None = None,
    made: Maker | None = None,
    spread: AsFinished | None = None,
) -> Manifest:
    """Index shards in place; ``output`` gets the index and a manifest with their paths or URLs.

    Each tar in a store is fetched once, and again in parts for the entry points. The same files give the same
    bytes, for any ``num_proc``.

    After an interruption or an error, the same call resumes with the missing files (tables start over); for a
    complete index it only makes the missing entry points. ``made``: as in :func:`ensure_entries`; ``spread``
    lets other processes index the files, one at a time each.

    Raises:
        FormatError: a file is of unknown kind, or its records are no plain byte ranges.
        PackError: records are not images, or ``output`` is in use or cannot be written.
    """
    options = options or IndexOptions()
    shards, format_name = _found([str(path) for given in paths for path in braced(given)], options)
    folder = Path(output).absolute()
    try:
        make_folder(folder)
        with folder_lock(folder):
            return _index_into(folder, format_name, shards, options, observer, made, spread)
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot index into {folder}: {error}.") from error


def _found(paths: list[str], options: IndexOptions) -> tuple[Sequence[FileOrTar], str]:
    """Return the files that paths or URLs stand for, and their format."""
    stored = [path for path in paths if is_url(path)]
    if stored:
        if len(stored) < len(paths):
            raise PackError(
                f"files of a store and of this machine cannot share an index. Found: {stored[0]}."
            )
        return tars_at(stored, options.storage_options), "tar"
    refuse_options(", ".join(paths), options.storage_options)
    shards = [shard for path in paths for shard in find_shards(Path(path))]
    twice = next((shard for shard, count in Counter(shards).items() if count > 1), None)
    if twice is not None:
        raise FormatError(f"{twice} is named twice: each of its samples would come twice. Name it once.")
    formats = sorted({format_of_file(path) for path in shards})
    if not shards:
        raise PackError(f"nothing to index in {', '.join(paths)}.")
    if len(formats) > 1:
        raise PackError(
            f"files of different formats cannot share an index: {', '.join(formats)}. Index each "
            "format apart."
        )
    return shards, formats[0]


def _index_into(
    folder: Path,
    format_name: str,
    shards: Sequence[FileOrTar],
    options: IndexOptions,
    observer: Observer | None,
    made: Maker | None,
    spread: AsFinished | None,
) -> Manifest:
    kinds = _kinds(format_name, options.fields)
    stored = contents_of([shard for shard in shards if isinstance(shard, StoredTar)])
    contents = stored if isinstance(shards[0], StoredTar) else ""
    runs = parse_runs(options.runs)
    given = (options.column, options.labels, options.fields, contents, options.shown, runs)
    identity = index_identity(shards, *given)
    manifest = earlier_index(folder, identity, options.on_error, options.restart)
    if manifest is None:
        job = IndexJob(format_name, shards, folder / WORK_NAME, options, kinds)
        try:
            _index_missing(job, folder, observer or Observer(), spread)
            manifest = _Indexer(job).run(folder, identity)
        except BaseException:
            job.tidy()  # terminated processes do not
            if not any(job.work.glob("*.part")):
                OutputFolder(folder).discard()
            raise
        remove(job.work)
    if options.entries is not None:
        ensure_entries(folder, options.entries, None, observer, made, options.storage_options)
    return manifest


def _index_missing(job: IndexJob, folder: Path, observer: Observer, spread: AsFinished | None) -> None:
    """Make the parts that an earlier call has not left."""
    job.tidy()
    sizes = [path.size if isinstance(path, StoredTar) else _bytes_of(job, path) for path in job.shards]
    missing = [number for number in range(len(sizes)) if not job.is_finished(number)]
    left = sum(sizes[number] for number in missing)
    done = len(sizes) - len(missing), sum(sizes) - left
    observer.started(Work("indexing", folder, "file", len(sizes), sum(sizes), *done, "into"))
    if spread is not None and job.format_name != TABLE:
        for number, part in spread(_indexed, job, missing):
            with publishing(job.part_path(number)) as temporary:
                temporary.write_bytes(part)
            observer.advanced(1, sizes[number])
        return
    processes = 1
    if job.format_name != TABLE:
        processes = job.options.num_proc or fitting_processes(left)
    write_shards(job, missing, processes, observer.advanced)


def _unsaid(count: int, size: int) -> None:
    """Report nothing: the other process does."""


def _indexed(job: IndexJob, number: int) -> bytes:
    """Index a file on a worker, which does not need the output's folder; return the part."""
    with TemporaryFolder("index") as folder:
        own = replace(job, work=folder)
        part = own.write(number, _unsaid)
        own.publish(number, part)
        part.close()
        return own.part_path(number).read_bytes()


def _bytes_of(job: IndexJob, path: Path) -> int:
    return os.stat(job.data_file(path)).st_size


def _kinds(format_name: str, fields: Sequence[tuple[str, str]]) -> Kinds:
    """Return the kinds that users gave for fields.

    Raises:
        PackError: a kind is not legal, or files of the format have no fields here.
    """
    if fields and not INDEXED[format_name]:
        able = ", ".join(name for name, has_fields in INDEXED.items() if has_fields)
        raise PackError(f"--field is for {able}; of {format_name} files a picture and a label are indexed.")
    if format_name == TABLE:  # its columns are told as in pack
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
    """Remake the entry points of a packed or indexed dataset, or remove them (``spacing`` None).

    ``made``, ``storage_options``: as in :func:`ensure_entries`.

    Raises:
        FormatError: the folder is not a dataset.
        PackError: another process is packing it, or the disk is full.
        ChecksumError: a record is damaged.
    """
    place = Path(folder).absolute()
    dataset = PackedFiles(place, entries=False, storage_options=storage_options)
    with folder_lock(place):
        if spacing is None:
            remove_entries(place, dataset.manifest.entries_name)
            return
        observer = observer or Observer()
        observer.started(entries_work(place, dataset.num_ids))
        if made is not None:
            write_entries(place, dataset.manifest, dataset.index.digest, spacing, made(dataset, spacing))
            return
        build_entries(dataset, spacing, len(os.sched_getaffinity(0)), observer.advanced)


class _Indexer:
    """Joins the files' parts, in order."""

    def __init__(self, job: IndexJob) -> None:
        self._job = job
        self._classes: tuple[str, ...] | None = job.table.classes if job.table else None
        self._labelled = job.table is not None
        self._hashes = array("q")
        self._failures: list[tuple[str, str]] = []
        self._left_out: list[tuple[str, str, str]] = []  # of records that stay: key, annotation, reason
        self._counts: list[tuple[int, int]] = []  # bytes and records of each file
        self._fields = ForeignFields(job.part_path, job.kinds, job.format_name == "tar", job.options.shown)

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
        manifest = with_content(manifest, output)
        manifest = with_runs(manifest, output, runs_in(options, manifest.schema))
        manifest.write(output)
        return manifest

    def part(self, number: int) -> ShardPart:
        """Read what was found in one file."""
        return ShardPart.read(self._job.part_path(number))

    def keys(self, named: bool) -> Iterator[list[bytes]]:
        """Yield the keys of each file: its own names if all are different, else the file's name followed by
        them, or by the position."""
        for number, path in enumerate(self._job.shards):
            keys, stem = self.part(number).keys, os.fsencode(path.stem)
            if named:
                yield keys
            elif self._job.format_name == "tar":
                yield [encode_key(stem + b"/" + key)[0] for key in keys]
            else:
                yield [b"%s/%08d" % (stem, i) for i in range(len(keys))]

    def _add(self, path: FileOrTar, part: ShardPart) -> None:
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
        picture = None if facts["picture"] is None else field_of(facts["picture"])
        self._fields.add(path, picture, fields, len(part.records))

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
