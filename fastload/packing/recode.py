"""A set's JPEGs recoded in place: the plan, the shards, and the one switch from the old files to the new."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from fastload._version import __version__
from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists
from fastload.packing.coefficients import FACTS, FORMS, NOTE
from fastload.packing.cut import WORK_NAME, Plan, ShardPlan, plan_of
from fastload.packing.entries import DEFAULT_SPACING, ensure_entries, remove_entries, spacing_of, tidy_entries
from fastload.packing.facts import EntryFacts, entry_facts
from fastload.packing.files import (
    failed_writes_reported,
    folder_lock,
    remove,
    require_space,
    sync_folder,
    temporary_of,
)
from fastload.packing.options import PackOptions
from fastload.packing.progress import Observer, Work
from fastload.packing.publish import Finished, write_tables
from fastload.packing.set_rows import SetRows
from fastload.packing.shard_writer import ShardPart
from fastload.packing.spread import fitting_processes, write_shards
from fastload.packing.target import Folder, OutputFolder, part_path
from fastload.packing.work import ShardWork
from fastload.remote.location import is_url
from fastload.shard.codecs import CODECS, COEFFICIENTS, JPEG
from fastload.shard.contents import with_content
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import format_of
from fastload.shard.manifest import INDEX_NAME, SECOND, SECOND_INDEX, Entries, Manifest, Shard, column_name

# ---- The plan of a recode, written in the work folder -----------------------------------------------
# New files stand beside the old ones under other names (``-2`` before the suffix, or without it again) until
# the manifest, which names all of them, is replaced in one step. So the set is complete at any moment.

_CHUNK = 1 << 16  # index entries at a time


def form_of(options: Mapping[str, Any]) -> str | None:
    """Return the form of a set's coefficient records from its manifest's options; None: it has JPEGs."""
    form = options.get("coefficients")
    return None if form is None else str(form)


def files_of(manifest: Manifest) -> set[str]:
    """Return the names in the folder of all files that a manifest names."""
    names = {PurePosixPath(shard.file).parts[0] for shard in manifest.shards} | {manifest.index_name}
    names |= {str(entry["file"]) for entry in manifest.fields if "file" in entry}
    return names | ({manifest.runs.file} if manifest.runs is not None else set())


def plan_in_place(rows: SetRows, options: PackOptions, folder: Path) -> Plan:
    """Return the plan of recoding a set: its own shards, under other names.

    Args:
        rows: the set's samples.
        options: say what its JPEGs become.
        folder: receives the listing.
    """
    plan = plan_of(rows, options, "", folder)
    shards, start = [], 0
    for shard in rows.dataset.manifest.shards:
        name = _renamed(PurePosixPath(shard.file).parts[0], _mark(rows.dataset.manifest))
        shards.append(ShardPlan(name, start, start + shard.records, shard.size))
        start += shard.records
    return replace(plan, rows={**plan.rows, "entries": _spacing(rows.dataset)}, shards=tuple(shards))


def _mark(manifest: Manifest) -> str:
    """Return the mark of the new files' names."""
    return "" if manifest.index else SECOND


def _tables(manifest: Manifest) -> list[str]:
    """Return the names of the new index and columns."""
    mark = _mark(manifest)
    columns = manifest.schema.columns if manifest.fields else ()
    return [SECOND_INDEX if mark else INDEX_NAME, *(column_name(number, mark) for number, _ in columns)]


def picture_codecs(dataset: PackedFiles) -> set[int]:
    """Return the codecs of all fields' pictures, or at least JPEG and coefficients if both occur."""
    schema, codecs = dataset.schema, set[int]()
    others = [f.name for _, f in schema.columns if f.storage in ("record", "records")]
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


# ---- Where new shards wait ----------------------------------------------------------------------------


@dataclass(frozen=True)
class InPlace(Folder):
    """The work folder of a set that is recoded, in which shards wait until they stand beside the old ones.

    Args:
        place: the work folder.
    """

    def path(self, plan: Plan, number: int) -> Path:
        """Return the path of a new shard: in the work folder, then beside the old one."""
        name = plan.shards[number].name
        waiting, moved = self.place / name, self.place.parent / name
        return waiting if exists(waiting) or not exists(moved) else moved

    def is_finished(self, plan: Plan, number: int) -> bool:
        data_file = format_of(str(plan.identity["format"])).data_file(self.path(plan, number))
        return ShardPart.finished(part_path(self.place, plan.shards[number].name), data_file)


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


def _check_own(manifest: Manifest, path: Path) -> None:
    """Raise PackError unless a set's shards are its own."""
    if manifest.options.get("indexed") or manifest.in_store:
        raise PackError(
            f"{path} is an index of files that are not its own, which are never written to. 'fastload pack' "
            "makes a set of them: --coefficients works there, too."
        )
    if manifest.generations:
        raise PackError(
            f"{path} has grown, or samples were dropped: earlier generations could not be opened after a "
            f"recode. 'fastload pack {path} OUTPUT --coefficients' makes a recoded set of its samples."
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
            rows = SetRows(dataset, dataset.schema, in_place=True)
            plan = _begun(folder, rows, PackOptions(format=manifest.format, coefficients=self.form), left)
            manifest = self._written(rows, plan)
            manifest.write(self.path)
            _finish(folder, plan, manifest, self.observer, self.num_proc)
        elif left is not None:
            _discard(folder, manifest)
        facts = entry_facts(PackedFiles(self.path))
        return RecodeResult(self.path, manifest, facts, time.monotonic() - began, before, is_so)

    def _written(self, rows: SetRows, plan: Plan) -> Manifest:
        """Write what is missing, and all files that the new manifest names; return it, not yet written."""
        dataset, target = rows.dataset, InPlace(OutputFolder(self.path).recoding.work)
        manifest, missing = dataset.manifest, target.missing(plan)
        require_space(self.path, _needed(dataset, missing))
        left = [plan.shards[number] for number in missing]
        totals = manifest.num_records, sum(shard.bytes for shard in plan.shards)
        size = sum(shard.bytes for shard in left)
        done = totals[0] - sum(shard.stop - shard.start for shard in left), totals[1] - size
        self.observer.started(Work("recoding", self.path, "sample", *totals, *done))
        processes = min(self.num_proc or fitting_processes(size), max(1, len(missing)))
        options = PackOptions(format=manifest.format, coefficients=self.form, num_proc=processes)
        write_shards(ShardWork(rows, plan, target, options), missing, processes, self.observer.advanced)
        parts = [part_path(target.place, shard.name) for shard in plan.shards]
        tables = _tables(manifest)
        try:
            with failed_writes_reported(self.path / tables[0], _needed(dataset, [])):
                entries, index = write_tables(
                    self.path, manifest.schema, parts, manifest.num_records, _mark(manifest)
                )
        except BaseException:
            for name in tables:
                remove(temporary_of(self.path / name))
            raise
        for shard in plan.shards:
            if exists(target.place / shard.name):  # otherwise it was moved before a kill
                remove(self.path / shard.name)
                os.replace(target.place / shard.name, self.path / shard.name)
        sync_folder(self.path)
        return _manifest(manifest, plan, Finished(parts), tuple(entries), index, self.path)


def _needed(dataset: PackedFiles, missing: list[int]) -> int:
    """Estimate the bytes that shards and tables take."""
    manifest = dataset.manifest
    tables = manifest.index_size + sum(int(entry.get("size", 0)) for entry in manifest.fields)
    size = sum(manifest.shards[number].size for number in missing)
    return size + size // _MORE + 2 * tables + (1 << 20)  # tables are in parts, too


def _manifest(
    old: Manifest, plan: Plan, finished: Finished, entries: Entries, index: tuple[int, int], folder: Path
) -> Manifest:
    """Return the manifest of the new shards, which have their final names in the folder already."""
    shards = [
        Shard(str(PurePosixPath(new.name, *PurePosixPath(shard.file).parts[1:])), size, records)
        for new, shard, (size, records) in zip(plan.shards, old.shards, finished.sizes, strict=True)
    ]
    options = {name: value for name, value in old.options.items() if name not in ("coefficients", FACTS)}
    form = plan.identity.get("coefficients")
    if form is not None:
        facts = {"note": NOTE, **finished.counts.to_json(), "entries": plan.rows["entries"]}
        options |= {"coefficients": form, FACTS: facts}
    manifest = replace(
        old,
        data_bytes=finished.summary.bytes, shards=tuple(shards), index_size=index[0], index_crc=index[1],
        codecs=finished.summary.codecs, options=options, writer=f"fastload {__version__}", fields=entries,
        index=SECOND_INDEX if _mark(old) else "",
    )  # fmt: skip
    manifest = with_content(manifest, folder)
    same = [old_id for old_id in old.all_ids if old_id not in (manifest.id, manifest.seal)]
    return replace(manifest, same_as=tuple(same[:_MOST_SAME]))


def _begun(folder: OutputFolder, rows: SetRows, options: PackOptions, left: Plan | None) -> Plan:
    """Return the plan of a recode, of which what an earlier one has written stays if its plan was the same.

    Otherwise begin anew, and record which files will be made and which will go.
    """
    work, manifest = folder.work / WORK_NAME, rows.dataset.manifest
    if left is None:
        work.mkdir(parents=True)
    plan = plan_in_place(rows, options, work)
    if left is not None and plan.digest == left.digest:
        return plan
    if left is not None:
        _discard(folder, manifest)
        return _begun(folder, rows, options, None)
    folder.announce([*(shard.name for shard in plan.shards), *_tables(manifest), *sorted(files_of(manifest))])
    plan.write(work)
    return plan


def _settled(folder: OutputFolder, observer: Observer, num_proc: int | None) -> Plan | None:
    """Finish what an earlier recode left after its switch; return its plan if it stopped before that, so that
    the same recode can resume."""
    try:
        plan = Plan.read(folder.work / WORK_NAME) if exists(folder.work) else None
    except PackError:
        raise PackError(
            f"{folder.work} has a recode that cannot be resumed: its plan is damaged, or from another "
            "version of this program. Remove that folder; the set is good."
        ) from None
    manifest = Manifest.read(folder.path)
    source = plan.rows["given"]["set"] if plan is not None else ""
    if plan is not None and manifest.seal == source:
        return plan
    if plan is not None and source in manifest.same_as:
        _finish(folder, plan, manifest, observer, num_proc)
    else:  # it had not begun, or of a set that no longer exists
        tidy_entries(folder.path)
        _discard(folder, manifest)
    return None


def _discard(folder: OutputFolder, manifest: Manifest) -> None:
    """Remove what an abandoned recode has made; the set itself stays."""
    _remove_others(folder, manifest)
    sync_folder(folder.path)
    remove(folder.work)


def _remove_others(folder: OutputFolder, manifest: Manifest) -> None:
    """Remove the files of a recode that are not the set's."""
    for name in sorted(folder.announced() - files_of(manifest)):
        remove(folder.path / name)


def _finish(
    folder: OutputFolder, plan: Plan, manifest: Manifest, observer: Observer, num_proc: int | None
) -> None:
    """Remove the old files after the switch, and make the entry points of the set's JPEGs."""
    _remove_others(folder, manifest)
    spacing = plan.rows["entries"] if manifest.codecs.get(CODECS[JPEG].name, 0) else None
    if spacing is None:
        remove_entries(folder.path)
    sync_folder(folder.path)  # before the plan goes, which alone knows what was removed
    if spacing is not None:
        ensure_entries(folder.path, spacing, num_proc, observer)
    remove(folder.work)
