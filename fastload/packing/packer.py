"""``fastload pack`` itself: scan, plan, write and publish, joined; the steps live in other modules."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists, is_dir, is_file
from fastload.machine.sizes import counted
from fastload.packing.annotations.find import annotated_sources
from fastload.packing.entries import ensure_entries
from fastload.packing.facts import EntryFacts, entry_facts
from fastload.packing.files import folder_lock, make_folder, remove, require_space
from fastload.packing.options import PackOptions
from fastload.packing.output import OutputFolder, check_complete, remove_scans
from fastload.packing.plan import (
    PLAN_NAME,
    WORK_NAME,
    listed,
    make_plan,
    packing_work,
    planned_bytes,
    resume_plan,
)
from fastload.packing.progress import Observer
from fastload.packing.publish import PackResult, publish_dataset
from fastload.packing.sample_rows import AnnotatedSource
from fastload.packing.sample_shards import pack_given
from fastload.packing.source import Source, open_sources
from fastload.packing.table_files import table_sets, table_suffix
from fastload.packing.table_samples import Table, has_fields, of_same_classes, open_table, told_by
from fastload.packing.work import BadFiles, Job, write_shards
from fastload.remote.location import is_url
from fastload.sample.schema import Schema
from fastload.shard.dataset import PackedFiles

_PROCESS_BYTES = 512 << 20  # packed in about the time that a process takes to start and import


@dataclass(frozen=True)
class DryRun:
    """What a pack would do."""

    output: Path
    records: int
    bytes: int  # of the files that are packed
    classes: int
    shards: int  # approximate
    needed_bytes: int
    free_bytes: int
    schema: Schema
    ignored: Mapping[str, Any] = field(default_factory=dict)  # what the source has and is not packed
    notes: tuple[str, ...] = ()  # what became of a table's columns


def pack(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> list[PackResult]:
    """Pack images into ``output``; a parent of train/ and val/ becomes one packed dataset per split.

    After an interruption at any moment, the same call resumes, and the result is the same byte for
    byte. With several processes, call it under ``if __name__ == "__main__":``, like any program that
    spawns processes.

    Raises:
        PackError: files that cannot be packed, a changed source, a full disk, another pack at work.
    """
    options, observer = options or PackOptions(), observer or Observer()
    if is_url(output):
        from fastload.packing.store_target import pack_into_store

        return pack_into_store(source, str(output), options, observer)
    known = known_samples(source, options)
    if known:
        if not all(isinstance(samples, Table) for _, samples in known):
            refuse_nesting(source, Path(output).absolute())
        return [
            replace(
                pack_given(samples, Path(output) / split, samples.schema, options, observer),
                notes=_notes(samples),
            )
            for split, samples in known
        ]
    sources = open_sources(source, options)
    folder = Path(output).absolute()
    refuse_nesting(source, folder)
    results = []
    for part in sources:
        target = folder / part.split if part.split else folder
        try:
            make_folder(target)
            with folder_lock(target):
                results.append(_pack_one(part, target, options, observer))
        except OSError as error:
            if isinstance(error, FastloadError):
                raise
            raise PackError(f"cannot pack into {target}: {error}.") from error
    return results


def _notes(samples: AnnotatedSource) -> tuple[str, ...]:
    return samples.notes if isinstance(samples, Table) else ()


def known_samples(source: str | os.PathLike[str], options: PackOptions) -> list[tuple[str, AnnotatedSource]]:
    """Return split and samples of annotated pictures, and of each table with more than paths and labels or
    with columns that the options name; nothing for anything else."""
    sources = annotated_sources(source, options)
    return sources if sources else [*_tables(source, options)]


def _tables(source: str | os.PathLike[str], options: PackOptions) -> list[tuple[str, Table]]:
    named = told_by(dict(options.fields))
    sets = table_sets(source, options.storage_options)
    if sets:
        opened = [open_table(rows, named, options.limit, options.schema) for _, rows in sets]
        return list(zip((split for split, _ in sets), of_same_classes(opened), strict=True))
    path = Path(source).absolute()
    if is_url(source) and table_suffix(path):
        raise PackError(f"{source} is a table, which must be on this machine; folders may be in a store.")
    if is_url(source) or not is_file(path):
        if options.fields or options.schema is not None:
            raise PackError(
                f"{path} is not a table; only a table's columns have kinds. A folder has image and label."
            )
        return []
    if not options.fields and options.schema is None and not has_fields(path):
        return []
    return [("", open_table(path, named, options.limit, options.schema))]


def dry_run(
    source: str | os.PathLike[str], output: str | os.PathLike[str], options: PackOptions | None = None
) -> list[DryRun]:
    """Return what :func:`pack` would do, without writing to ``output``."""
    options = options or PackOptions()
    if is_url(output):
        raise PackError(f"a dry run takes a folder of this machine as output. Found: {output}.")
    known = known_samples(source, options)
    if known:
        return [_dry_samples(samples, Path(output).absolute() / split, options) for split, samples in known]
    plans = []
    for part in open_sources(source, options):
        target = Path(output).absolute() / part.split
        with tempfile.TemporaryDirectory(prefix="fastload-") as work:
            plan = make_plan(part, options, target.name, Path(work))
            needed = planned_bytes(plan, Path(work))
        totals, classes = plan.totals, len(plan.classes)
        counts = (totals.files, totals.bytes, classes, len(plan.shards), needed, _free(target))
        plans.append(DryRun(target, *counts, Schema.plain(plan.classes), plan.ignored))
    return plans


def _free(target: Path) -> int:
    """Return how many bytes may be written where a folder is or would be."""
    existing = next(folder for folder in (target, *target.parents) if exists(folder))
    status = os.statvfs(existing)
    return status.f_bavail * status.f_frsize


def _dry_samples(samples: AnnotatedSource, target: Path, options: PackOptions) -> DryRun:
    size, schema = samples.needed_bytes(), samples.schema
    label = schema.label_field
    classes = len(label.kind.classes) if label is not None else 0  # type: ignore[attr-defined]
    shards = -(-size // options.shard_size)
    counts = (len(samples), size, classes, shards, size + (1 << 20), _free(target))
    return DryRun(target, *counts, schema, notes=_notes(samples))


def refuse_nesting(given: str | os.PathLike[str], output: Path) -> None:
    """Raise PackError if a pack would find its own output among its images."""
    source = Path(given).absolute()
    if (
        not is_url(given)
        and is_dir(source)
        and (output.resolve() == source.resolve() or source.resolve() in output.resolve().parents)
    ):
        raise PackError(f"the output {output} lies inside the source {source}; choose a folder outside it.")


def _pack_one(source: Source, output: Path, options: PackOptions, observer: Observer) -> PackResult:
    began = time.monotonic()
    folder = OutputFolder(output)
    remove_scans(output)
    if options.restart:  # other files in the folder stay
        folder.discard()
    state = "empty" if options.restart else folder.state()
    if state == "foreign":
        raise folder.refusal()
    if state == "complete":
        manifest = check_complete(source, output, options, lambda files: observer.scanning(output, files))
        folder.tidy()
        packed = time.monotonic()
        facts = _entries(output, options, observer)
        return PackResult(output, manifest, facts, None, packed - began, time.monotonic() - packed, 0)
    folder.refuse_others(PLAN_NAME)
    scanning = functools.partial(observer.scanning, output)
    plan = resume_plan(source, options, output.name, folder.work, scanning)
    written = _write(Job(output, source.root, options, plan, source.store), observer)
    manifest, summary = publish_dataset(output, plan)
    remove(folder.work)
    packed = time.monotonic()
    facts = _entries(output, options, observer)
    return PackResult(output, manifest, facts, summary, packed - began, time.monotonic() - packed, written)


def _entries(output: Path, options: PackOptions, observer: Observer) -> EntryFacts:
    """Make the entry points that ``options`` ask for, of a dataset that is complete without them."""
    if options.entries is not None:
        ensure_entries(output, options.entries, options.num_proc, observer)
    return entry_facts(PackedFiles(output))


def _write(job: Job, observer: Observer) -> int:
    """Write the missing shards; return their source bytes."""
    shards = job.plan.shards
    finished = [number for number in range(len(shards)) if job.is_finished(number)]
    missing = sorted(set(range(len(shards))) - set(finished))
    done = frozenset(shards[number].name for number in finished)
    require_space(job.output, planned_bytes(job.plan, job.output / WORK_NAME, done))
    work = packing_work(job.plan, job.output, range(len(shards)), missing)
    observer.started(work)
    processes = job.options.num_proc or fitting_processes(sum(shards[number].bytes for number in missing))
    # Each process knows how many others there are. One without a shard would leave its cores unused.
    processes = max(1, min(processes, len(missing)))
    job = replace(job, options=replace(job.options, num_proc=processes))
    try:
        write_shards(job, missing, processes, observer.advanced)
    except BadFiles as error:
        raise PackError(bad_files(error.failures)) from None
    return job.plan.totals.bytes - work.done_size


def fitting_processes(size: int) -> int:
    """Return one process per CPU, but only as many as have more work than their start takes."""
    return max(1, min(len(os.sched_getaffinity(0)), size // _PROCESS_BYTES))


def bad_files(failures: list[tuple[str, str]]) -> str:
    """Return the message for files that cannot be packed, given as (key, reason)."""
    return (
        f"{counted(len(failures), 'file')} cannot be packed:\n{listed(failures)}\n"
        "Mend or remove them, or leave them out with --on-error skip (finished shards are kept)."
    )
