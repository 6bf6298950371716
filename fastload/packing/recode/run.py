"""``fastload recode``: shard after shard into new files, then the manifest, which names them, in one step."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fastload._version import __version__
from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists
from fastload.packing.coefficients import FACTS, FORMS, NOTE, Tally
from fastload.packing.entries import ensure_entries, remove_entries, tidy_entries
from fastload.packing.entry_facts import EntryFacts, entry_facts
from fastload.packing.files import failed_writes_reported, remove, require_space, sync_folder, temporary_of
from fastload.packing.lock import folder_lock
from fastload.packing.output import OutputFolder
from fastload.packing.packer import fitting_processes
from fastload.packing.part import ShardPart
from fastload.packing.pool import write_shards
from fastload.packing.progress import Observer, Work
from fastload.packing.recode.job import RecodeJob
from fastload.packing.recode.plan import RecodePlan, files_of, form_of, make_plan, picture_codecs
from fastload.packing.samples.publish import write_tables
from fastload.packing.spans import opened_once
from fastload.packing.summary import Summary
from fastload.remote.location import is_url
from fastload.shard.codecs import CODECS, COEFFICIENTS, JPEG
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import format_of
from fastload.shard.manifest import Entries, Manifest, Shard

__all__ = ["RecodeResult", "recode"]

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
    summary, tally, shards = Summary(), Tally(), []
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
