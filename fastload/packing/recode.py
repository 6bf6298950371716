"""A set's JPEGs recoded in place: the plan, the shards, and the one switch from the old files to the new."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload._version import __version__
from fastload.errors import DecodeError, FastloadError, PackError
from fastload.machine.paths import exists
from fastload.machine.threads import started_pool
from fastload.packing.coefficients import FACTS, FORMS, NOTE, RecodeCounts, RecodeOutcome, to_record
from fastload.packing.entries import DEFAULT_SPACING, ensure_entries, remove_entries, spacing_of, tidy_entries
from fastload.packing.facts import EntryFacts, Summary, entry_facts
from fastload.packing.fetched import opened_once
from fastload.packing.files import (
    ESCAPED,
    failed_writes_reported,
    folder_lock,
    publish,
    remove,
    require_space,
    sync_folder,
    temporary_of,
)
from fastload.packing.progress import Observer, Work
from fastload.packing.publish import write_tables
from fastload.packing.shard_writer import ShardPart, ShardWriter, classes_of
from fastload.packing.spread import Advance, Claim, NoClaim, fitting_processes, write_shards
from fastload.packing.target import RECODE_NAME, OutputFolder
from fastload.remote.location import is_url
from fastload.sample.fields import Image
from fastload.sample.schema import Field
from fastload.shard.codecs import CODECS, COEFFICIENTS, JPEG, file_of
from fastload.shard.columns import Chunk
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import Format, ShardSpec, format_of
from fastload.shard.index import as_rows
from fastload.shard.manifest import INDEX_NAME, SECOND, SECOND_INDEX, Entries, Manifest, Shard, column_name

# ---- The plan of a recode, written in the work folder -----------------------------------------------
# New files stand beside the old ones under other names (``-2`` before the suffix, or without it again) until
# the manifest, which names all of them, is replaced in one step. So the set is complete at any moment.

_NAME, _VERSION = "recode.json", 1
_CHUNK = 1 << 16  # index entries at a time


@dataclass(frozen=True)
class RecodePlan:
    """A recode's plan: the same plan gives the same files, byte for byte."""

    source: str  # id of the set before the recode
    form: str | None  # of the records; None: JPEGs
    mark: str  # of the new files' names
    shards: tuple[str, ...]  # the new ones, in the order of the old ones
    tables: tuple[str, ...]  # new index and columns
    old: tuple[str, ...]  # files of the set that the recoded one does not have
    spacing: int | None  # of its entry points: pixels, 0: rows; None: it has none

    @property
    def identity(self) -> str:
        """The plan's name in the parts of the shards that were written by it."""
        return f"{self.source} {self.form} {self.mark}"

    def write(self, work: Path) -> None:
        """Publish in the work folder, which can be resumed from then on."""
        final = work / _NAME
        temporary_of(final).write_text(json.dumps({"version": _VERSION, **asdict(self)}), encoding="utf-8")
        publish(temporary_of(final), final)

    @classmethod
    def read(cls, work: Path) -> RecodePlan | None:
        """Read the plan of a work folder; None: there is none, or it was never finished.

        Raises:
            PackError: the plan is damaged, or from another version of this program.
        """
        path = work / _NAME
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            if body.pop("version") != _VERSION:
                raise ValueError("another version")
            lists = {name: tuple(map(str, body[name])) for name in ("shards", "tables", "old")}
            return cls(**{**body, **lists})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PackError(f"{path} cannot be used ({error}); remove {work}. The set is good.") from None


def form_of(options: Mapping[str, Any]) -> str | None:
    """Return the form of a set's coefficient records from its manifest's options; None: it has JPEGs."""
    form = options.get("coefficients")
    return None if form is None else str(form)


def files_of(manifest: Manifest) -> set[str]:
    """Return the names in the folder of all files that a manifest names."""
    names = {PurePosixPath(shard.file).parts[0] for shard in manifest.shards} | {manifest.index_name}
    return names | {str(entry["file"]) for entry in manifest.fields if "file" in entry}


def make_plan(dataset: PackedFiles, form: str | None) -> RecodePlan:
    """Return the plan of recoding a set to records of ``form``, or to JPEGs."""
    manifest = dataset.manifest
    mark = "" if manifest.index else SECOND
    tables = [SECOND_INDEX if mark else INDEX_NAME]
    if manifest.fields:
        tables += [column_name(number, mark) for number, _ in manifest.schema.columns]
    return RecodePlan(
        source=manifest.id,
        form=form,
        mark=mark,
        shards=tuple(_renamed(PurePosixPath(shard.file).parts[0], mark) for shard in manifest.shards),
        tables=tuple(tables),
        old=tuple(sorted(files_of(manifest))),
        spacing=_spacing(dataset),
    )


def picture_codecs(dataset: PackedFiles) -> set[int]:
    """Return the codecs of all fields' pictures, or at least JPEG and coefficients if both occur."""
    schema, codecs = dataset.schema, set[int]()
    others = [f.name for f in schema if f.storage == "record" and f != schema.index_field]
    for records in (dataset.records, *map(dataset.field_records, others)):
        for start in range(0, len(records), _CHUNK):
            codecs |= set(records["codec"][start : start + _CHUNK].tolist())
            if {JPEG, COEFFICIENTS} <= codecs:
                break
    return codecs


def _renamed(name: str, mark: str) -> str:
    path = PurePosixPath(name)
    return f"{path.stem}{mark}{path.suffix}" if mark else f"{path.stem.removesuffix(SECOND)}{path.suffix}"


def _spacing(dataset: PackedFiles) -> int | None:
    """Return the spacing of the entry points that the set has, or had when its pictures were JPEGs."""
    options = dataset.manifest.options
    if form_of(options) is None:
        return spacing_of(dataset)
    facts = options.get(FACTS, {})
    spacing: int | None = facts["entries"] if "entries" in facts else spacing_of(dataset)
    return DEFAULT_SPACING if spacing is None and "entries" not in facts else spacing


# ---- Writing one shard: the old one's samples with recoded pictures ---------------------------------

_SPAN, _SPAN_BYTES = 256, 16 << 20  # samples and bytes of pictures in memory at a time
Made = tuple[bytes, RecodeOutcome | None]


@dataclass(frozen=True)
class RecodeJob:
    """All that a process needs to write any shard of a recode; see :class:`fastload.packing.work.Work`.

    Args:
        folder: the set's folder.
        plan: the plan.
        threads: threads that recode pictures in each process.
    """

    folder: Path
    plan: RecodePlan
    threads: int = 1

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.folder / RECODE_NAME

    def path(self, number: int) -> Path:
        """Return the path of new shard ``number``: in the work folder, then beside the old one."""
        waiting, name = self.work / self.plan.shards[number], self.plan.shards[number]
        return waiting if exists(waiting) or not exists(self.folder / name) else self.folder / name

    def part_path(self, number: int) -> Path:
        """Return the path of its part of the index."""
        return self.work / f"{self.plan.shards[number]}.part"

    def is_finished(self, number: int, shards: Format) -> bool:
        """Whether shard ``number`` of this plan exists, with its part of the index."""
        path = self.part_path(number)
        if not ShardPart.finished(path, shards.data_file(self.path(number))):
            return False
        return ShardPart.read(path).plan == self.plan.identity

    def claim(self, number: int) -> Claim | None:
        """Claim a shard, which always succeeds: a recode holds the whole folder."""
        return NoClaim()

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Write shard ``number`` and its part, complete and on the device.

        Raises:
            PackError: there is no room, a record is damaged, or shards are not in the samples' order.
            ChecksumError, ShardError: the old shard is damaged or cannot be read.
        """
        dataset = opened_once(self.folder, self.plan.source)
        samples, manifest = _samples_of(dataset, number), dataset.manifest
        final, tally = self.work / self.plan.shards[number], RecodeCounts()
        remove(final)
        schema, about = manifest.schema, manifest.shards[number].size
        spec = ShardSpec(
            classes_of(schema), 0, about, bool(manifest.options.get("raw")),
            schema=None if schema.is_plain else schema,
        )  # fmt: skip
        shard = ShardWriter(final, format_of(manifest.format), schema, spec, about)
        try:
            with started_pool(self.threads, "recode") as pool:
                for ids in _spans(dataset, samples):
                    chunks, size = _Span(dataset, ids, self.plan.form, tally).chunks(pool)
                    shard.add_samples([dataset.index.key(sample) for sample in ids], chunks)
                    advance(len(ids), size)
            part = shard.finish()
            shard.publish()
        except BaseException:
            shard.abort()
            raise
        path = self.part_path(number)
        try:
            with failed_writes_reported(path, manifest.shards[number].size):
                facts = {FACTS: tally.to_json()} if self.plan.form is not None else {}
                part = replace(part, stop=samples.stop, plan=self.plan.identity, facts=facts)
                part.write(path)
        except BaseException:
            remove(temporary_of(path))
            remove(final)
            raise
        finally:
            part.close()
        return part

    def publish(self, number: int, part: ShardPart) -> None:
        """Do nothing, as it is durable already."""

    def discard(self, number: int) -> None:
        """Do nothing, as nothing unpublished exists."""


def _samples_of(dataset: PackedFiles, number: int) -> range:
    """Return the sample ids of a shard.

    Raises:
        PackError: they are not consecutive, as they are in every set that this program packed.
    """
    counts = [shard.records for shard in dataset.manifest.shards]
    start = sum(counts[:number])
    samples = range(start, start + counts[number])
    if not (dataset.records["shard"][samples.start : samples.stop] == number).all():
        raise PackError(
            f"{dataset.where} cannot be recoded: the samples of shard {number} do not follow one another. "
            "Was it packed by this program?"
        )
    return samples


def _spans(dataset: PackedFiles, samples: range) -> Iterator[range]:
    """Yield the samples in consecutive spans of bounded size."""
    lengths = dataset.records["length"]
    at = samples.start
    while at < samples.stop:
        ends = np.cumsum(lengths[at : min(at + _SPAN, samples.stop)], dtype=np.int64)
        count = max(1, int(np.searchsorted(ends, _SPAN_BYTES, "right")))
        yield range(at, min(at + count, samples.stop))
        at += count


class _Span:
    """A span of a set's samples on their way into another shard.

    Args:
        dataset: the set.
        ids: the sample ids.
        form: the form of their records; None: JPEGs.
        tally: counts the outcome of each JPEG.
    """

    def __init__(self, dataset: PackedFiles, ids: range, form: str | None, tally: RecodeCounts) -> None:
        self._dataset, self._ids, self._form, self._tally = dataset, ids, form, tally
        self._rows = np.arange(ids.start, ids.stop)

    def chunks(self, pool: Executor) -> tuple[list[Chunk], int]:
        """Return the values of all fields, in the schema's order, and how many bytes the pictures had."""
        chunks, size = [], 0
        for field in self._dataset.schema:
            if field.storage == "record":
                chunk, had = self._pictures(field, pool)
                size += had
            elif field == self._dataset.schema.label_field:
                labels = self._dataset.records["label"][self._ids.start : self._ids.stop].astype("<i4")
                chunk = Chunk(labels.view(np.uint8), np.full(len(labels), labels.itemsize, np.uint64))
            else:
                data, ends = self._dataset.columns[field.name].gather(self._rows)
                chunk = Chunk(np.asarray(data), np.diff(ends).astype(np.uint64))
            chunks.append(chunk)
        return chunks, size

    def _pictures(self, field: Field, pool: Executor) -> tuple[Chunk, int]:
        dataset, ids = self._dataset, self._ids
        of_index = field == dataset.schema.index_field
        entries = dataset.records if of_index else dataset.field_records(field.name)
        records = entries[ids.start : ids.stop].copy()
        stored = (dataset.stored(sample, None if of_index else field.name) for sample in ids)
        had = int(records["length"].sum(dtype=np.uint64))
        if not isinstance(field.kind, Image):
            return _chunk(list(stored), records, ()), had
        codecs = records["codec"].tolist()
        recoded = list(pool.map(self._recoded, ids, codecs, stored))
        for sample, (_, outcome) in zip(ids, recoded, strict=True):
            if outcome is not None:
                self._tally.add(dataset.key(sample), outcome)
        changed = [at for at, codec in enumerate(codecs) if codec in (JPEG, COEFFICIENTS)]
        return _chunk([data for data, _ in recoded], records, changed), had

    def _recoded(self, sample: int, codec: int, data: bytes) -> Made:
        if codec not in (JPEG, COEFFICIENTS):
            return data, None
        try:
            jpeg = file_of(codec, data)
        except DecodeError as error:
            raise PackError(
                f"sample {sample} ({self._dataset.key(sample)}) of {self._dataset.where} gives no JPEG: "
                f"{error} 'fastload verify --decode' finds all such records; the set is left as it is."
            ) from error
        return (jpeg, None) if self._form is None else to_record(jpeg, self._form)


def _chunk(pieces: list[bytes], records: npt.NDArray[np.void], changed: Sequence[int]) -> Chunk:
    """Return pictures with their index entries; the entries of changed ones are made anew."""
    chunk = Chunk.of(pieces)
    records["length"] = chunk.lengths
    records["offset"] = np.cumsum(chunk.lengths) - chunk.lengths
    records["label"] = -1
    if len(changed):
        some = records[changed]
        marks = some["flags"] & ESCAPED
        problems = _C.describe(chunk.data, as_rows(some))
        assert not problems, problems  # they were described before, as their sources
        some["flags"] |= marks
        records[changed] = some
    return Chunk(chunk.data, chunk.lengths, records)


# ---- ``fastload recode`` ----------------------------------------------------------------------------

_MOST_SAME = 16  # ids of earlier sets that a manifest names
_MORE = 8  # a recoded shard has at most about an eighth more bytes


@dataclass(frozen=True)
class RecodeResult:
    """The result of recoding a dataset."""

    output: Path
    manifest: Manifest
    entries: EntryFacts
    seconds: float
    bytes_before: int  # of the index's records
    was_so: bool = False  # there was nothing to do


def recode(
    folder: str | os.PathLike[str],
    form: str | None,
    num_proc: int | None = None,
    observer: Observer | None = None,
) -> RecodeResult:
    """Write a packed dataset's JPEGs as coefficient records, or those as the identical JPEGs, in place.

    This covers every Image field; other values stay as they are. A kill at any moment leaves the old set or
    the new one, complete; the same call resumes. A reader of the old set can go on reading the shards that it
    has opened: its files are removed, never written to. The recoded set has another id.

    Args:
        folder: the packed dataset.
        form: "fast" or "small"; None: JPEGs.
        num_proc: processes that write shards; None: one per CPU, fewer for small sets. With several, call it
            under ``if __name__ == "__main__":``.
        observer: receives progress.

    Raises:
        PackError: an index of other files, a set in a store, one without pictures of this kind, a full disk,
            another process at work in the folder.
        ChecksumError, ShardError: a shard is damaged; the old set is left as it is.
        FormatError: the folder is not a packed dataset.
    """
    if form not in (None, *FORMS):
        raise PackError(f"the form of coefficient records is '{form}', must be {' or '.join(FORMS)}.")
    if num_proc is not None and num_proc < 1:
        raise PackError(f"num_proc is {num_proc}, must be >= 1.")
    if is_url(folder):
        raise PackError(f"{folder} is in a store: recode it in a folder of this machine, and upload that.")
    path = Path(folder).absolute()
    _check_own(Manifest.read(path), path)
    try:
        with folder_lock(path):
            return _Recode(path, form, num_proc, observer or Observer()).run()
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot recode {path}: {error}.") from error
    finally:
        opened_once.cache_clear()  # it keeps the old shards open


def _check_own(manifest: Manifest, path: Path) -> None:
    """Raise PackError unless a set's shards are its own."""
    if manifest.options.get("indexed") or manifest.in_store:
        raise PackError(
            f"{path} is an index of files that are not its own, which are never written to. 'fastload pack' "
            "makes a set of them: --coefficients works there, too."
        )
    outside = [shard.file for shard in manifest.shards if PurePosixPath(shard.file).is_absolute()]
    if outside:
        raise PackError(f"{path} has a shard outside of its folder ({outside[0]}); it cannot be recoded.")


@dataclass(frozen=True)
class _Recode:
    """A recode of one folder; the caller holds its lock."""

    path: Path
    form: str | None
    num_proc: int | None
    observer: Observer

    def run(self) -> RecodeResult:
        began = time.monotonic()
        folder = OutputFolder(self.path).recoding
        left = _settled(folder, self.observer, self.num_proc)
        dataset = PackedFiles(self.path, entries=False)
        manifest, before = dataset.manifest, dataset.manifest.data_bytes
        codecs = picture_codecs(dataset)
        is_so = COEFFICIENTS not in codecs if self.form is None else form_of(manifest.options) == self.form
        if not codecs & {JPEG, COEFFICIENTS}:
            titles = ", ".join(sorted(CODECS[codec].title for codec in codecs if codec < len(CODECS)))
            raise PackError(f"{self.path} has no JPEGs, so there is nothing to recode. Found: {titles}.")
        if not is_so:
            plan = make_plan(dataset, self.form)
            if plan != left:
                if left is not None:
                    _discard(folder, left, manifest)
                _begin(folder, plan)
            manifest = self._written(RecodeJob(self.path, plan, self._threads(1)), dataset)
            manifest.write(self.path)
            _finish(folder, plan, manifest, self.observer, self.num_proc)
        elif left is not None:
            _discard(folder, left, manifest)
        facts = entry_facts(PackedFiles(self.path))
        return RecodeResult(self.path, manifest, facts, time.monotonic() - began, before, is_so)

    def _threads(self, processes: int) -> int:
        return max(1, len(os.sched_getaffinity(0)) // processes)

    def _written(self, job: RecodeJob, dataset: PackedFiles) -> Manifest:
        """Write what is missing, and all files that the new manifest names; return it, not yet written."""
        manifest, shards = dataset.manifest, dataset.manifest.shards
        kind = format_of(manifest.format)
        done = [number for number in range(len(shards)) if job.is_finished(number, kind)]
        missing = sorted(set(range(len(shards))) - set(done))
        require_space(self.path, _needed(dataset, missing))
        counts = sum(shards[number].records for number in done), sum(shards[number].size for number in done)
        totals = manifest.num_records, sum(shard.size for shard in shards)
        self.observer.started(Work("recoding", self.path, "sample", *totals, *counts))
        size = totals[1] - counts[1]
        processes = min(self.num_proc or fitting_processes(size), max(1, len(missing)))
        job = replace(job, threads=self._threads(processes))
        write_shards(job, missing, processes, self.observer.advanced)
        parts = [job.part_path(number) for number in range(len(shards))]
        try:
            with failed_writes_reported(self.path / job.plan.tables[0], _needed(dataset, [])):
                entries, index = write_tables(
                    self.path, manifest.schema, parts, manifest.num_records, job.plan.mark
                )
        except BaseException:
            for name in job.plan.tables:
                remove(temporary_of(self.path / name))
            raise
        for name in job.plan.shards:
            if exists(job.work / name):  # otherwise it was moved before a kill
                remove(self.path / name)
                os.replace(job.work / name, self.path / name)
        sync_folder(self.path)
        return _manifest(manifest, job.plan, parts, tuple(entries), index)


def _needed(dataset: PackedFiles, missing: list[int]) -> int:
    """Estimate the bytes that shards and tables take."""
    manifest = dataset.manifest
    tables = manifest.index_size + sum(int(entry.get("size", 0)) for entry in manifest.fields)
    size = sum(manifest.shards[number].size for number in missing)
    return size + size // _MORE + 2 * tables + (1 << 20)  # tables are in parts, too


def _manifest(
    old: Manifest, plan: RecodePlan, paths: list[Path], entries: Entries, index: tuple[int, int]
) -> Manifest:
    """Return the manifest of the new shards, which have their final names already."""
    summary, tally, shards = Summary(), RecodeCounts(), []
    for name, shard, path in zip(plan.shards, old.shards, paths, strict=True):
        part = ShardPart.read(path)
        summary.add(part.records)
        if FACTS in part.facts:
            tally.merge(part.facts[FACTS])
        inside = PurePosixPath(name, *PurePosixPath(shard.file).parts[1:])
        shards.append(Shard(str(inside), part.shard_bytes, len(part.records)))
    options = {name: value for name, value in old.options.items() if name not in ("coefficients", FACTS)}
    if plan.form is not None:
        facts = {"note": NOTE, **tally.to_json(), "entries": plan.spacing}
        options |= {"coefficients": plan.form, FACTS: facts}
    manifest = replace(
        old,
        data_bytes=summary.bytes, shards=tuple(shards), index_size=index[0], index_crc=index[1],
        codecs=summary.codecs, options=options, writer=f"fastload {__version__}", fields=entries,
        index=plan.tables[0] if plan.mark else "",
    )  # fmt: skip
    same = [old_id for old_id in dict.fromkeys([old.id, *old.same_as]) if old_id != manifest.id]
    return replace(manifest, same_as=tuple(same[:_MOST_SAME]))


def _begin(folder: OutputFolder, plan: RecodePlan) -> None:
    """Make an empty work folder for a plan, and record which files will be made and which will go."""
    remove(folder.work)
    folder.work.mkdir()
    folder.announce([*plan.shards, *plan.tables, *plan.old])
    plan.write(folder.work)


def _settled(folder: OutputFolder, observer: Observer, num_proc: int | None) -> RecodePlan | None:
    """Finish what an earlier recode left after its switch; return its plan if it stopped before that, so that
    the same recode can resume."""
    plan = RecodePlan.read(folder.work) if exists(folder.work) else None
    manifest = Manifest.read(folder.path)
    if plan is None:
        tidy_entries(folder.path)
        remove(folder.work)
        return None
    if manifest.id == plan.source:
        return plan
    if plan.source in manifest.same_as:
        _finish(folder, plan, manifest, observer, num_proc)
    remove(folder.work)  # of a set that no longer exists
    return None


def _discard(folder: OutputFolder, plan: RecodePlan, manifest: Manifest) -> None:
    """Remove what an abandoned recode has made; the set itself stays."""
    for name in sorted({*plan.shards, *plan.tables} - files_of(manifest)):
        remove(folder.path / name)
    sync_folder(folder.path)
    remove(folder.work)


def _finish(
    folder: OutputFolder, plan: RecodePlan, manifest: Manifest, observer: Observer, num_proc: int | None
) -> None:
    """Remove the old files after the switch, and make the entry points of the set's JPEGs."""
    for name in sorted(set(plan.old) - files_of(manifest)):
        remove(folder.path / name)
    spacing = plan.spacing if manifest.codecs.get(CODECS[JPEG].name, 0) else None
    if spacing is None:
        remove_entries(folder.path)
    sync_folder(folder.path)  # before the plan goes, which alone knows what was removed
    if spacing is not None:
        ensure_entries(folder.path, spacing, num_proc, observer)
    remove(folder.work)
