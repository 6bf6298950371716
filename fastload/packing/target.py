"""Where a pack goes: a folder that it holds alone, or one that several packs share."""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir
from fastload.packing.compare import SCAN, check_complete, check_options, check_plan, refuse_grown, resumed
from fastload.packing.cut import PLAN_NAME, WORK_NAME, Plan, plan_of
from fastload.packing.entries import Made, ensure_entries, entries_of, remove_entries
from fastload.packing.facts import Summary, entry_facts
from fastload.packing.files import (
    LOCK_NAME,
    PLAN_LOCK_NAME,
    claim,
    folder_lock,
    holder_of,
    make_folder,
    printable,
    publish,
    publishing,
    remove,
    share_lock,
    sync_folder,
    temporary_of,
    unreadable,
)
from fastload.packing.listing import Listing
from fastload.packing.options import PackOptions
from fastload.packing.progress import Observer, Place
from fastload.packing.publish import SKIPPED_NAME, Finished, PackResult
from fastload.packing.rows import CARRIED, Rows
from fastload.packing.shard_writer import ShardPart
from fastload.packing.shares import read_piece, write_piece
from fastload.packing.spread import Claim, NoClaim
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import format_of
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, MANIFEST_NAME, SECOND_INDEX, Manifest

# ---- The folder that a pack goes into ---------------------------------------------------------------

State = Literal["empty", "unfinished", "complete", "foreign"]
RUN_NAME = "samples.json"  # in the work folder: what a pack of samples was asked to do
RECODE_NAME = ".fastload-recode"  # the work folder of a set that is recoded in place
APPEND_NAME = ".fastload-append"  # the work folder of a set that grows, or from which samples are dropped
_ANNOUNCED = "names.json"
_WRITTEN = (MANIFEST_NAME, INDEX_NAME, SKIPPED_NAME)
_TABLE = re.compile(r"(\.tmp-)?(field-\d\d|index|entries|dropped|runs)(-2|-g\d+)?\.fli")


def _carried(options: Mapping[str, Any]) -> set[str]:
    """Return the names of folders that a set has from its source."""
    return {name for name in options.get(CARRIED) or () if "/" not in name}


class OutputFolder:
    """A folder for one packed dataset; whoever changes it holds its lock (``folder_lock``).

    Args:
        path: an existing folder.
        work: the name of the work folder.
    """

    def __init__(self, path: Path, work: str = WORK_NAME) -> None:
        self.path = path
        self.work = path / work

    @property
    def recoding(self) -> OutputFolder:
        """The same folder, with the work folder of recoding."""
        return OutputFolder(self.path, RECODE_NAME)

    def state(self) -> State:
        """Return ``complete`` if it has a manifest, ``unfinished`` if a pack or an index was begun here,
        ``foreign`` if it has neither, but somebody else's files; otherwise ``empty``."""
        if exists(self.path / MANIFEST_NAME):
            return "complete"
        if exists(self.work):
            return "unfinished"
        return "foreign" if self._strangers() else "empty"

    def refuse_others(self, mine: str | None) -> None:
        """Raise PackError if an unfinished pack of another kind is here.

        Args:
            mine: the file in the work folder that records a pack of this kind; None: an index, which has
                none.
        """
        for name in {PLAN_NAME, RUN_NAME} - {mine}:
            if exists(self.work / name):
                what = "files" if name == PLAN_NAME else "samples"
                raise PackError(
                    f"{self.path} holds an unfinished pack of {what}. Finish it, throw it away with "
                    "'fastload pack --restart', or choose another folder."
                )

    def refusal(self) -> PackError:
        """Return the error about a foreign folder."""
        stranger = (self._strangers() or ["nothing"])[0]
        return PackError(
            f"{self.path} is not empty and holds no pack (found {stranger!r}); choose another folder."
        )

    def announce(self, names: Sequence[str]) -> None:
        """Record which files are about to get their final names, so that :meth:`discard` knows them."""
        path = self.work / _ANNOUNCED
        with publishing(path) as temporary:
            temporary.write_text(json.dumps(names), encoding="utf-8")
        sync_folder(self.path)  # the work folder's own name

    def discard(self) -> None:
        """Remove what a pack made here, and nothing else; the manifest first: no half passes for a whole.

        Raises:
            PackError: the set has changed since it was packed, and no pack makes it again.
        """
        if exists(self.path / MANIFEST_NAME):
            refuse_grown(Manifest.read(self.path), self.path)
        names = self.made()
        if exists(self.path / MANIFEST_NAME):
            remove(self.path / MANIFEST_NAME)
            sync_folder(self.path)
        for name in sorted(names - {"..", "."}):
            remove(self.path / name)
        remove_entries(self.path)
        remove(self.recoding.work)
        remove(self.path / APPEND_NAME)
        remove(self.work)

    def tidy(self) -> None:
        """Remove half-written files beside a complete dataset."""
        for name in _WRITTEN:
            remove(temporary_of(self.path / name))
        remove(self.work)

    def remove_scans(self) -> None:
        """Remove what a killed comparison with the source left."""
        for name in os.listdir(self.path):
            if name.startswith(SCAN):
                remove(self.path / name)

    def _strangers(self) -> list[str]:
        ours = {LOCK_NAME, PLAN_LOCK_NAME, RECODE_NAME, APPEND_NAME, *_WRITTEN}
        ours |= {SECOND_INDEX, ENTRIES_NAME}  # left by a killed index
        return sorted(n for n in os.listdir(self.path) if n not in ours and not n.startswith(".tmp-"))

    def made(self) -> set[str]:
        """Return the names that a pack makes in any folder, and those that one has made or makes here."""
        names = {INDEX_NAME, SKIPPED_NAME} | {temporary_of(self.path / name).name for name in _WRITTEN}
        names |= {name for name in os.listdir(self.path) if _TABLE.fullmatch(name)}
        plan = Plan.read(self.work) if exists(self.work) else None
        if plan is not None:
            names |= {shard.name for shard in plan.shards} | {f".tmp-{shard.name}" for shard in plan.shards}
        names |= _carried(plan.rows) if plan is not None else set()
        if exists(self.path / MANIFEST_NAME):
            names |= _carried(Manifest.read(self.path).options)
            names |= {
                Path(shard.file).parts[0]
                for shard in Manifest.read(self.path).shards
                if not (Path(shard.file).is_absolute() or "://" in shard.file)
            }
        return names | self.announced() | self.recoding.announced()

    def announced(self) -> set[str]:
        """Return what :meth:`announce` recorded."""
        try:
            names = json.loads((self.work / _ANNOUNCED).read_text(encoding="utf-8"))
            return {str(name) for name in names if "/" not in name}
        except FileNotFoundError:
            return set()
        except (ValueError, TypeError) as error:
            whole = self.work if exists(self.path / MANIFEST_NAME) else self.path
            raise PackError(f"{self.work / _ANNOUNCED} cannot be used ({error}); remove {whole}.") from None


# ---- Targets ----------------------------------------------------------------------------------------

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0  # seconds between two looks at what another process does


class Target(Protocol):
    """A dataset's place while it is packed. It pickles."""

    is_shared: bool  # whether other packs may be at work there, so that publishing wants it alone

    @property
    def place(self) -> Place:
        """Where the dataset will be."""

    @property
    def stage(self) -> Path:
        """The folder of this machine where shards are written; its work folder has plan and listing."""

    def discard(self) -> None:
        """Throw away what a pack made here; nobody else may be at work."""

    def opened(
        self, rows: Rows, options: PackOptions, observer: Observer
    ) -> AbstractContextManager[Plan | Manifest]:
        """Hold the place, and yield the plan, made if there is none, or the manifest of a complete dataset.

        Raises:
            PackError: the place is not a pack's, it has another plan, or another pack holds it alone.
        """

    def missing(self, plan: Plan) -> list[int]:
        """Return the shards that are not finished."""

    def is_finished(self, plan: Plan, number: int) -> bool:
        """Whether a shard exists, with its part of the index."""

    def claim(self, plan: Plan, number: int) -> Claim | None:
        """Claim the right to write a shard; None: another process writes it, or has just done so."""

    def prepare(self, plan: Plan, number: int, rows: Rows) -> None:
        """Make ready to write a shard, whose listing must be on this machine then.

        Raises:
            PackError: the source has changed, or another pack has published meanwhile.
        """

    def commit(self, plan: Plan, number: int, part: ShardPart, options: PackOptions) -> None:
        """Make a shard of the stage durable, under its name; then its part: now it counts as finished."""

    def awaited(self, plan: Plan, number: int) -> Claim | None:
        """Claim a shard, after another process that is writing it; None: it is finished."""

    def elsewhere(self) -> AbstractContextManager[Target]:
        """Yield the target as a worker on another machine uses it."""

    def alone(self) -> AbstractContextManager[None]:
        """Hold the place for publishing.

        Raises:
            PackError: a pack is still at work.
        """

    def is_complete(self) -> bool:
        """Whether the dataset is published."""

    def planned(self, rows: Rows, options: PackOptions) -> Plan | None:
        """Return the existing plan, to publish it; None: it is published, and nothing of the plan is left.

        Raises:
            PackError: there is no plan, or another one.
        """

    def publish(self, plan: Plan | Manifest | None, options: PackOptions, observer: Observer) -> PackResult:
        """Make the dataset of shards that are all finished; a complete one stays unchanged."""


def part_path(stage: Path, shard: str) -> Path:
    """Return where a finished shard's part of the index waits for the manifest."""
    return stage / WORK_NAME / f"{shard}.part"


def waited(done: Callable[[], bool]) -> None:
    """Wait until ``done`` returns True, asking less and less often."""
    pause = _FIRST_WAIT
    while not done():
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_WAIT)


def commit_here(
    stage: Path, plan: Plan, number: int, part: ShardPart, options: PackOptions, pieces: bool
) -> None:
    """Commit a shard in a folder of this machine.

    Args:
        pieces: whether its entry points are made now, which would take one machine too long at the end.
    """
    final = stage / plan.shards[number].name
    publish(temporary_of(final), final)
    path = part_path(stage, final.name)
    if pieces and options.entries is not None and len(part.records):
        data = format_of(options.format).data_file(final)
        write_piece(path, part, data, options.entries, plan.schema.shown)
    part.write(path)


def no_plan(place: Place) -> PackError:
    """Return the error about a place without a plan."""
    return PackError(
        f"{place} holds no pack that could be published; 'fastload pack SOURCE OUTPUT --shards ...' makes "
        "a plan and packs its shards."
    )


@dataclass(frozen=True)
class Folder:
    """A folder that this pack holds alone."""

    place: Path
    is_shared = False

    @property
    def stage(self) -> Path:
        return self.place

    def discard(self) -> None:
        make_folder(self.place)
        with folder_lock(self.place):
            OutputFolder(self.place).discard()

    @contextmanager
    def opened(self, rows: Rows, options: PackOptions, observer: Observer) -> Iterator[Plan | Manifest]:
        make_folder(self.place)
        with folder_lock(self.place):
            folder = OutputFolder(self.place)
            scanning = functools.partial(observer.scanning, self.place)
            folder.remove_scans()
            if options.restart:  # other files in the folder stay
                folder.discard()
            state = "empty" if options.restart else folder.state()
            if state == "foreign":
                raise folder.refusal()
            if state == "complete":
                manifest = check_complete(rows, self.place, options, scanning)
                folder.tidy()
                yield manifest
                return
            folder.refuse_others(PLAN_NAME)
            yield planned_in(folder.work, rows, options, scanning)

    def missing(self, plan: Plan) -> list[int]:
        return [number for number in range(len(plan.shards)) if not self.is_finished(plan, number)]

    def is_finished(self, plan: Plan, number: int) -> bool:
        final = self.place / plan.shards[number].name
        data_file = format_of(str(plan.identity["format"])).data_file(final)
        return ShardPart.finished(part_path(self.place, final.name), data_file)

    def claim(self, plan: Plan, number: int) -> Claim | None:
        return NoClaim()

    def awaited(self, plan: Plan, number: int) -> Claim | None:
        return None if self.is_finished(plan, number) else self.claim(plan, number)

    def prepare(self, plan: Plan, number: int, rows: Rows) -> None:
        """Do nothing, as the source was compared with the plan when the pack began."""

    def commit(self, plan: Plan, number: int, part: ShardPart, options: PackOptions) -> None:
        commit_here(self.place, plan, number, part, options, self.is_shared)

    @contextmanager
    def elsewhere(self) -> Iterator[Target]:
        yield self

    @contextmanager
    def alone(self) -> Iterator[None]:
        if not is_dir(self.place):
            raise no_plan(self.place)
        with folder_lock(self.place):
            yield

    def is_complete(self) -> bool:
        return exists(self.place / MANIFEST_NAME)

    def planned(self, rows: Rows, options: PackOptions) -> Plan | None:
        folder = OutputFolder(self.place)
        state = folder.state()
        if state == "foreign":
            raise folder.refusal()
        plan = Plan.read(folder.work) if exists(folder.work) else None
        if state == "complete":
            check_options(Manifest.read(self.place).options, options, self.place)
            return plan
        folder.refuse_others(PLAN_NAME)
        if plan is None:
            raise no_plan(self.place)
        return check_plan(plan, rows, self.place, options)

    def publish(self, plan: Plan | Manifest | None, options: PackOptions, observer: Observer) -> PackResult:
        began, summary, folder = time.monotonic(), None, OutputFolder(self.place)
        if self.is_complete():
            manifest = Manifest.read(self.place)
        else:
            assert isinstance(plan, Plan)
            manifest, summary = publish_planned(self.place, plan)
            if not self.is_shared:
                remove(folder.work)
        packed = time.monotonic()
        if options.entries is not None:
            made = None
            if self.is_shared and isinstance(plan, Plan):
                made = functools.partial(self._made, plan, options, observer)
            ensure_entries(self.place, options.entries, options.num_proc, observer, made)
        if self.is_shared:
            folder.tidy()
            remove(self.place / PLAN_LOCK_NAME)
        facts = entry_facts(PackedFiles(self.place))
        return PackResult(self.place, manifest, facts, summary, packed - began, time.monotonic() - packed, 0)

    def _made(
        self, plan: Plan, options: PackOptions, observer: Observer, dataset: PackedFiles, spacing: int
    ) -> Iterator[Made]:
        """Yield the shards' entry points as they were packed; make those that lack this spacing."""
        threads, first = options.num_proc or len(os.sched_getaffinity(0)), 0
        for shard in plan.shards:
            path = part_path(dataset.folder, shard.name)
            part = ShardPart.read(path)
            samples = range(first, first + len(part.records))
            first = samples.stop
            piece = read_piece(path, part, spacing) if samples else None
            if piece is None:
                yield from entries_of(dataset.reader, samples, spacing, threads, observer.advanced)
            else:
                yield piece
                observer.advanced(len(samples))


def planned_in(work: Path, rows: Rows, options: PackOptions, scanning: Callable[[int], None]) -> Plan:
    """Return the plan of a work folder: a new one, or that of an interrupted pack of the same source."""
    old = Plan.read(work) if exists(work) else None
    if old is not None:
        return resumed(rows, options, old, work.parent.name, work, scanning)
    remove(work)
    work.mkdir()
    plan = plan_of(rows, options, work.parent.name, work, scanning)
    plan.write(work)
    return plan


def publish_planned(stage: Path, plan: Plan) -> tuple[Manifest, Summary]:
    """Make a dataset of a plan's shards in a folder of this machine. Shards without samples are removed."""
    names = [shard.name for shard in plan.shards]
    finished = Finished([part_path(stage, name) for name in names], plan.problems)
    if "given" in plan.rows:
        finished.require_samples()
    kept = [names[number] for number in finished.kept]
    options = {**plan.identity, **plan.rows}
    for name in set(names) - set(kept):
        remove(stage / name)
    return finished.publish(stage, kept, plan.schema, options, plan.ignored), finished.summary


@dataclass(frozen=True)
class SharedFolder(Folder):
    """A folder whose shards several packs claim one by one, also of other machines that share it."""

    is_shared = True

    @contextmanager
    def opened(self, rows: Rows, options: PackOptions, observer: Observer) -> Iterator[Plan | Manifest]:
        make_folder(self.place)
        folder = OutputFolder(self.place)
        if folder.state() == "complete":  # checked first, so that nothing is left beside a finished dataset
            yield self._complete(options)
            return
        with share_lock(self.place):
            state = folder.state()
            if state == "foreign":
                raise folder.refusal()
            if state == "complete":
                yield self._complete(options)
                return
            folder.refuse_others(PLAN_NAME)
            plan = Plan.read(folder.work) or self._first(rows, options, observer)
            yield check_plan(plan, rows, self.place, options)

    def _complete(self, options: PackOptions) -> Manifest:
        manifest = Manifest.read(self.place)
        check_options(manifest.options, options, self.place)
        return manifest

    def _first(self, rows: Rows, options: PackOptions, observer: Observer) -> Plan:
        """Make the plan, or wait for the one that another pack is making."""
        lock, work = self.place / PLAN_LOCK_NAME, OutputFolder(self.place).work
        held = claim(lock)
        if held is None:
            observer.said(self.place, f"{holder_of(lock)} makes the plan; waiting for it")

            def free() -> bool:
                nonlocal held
                held = claim(lock)
                return held is not None

            waited(free)
            assert held is not None
        try:
            scanning = functools.partial(observer.scanning, self.place)
            return Plan.read(work) or planned_in(work, rows, options, scanning)
        finally:
            held.close()

    def is_finished(self, plan: Plan, number: int) -> bool:
        return self.state_of(plan, number) == "whole"

    def state_of(self, plan: Plan, number: int) -> Literal["whole", "missing", "of another plan"]:
        """Return whether a shard exists as the plan wants it."""
        final = self.place / plan.shards[number].name
        path = part_path(self.place, final.name)
        if not exists(path):
            return "missing"
        part = ShardPart.read(path)
        if part.plan != plan.digest:
            return "of another plan"
        if not len(part.records):  # all of its rows were skipped, so publishing removes it
            return "whole"
        try:
            size = os.stat(format_of(str(plan.identity["format"])).data_file(final)).st_size
        except FileNotFoundError:
            return "missing"
        return "whole" if size == part.shard_bytes else "missing"

    def claim(self, plan: Plan, number: int) -> Claim | None:
        held = claim(self.claim_path(plan, number))
        if held is None:
            return None
        try:
            finished = self.is_finished(plan, number)
        except BaseException:
            held.close()
            raise
        if finished:
            held.close()
            return None
        return held

    def claim_path(self, plan: Plan, number: int) -> Path:
        """Return the file that a shard's writer locks."""
        return part_path(self.place, plan.shards[number].name).with_suffix(".lock")

    def awaited(self, plan: Plan, number: int) -> Claim | None:
        held: list[Claim] = []

        def settled() -> bool:
            claimed = self.claim(plan, number)
            held.extend([claimed] if claimed is not None else [])
            return claimed is not None or self.is_finished(plan, number)

        waited(settled)
        return held[0] if held else None

    def prepare(self, plan: Plan, number: int, rows: Rows) -> None:
        """Raise PackError if a file of the shard differs from the plan's."""
        if rows.files is not None:  # fetched files are compared when they arrive
            return
        shard = plan.shards[number]
        times = {path.stat().st_mtime_ns for path in rows.containers}
        for row in Listing(self.place / WORK_NAME).rows(shard.start, shard.stop):
            names = row.files.split(b"\0") if row.files and rows.lists_paths else []
            if times and not names and row.mtime_ns not in times:
                raise PackError(
                    f"the source has changed since this pack of {self.place} was planned: a file of "
                    f"{rows.containers[0].parent} has another time. --plan-only --restart throws the "
                    "unfinished pack away and plans anew."
                )
            size, newest, words = 0, 0, ""
            for name in names:
                place = os.path.join(rows.root, name)
                try:
                    status = os.stat(place)
                    size, newest = size + status.st_size, max(newest, status.st_mtime_ns)
                except (FileNotFoundError, NotADirectoryError):
                    words = words or "is not there"
                except OSError as error:
                    raise unreadable(place, error) from error
            if names and (size, newest) != (row.size, row.mtime_ns):
                raise PackError(
                    f"the source has changed since this pack of {self.place} was planned: "
                    f"{printable(names[0])} had {row.size} bytes, and "
                    f"{words or f'has {size}, or another time'}. --plan-only --restart throws the unfinished "
                    "pack away and plans anew."
                )
