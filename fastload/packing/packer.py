"""``fastload pack``: joins scanning, planning, writing and publishing; computes nothing itself."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fastload.errors import FastloadError, PackError
from fastload.machine.sizes import counted
from fastload.packing.complete import check_complete, remove_scans
from fastload.packing.entries import EntriesObserver, ensure_entries
from fastload.packing.entry_facts import EntryFacts, entry_facts
from fastload.packing.files import remove, require_space
from fastload.packing.lock import folder_lock
from fastload.packing.options import PackOptions
from fastload.packing.output import OutputFolder
from fastload.packing.plan import (
    MAX_LISTED,
    WORK_NAME,
    Plan,
    make_plan,
    planned_bytes,
    resume_plan,
)
from fastload.packing.pool import write_shards
from fastload.packing.publish import SKIPPED_NAME, publish_dataset
from fastload.packing.shard_job import BadFiles, Job
from fastload.packing.source import Source, open_sources
from fastload.packing.summary import Summary
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest

__all__ = ["DryRun", "Observer", "PackResult", "dry_run", "pack"]

_PROCESS_BYTES = 512 << 20  # packed in about the time in which a process starts and imports


class Observer(EntriesObserver):
    """Hears what a pack does; the command line's progress bar is one."""

    def scanning(self, output: Path, files: int) -> None:
        """So many files have been found."""

    def started(self, output: Path, plan: Plan, files: int, size: int) -> None:
        """Writing begins; ``files`` and ``size`` (bytes) of the plan were already done before."""

    def advanced(self, files: int, size: int) -> None:
        """So many more files (or samples) and bytes are written."""

    def samples_started(self, output: Path, done: int, count: int | None) -> None:
        """Writing samples begins; ``done`` of ``count`` (None: nobody knows) were written before."""

    def begins_anew(self, output: Path) -> None:
        """A pack that was interrupted is thrown away: its samples cannot be asked by position."""


@dataclass(frozen=True)
class PackResult:
    """One packed dataset."""

    output: Path
    manifest: Manifest
    entries: EntryFacts
    summary: Summary | None  # None: it was complete before
    seconds: float  # without making entry points
    entries_seconds: float
    written_bytes: int  # source bytes packed by this run

    @property
    def was_complete(self) -> bool:
        """The same pack was already there."""
        return self.summary is None

    def skip_reasons(self) -> list[tuple[str, int]]:
        """Why files were skipped, and how many for each reason; commonest first."""
        if not self.manifest.skipped:
            return []
        with open(self.output / SKIPPED_NAME, encoding="utf-8") as lines:
            return Counter(json.loads(line)["reason"] for line in lines).most_common()


@dataclass(frozen=True)
class DryRun:
    """What a pack would do."""

    output: Path
    plan: Plan
    needed_bytes: int
    free_bytes: int


def pack(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> list[PackResult]:
    """Pack images into ``output``; a parent of train/ and val/ becomes a packed dataset each.

    Interrupted at any moment, the same call goes on where it was, and the result is the same byte for
    byte. With several processes, call it under ``if __name__ == "__main__":`` as any program that
    spawns processes must.

    Raises:
        PackError: files that cannot be packed, a changed source, a full disk, another pack at work.
    """
    options, observer = options or PackOptions(), observer or Observer()
    sources = open_sources(source)
    folder = Path(output).absolute()
    _refuse_nesting(Path(source).absolute(), folder)
    results = []
    for part in sources:
        target = folder / part.split if part.split else folder
        try:
            target.mkdir(parents=True, exist_ok=True)
            with folder_lock(target):
                results.append(_pack_one(part, target, options, observer))
        except OSError as error:
            if isinstance(error, FastloadError):
                raise
            raise PackError(f"cannot pack into {target}: {error}.") from error
    return results


def dry_run(
    source: str | os.PathLike[str], output: str | os.PathLike[str], options: PackOptions | None = None
) -> list[DryRun]:
    """What :func:`pack` would do; nothing is written to ``output``."""
    options = options or PackOptions()
    plans = []
    for part in open_sources(source):
        target = Path(output).absolute() / part.split
        existing = next(folder for folder in (target, *target.parents) if folder.exists())
        status = os.statvfs(existing)
        with tempfile.TemporaryDirectory(prefix="fastload-") as work:
            plan = make_plan(part, options, target.name, Path(work))
            needed = planned_bytes(plan, Path(work))
        plans.append(DryRun(target, plan, needed, status.f_bavail * status.f_frsize))
    return plans


def _refuse_nesting(source: Path, output: Path) -> None:
    if source.is_dir() and (
        output.resolve() == source.resolve() or source.resolve() in output.resolve().parents
    ):
        raise PackError(f"the output {output} lies inside the source {source}; choose a folder outside it.")


def _pack_one(source: Source, output: Path, options: PackOptions, observer: Observer) -> PackResult:
    began = time.monotonic()
    folder = OutputFolder(output)
    remove_scans(output)
    if options.restart:
        folder.discard()
    state = folder.state()
    if state == "foreign":
        raise folder.refusal()
    if state == "complete":
        manifest = check_complete(source, output, options, lambda files: observer.scanning(output, files))
        remove(folder.work)
        packed = time.monotonic()
        facts = _entries(output, options, observer)
        return PackResult(output, manifest, facts, None, packed - began, time.monotonic() - packed, 0)
    found = functools.partial(observer.scanning, output)
    plan = resume_plan(source, options, output.name, folder.work, found)
    written = _write(Job(output, source.root, options, plan), observer)
    manifest, summary = publish_dataset(output, plan)
    remove(folder.work)
    packed = time.monotonic()
    facts = _entries(output, options, observer)
    return PackResult(output, manifest, facts, summary, packed - began, time.monotonic() - packed, written)


def _entries(output: Path, options: PackOptions, observer: Observer) -> EntryFacts:
    """Entry points as ``options`` want them, of a dataset that is complete without them."""
    if options.entries is not None:
        ensure_entries(output, options.entries, options.num_proc, observer)
    return entry_facts(PackedFiles(output))


def _write(job: Job, observer: Observer) -> int:
    """Write the shards that are missing; returns their source bytes."""
    shards = job.plan.shards
    finished = [number for number in range(len(shards)) if job.is_finished(number)]
    missing = sorted(set(range(len(shards))) - set(finished))
    done = frozenset(shards[number].name for number in finished)
    require_space(job.output, planned_bytes(job.plan, job.output / WORK_NAME, done))
    files = sum(shards[number].stop - shards[number].start for number in finished)
    size = sum(shards[number].bytes for number in finished)
    observer.started(job.output, job.plan, files, size)
    processes = job.options.num_proc or _fitting_processes(sum(shards[number].bytes for number in missing))
    try:
        write_shards(job, missing, processes, observer.advanced)
    except BadFiles as error:
        raise PackError(_bad_files(error.failures)) from None
    return job.plan.totals.bytes - size


def _fitting_processes(size: int) -> int:
    """One process a CPU, but only as many as have work for longer than they take to start."""
    return max(1, min(len(os.sched_getaffinity(0)), size // _PROCESS_BYTES))


def _bad_files(failures: list[tuple[str, str]]) -> str:
    lines = [f"  {key}: {reason}" for key, reason in failures[:MAX_LISTED]]
    if len(failures) > MAX_LISTED:
        lines.append(f"  ... and {len(failures) - MAX_LISTED} more")
    return (
        f"{counted(len(failures), 'file')} cannot be packed:\n" + "\n".join(lines) + "\n"
        "Mend or remove them, or leave them out with --on-error skip (finished shards are kept)."
    )
