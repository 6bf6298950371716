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
from fastload.packing.folders import as_rows
from fastload.packing.output import RECODE_NAME, OutputFolder
from fastload.packing.packer import fitting_processes
from fastload.packing.progress import Observer, Work
from fastload.packing.sample_shards import OpenShard, write_tables
from fastload.packing.work import Advance, Claim, NoClaim, ShardPart, write_shards
from fastload.remote.location import is_url
from fastload.sample.fields import Image
from fastload.sample.schema import Field
from fastload.shard.codecs import CODECS, COEFFICIENTS, JPEG, file_of
from fastload.shard.columns import Chunk
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import Format, format_of
from fastload.shard.manifest import INDEX_NAME, SECOND, SECOND_INDEX, Entries, Manifest, Shard, column_name

# ---- What a recode is to make of a packed dataset, and which files that are -------------------------
# The work folder has it in writing.
#
# New files stand beside the old ones under other names (``-2`` before the suffix, or without it again),
# until the manifest, which names all of them, is replaced in one step. So the set is whole at any moment.

_NAME, _VERSION = "recode.json", 1
_CHUNK = 1 << 16  # index entries at a time


@dataclass(frozen=True)
class RecodePlan:
    """A recode, decided: the same plan gives the same files, byte for byte."""

    source: str  # id of the set as it is
    form: str | None  # of the records; None: JPEGs
    mark: str  # of the new files' names
    shards: tuple[str, ...]  # the new ones, in the order of the old ones
    tables: tuple[str, ...]  # new index and columns
    old: tuple[str, ...]  # what the set has now and the recoded one has not
    spacing: int | None  # of its entry points, pixels, 0: rows; None: it has none

    @property
    def identity(self) -> str:
        """Stands for the plan in the parts of shards that were written by it."""
        return f"{self.source} {self.form} {self.mark}"

    def write(self, work: Path) -> None:
        """Publish in the work folder, which can be resumed from then on."""
        final = work / _NAME
        temporary_of(final).write_text(json.dumps({"version": _VERSION, **asdict(self)}), encoding="utf-8")
        publish(temporary_of(final), final)

    @classmethod
    def read(cls, work: Path) -> RecodePlan | None:
        """The plan of a work folder; None: there is none, or it was never finished.

        Raises:
            PackError: damaged, or of another version of this program.
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
            raise PackError(f"{path} cannot be used ({error}); remove {work}. The set is whole.") from None


def form_of(options: Mapping[str, Any]) -> str | None:
    """The form of a set's coefficient records, by its manifest's options; None: it has JPEGs."""
    found = options.get("coefficients")
    return None if found is None else str(found)


def files_of(manifest: Manifest) -> set[str]:
    """The names in the folder of all that a manifest names."""
    names = {PurePosixPath(shard.file).parts[0] for shard in manifest.shards} | {manifest.index_name}
    return names | {str(entry["file"]) for entry in manifest.fields if "file" in entry}


def make_plan(dataset: PackedFiles, form: str | None) -> RecodePlan:
    """The plan of recoding a set to records of ``form``, or to JPEGs."""
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
    """The codecs of all fields' pictures."""
    schema, found = dataset.schema, set[int]()
    others = [f.name for f in schema if f.storage == "record" and f != schema.index_field]
    for records in (dataset.records, *map(dataset.field_records, others)):
        for start in range(0, len(records), _CHUNK):
            found |= set(records["codec"][start : start + _CHUNK].tolist())
            if {JPEG, COEFFICIENTS} <= found:
                break
    return found


def _renamed(name: str, mark: str) -> str:
    path = PurePosixPath(name)
    return f"{path.stem}{mark}{path.suffix}" if mark else f"{path.stem.removesuffix(SECOND)}{path.suffix}"


def _spacing(dataset: PackedFiles) -> int | None:
    """Of the entry points that the set has, or had when its pictures were JPEGs."""
    options = dataset.manifest.options
    if form_of(options) is None:
        return spacing_of(dataset)
    said = options.get(FACTS, {})
    found: int | None = said["entries"] if "entries" in said else spacing_of(dataset)
    return DEFAULT_SPACING if found is None and "entries" not in said else found


# ---- Writing one shard of a set that is recoded -----------------------------------------------------
# The old one's samples, with other bytes for its pictures.

_SPAN, _SPAN_BYTES = 256, 16 << 20  # samples and bytes of pictures in memory at a time
Made = tuple[bytes, RecodeOutcome | None]


@dataclass(frozen=True)
class RecodeJob:
    """All that a process needs to write any shard of a recode; see :class:`fastload.packing.work.Work`.

    Args:
        folder: the set's.
        plan: what is made of it.
        threads: that recode pictures in each process.
    """

    folder: Path
    plan: RecodePlan
    threads: int = 1

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.folder / RECODE_NAME

    def path(self, number: int) -> Path:
        """The new shard ``number``: in the work folder until the switch, then beside the old ones."""
        waiting, name = self.work / self.plan.shards[number], self.plan.shards[number]
        return waiting if exists(waiting) or not exists(self.folder / name) else self.folder / name

    def part_path(self, number: int) -> Path:
        """Its part of the index."""
        return self.work / f"{self.plan.shards[number]}.part"

    def is_finished(self, number: int, shards: Format) -> bool:
        """Whether shard ``number`` is there, with its part of the index, by this plan."""
        path = self.part_path(number)
        if not ShardPart.finished(path, shards.data_file(self.path(number))):
            return False
        return ShardPart.read(path).plan == self.plan.identity

    def claim(self, number: int) -> Claim | None:
        """Everybody's: who recodes holds the whole folder."""
        return NoClaim()

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Write shard ``number`` and its part, whole and on the device.

        Raises:
            PackError: no room; a record that is none; shards that are not in the samples' order.
            ChecksumError, ShardError: the old shard is damaged, or cannot be read.
        """
        dataset = opened_once(self.folder, self.plan.source)
        samples, manifest = _samples_of(dataset, number), dataset.manifest
        final, tally = self.work / self.plan.shards[number], RecodeCounts()
        remove(final)
        shard = OpenShard(
            final, format_of(manifest.format), manifest.schema, manifest.shards[number].size,
            bool(manifest.options.get("raw")),
        )  # fmt: skip
        try:
            with started_pool(self.threads, "recode") as pool:
                for ids in _spans(dataset, samples):
                    chunks, size = _Span(dataset, ids, self.plan.form, tally).chunks(pool)
                    _take(shard, [dataset.index.key(sample) for sample in ids], chunks)
                    advance(len(ids), size)
        except BaseException:
            shard.abort()
            raise
        part, spooled = shard.finish()
        path = self.part_path(number)
        try:
            with failed_writes_reported(path, manifest.shards[number].size):
                facts = {FACTS: tally.to_json()} if self.plan.form is not None else {}
                part = replace(part, stop=samples.stop, plan=self.plan.identity, facts=facts)
                part.write(path, spooled.files)
        except BaseException:
            remove(temporary_of(path))
            remove(final)
            raise
        finally:
            spooled.close()
        return part

    def publish(self, number: int, part: ShardPart) -> None:
        """It is durable already."""

    def discard(self, number: int) -> None:
        """Nothing is there that was not published."""


def _samples_of(dataset: PackedFiles, number: int) -> range:
    """The sample ids of a shard.

    Raises:
        PackError: they do not follow one another, as they do in every set that this program packed.
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
    """Some samples after another."""
    lengths = dataset.records["length"]
    at = samples.start
    while at < samples.stop:
        ends = np.cumsum(lengths[at : min(at + _SPAN, samples.stop)], dtype=np.int64)
        count = max(1, int(np.searchsorted(ends, _SPAN_BYTES, "right")))
        yield range(at, min(at + count, samples.stop))
        at += count


def _take(shard: OpenShard, keys: list[bytes], chunks: list[Chunk]) -> None:
    """Put samples into a shard, its batches cut as those of a pack of samples are."""
    begin = 0
    total: npt.NDArray[np.uint64] = np.sum([chunk.lengths for chunk in chunks], axis=0, dtype=np.uint64)
    sizes = total.tolist()

    def take(end: int) -> None:
        if end > begin:
            shard.take(keys[begin:end], [chunk.slice(begin, end) for chunk in chunks])

    for i, size in enumerate(sizes):
        if not shard.fits(size):
            take(i)
            begin = i
            shard.flush()
        shard.count(size)
    take(len(sizes))


class _Span:
    """Some samples of a set, on their way into another shard.

    Args:
        dataset: whose.
        ids: of the samples.
        form: of their records; None: JPEGs.
        tally: hears what came of each JPEG.
    """

    def __init__(self, dataset: PackedFiles, ids: range, form: str | None, tally: RecodeCounts) -> None:
        self._dataset, self._ids, self._form, self._tally = dataset, ids, form, tally
        self._rows = np.arange(ids.start, ids.stop)

    def chunks(self, pool: Executor) -> tuple[list[Chunk], int]:
        """The values of all fields, in the schema's order, and how many bytes the pictures had."""
        found, size = [], 0
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
            found.append(chunk)
        return found, size

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
        made = list(pool.map(self._recoded, ids, codecs, stored))
        for sample, (_, outcome) in zip(ids, made, strict=True):
            if outcome is not None:
                self._tally.add(dataset.key(sample), outcome)
        changed = [at for at, codec in enumerate(codecs) if codec in (JPEG, COEFFICIENTS)]
        return _chunk([data for data, _ in made], records, changed), had

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
    """Pictures with their index entries; of those that changed the entries are made anew."""
    chunk = Chunk.of(pieces)
    records["length"] = chunk.lengths
    records["offset"] = np.cumsum(chunk.lengths) - chunk.lengths
    records["label"] = -1
    if len(changed):
        some = records[changed]
        marks = some["flags"] & ESCAPED
        problems = _C.describe(chunk.data, as_rows(some))
        assert not problems, problems  # they were described before, as what they are made of
        some["flags"] |= marks
        records[changed] = some
    return Chunk(chunk.data, chunk.lengths, records)


# ---- ``fastload recode`` ----------------------------------------------------------------------------
# Shard after shard into new files, then the manifest, which names them, in one step.

_MOST_SAME = 16  # ids of earlier sets that a manifest names
_MORE = 8  # a recoded shard has at most about an eighth more bytes


@dataclass(frozen=True)
class RecodeResult:
    """One recoded dataset."""

    output: Path
    manifest: Manifest
    entries: EntryFacts
    seconds: float
    bytes_before: int  # of the index's records
    was_so: bool = False  # nothing was to do


def recode(
    folder: str | os.PathLike[str],
    form: str | None,
    num_proc: int | None = None,
    observer: Observer | None = None,
) -> RecodeResult:
    """Write a packed dataset's JPEGs as coefficient records, or those as the identical JPEGs, in its place.

    Every Image field's; other values stay as they are. Killed at any moment, it leaves the old set or the new
    one, complete; the same call goes on where it was. Who has the old set open goes on reading the shards
    that it has opened; its files are removed, never written to. The set has another id then.

    Args:
        folder: the packed dataset.
        form: "fast" or "small"; None: JPEGs.
        num_proc: processes that write shards; None: one a CPU, fewer for small sets. With several, call it
            under ``if __name__ == "__main__":``.
        observer: hears how far it is.

    Raises:
        PackError: an index of other files, a set in a store, one without pictures of this kind, a full disk,
            another process at work in the folder.
        ChecksumError, ShardError: a damaged shard; the old set is left as it is.
        FormatError: not a packed dataset.
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
        opened_once.cache_clear()  # which keeps the old shards open


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
    """Recodes one folder; the caller holds its lock."""

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
            found = ", ".join(sorted(CODECS[codec].title for codec in codecs if codec < len(CODECS)))
            raise PackError(f"{self.path} has no JPEGs, so there is nothing to recode. Found: {found}.")
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
        """Write what is missing, and everything that the new manifest names; returns that, not written."""
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
            if exists(job.work / name):  # else it was moved before a kill
                remove(self.path / name)
                os.replace(job.work / name, self.path / name)
        sync_folder(self.path)
        return _manifest(manifest, job.plan, parts, tuple(entries), index)


def _needed(dataset: PackedFiles, missing: list[int]) -> int:
    """Bytes that shards and tables take, about."""
    manifest = dataset.manifest
    tables = manifest.index_size + sum(int(entry.get("size", 0)) for entry in manifest.fields)
    size = sum(manifest.shards[number].size for number in missing)
    return size + size // _MORE + 2 * tables + (1 << 20)  # tables are in parts, too


def _manifest(
    old: Manifest, plan: RecodePlan, paths: list[Path], entries: Entries, index: tuple[int, int]
) -> Manifest:
    """The manifest of the new shards, which have their names already."""
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
    made = replace(
        old,
        data_bytes=summary.bytes, shards=tuple(shards), index_size=index[0], index_crc=index[1],
        codecs=summary.codecs, options=options, writer=f"fastload {__version__}", fields=entries,
        index=plan.tables[0] if plan.mark else "",
    )  # fmt: skip
    same = [one for one in dict.fromkeys([old.id, *old.same_as]) if one != made.id]
    return replace(made, same_as=tuple(same[:_MOST_SAME]))


def _begin(folder: OutputFolder, plan: RecodePlan) -> None:
    """An empty work folder for a plan, which says which files will be made and which will go."""
    remove(folder.work)
    folder.work.mkdir()
    folder.announce([*plan.shards, *plan.tables, *plan.old])
    plan.write(folder.work)


def _settled(folder: OutputFolder, observer: Observer, num_proc: int | None) -> RecodePlan | None:
    """End what an earlier recode has left: after its switch, what belongs behind that. Before, its plan is
    returned, by which the same one goes on."""
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
    remove(folder.work)  # of a set that is not there any more
    return None


def _discard(folder: OutputFolder, plan: RecodePlan, manifest: Manifest) -> None:
    """Remove what a recode that is not wanted any more has made; the set itself stays."""
    for name in sorted({*plan.shards, *plan.tables} - files_of(manifest)):
        remove(folder.path / name)
    sync_folder(folder.path)
    remove(folder.work)


def _finish(
    folder: OutputFolder, plan: RecodePlan, manifest: Manifest, observer: Observer, num_proc: int | None
) -> None:
    """Behind the switch: the old files go, and entry points are made of the JPEGs that there are."""
    for name in sorted(set(plan.old) - files_of(manifest)):
        remove(folder.path / name)
    spacing = plan.spacing if manifest.codecs.get(CODECS[JPEG].name, 0) else None
    if spacing is None:
        remove_entries(folder.path)
    sync_folder(folder.path)  # before the plan goes, which alone knows of what was removed
    if spacing is not None:
        ensure_entries(folder.path, spacing, num_proc, observer)
    remove(folder.work)


# ---- ``fastload recode`` ----------------------------------------------------------------------------
# A packed dataset's JPEGs as coefficient records and back, in place.
