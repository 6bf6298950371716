"""A pack's folder in an object store, shared by whoever packs into it."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastload._native import _C
from fastload.errors import ObjectMissing, PackError
from fastload.machine.paths import exists, write_at
from fastload.machine.temporary import TemporaryFolder
from fastload.packing.compare import check_options, check_plan, refuse_grown
from fastload.packing.cut import PLAN_NAME, WORK_NAME, Plan, plan_of
from fastload.packing.entries import Made, write_entries
from fastload.packing.facts import Summary, entry_facts
from fastload.packing.files import remove
from fastload.packing.listing import ENTRY
from fastload.packing.options import PackOptions
from fastload.packing.progress import Observer, entries_work
from fastload.packing.publish import SKIPPED_NAME, PackResult
from fastload.packing.rows import CARRIED, Rows
from fastload.packing.shard_writer import ShardPart
from fastload.packing.shares import piece_path, read_piece, write_piece
from fastload.packing.spread import Claim, NoClaim
from fastload.packing.target import RUN_NAME, Target, commit_here, no_plan, part_path, publish_planned
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Store
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import format_of
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, MANIFEST_NAME, MAX_BYTES, Manifest
from fastload.shard.runs import runs_name

# ``.fastload-pack/`` has the plan (``plan.json``, written once: whoever comes second takes the first one's),
# the listing, and a part for each finished shard. There are no locks: two writers of one shard write the
# same bytes.

_LISTING = ("files", "paths")
_THREADS = 16  # parts fetched at a time


def store_target(location: Location, stage: Path, storage_options: Mapping[str, Any] | None) -> StoreTarget:
    """Return the folder at a URL.

    Args:
        location: the dataset's folder.
        stage: a folder of this machine for what is being written.
        storage_options: the store's options.
    """
    options = None if location.scheme == "file" else storage_options
    return StoreTarget(open_store(location, options), location, stage)


@dataclass(frozen=True)
class StoreTarget:
    """One dataset's folder in a store; see :class:`fastload.packing.target.Target`."""

    store: Store
    place: Location
    stage: Path
    is_shared = True

    def key(self, name: str) -> str:
        """Return the path in the store of a file of the dataset."""
        return (self.place / name).path

    def work_key(self, name: str) -> str:
        """Return the path of a file that is removed when the dataset is published."""
        return self.key(f"{WORK_NAME}/{name}")

    def names(self) -> dict[str, int]:
        """Return all files and their bytes, by their names below the folder."""
        prefix = self.place.path + "/"
        return {file.path[len(prefix) :]: file.size for file in self.store.list(prefix)}

    def manifest(self) -> Manifest | None:
        """Return the manifest of a complete dataset; None: it is not complete."""
        if self.store.head(self.key(MANIFEST_NAME)) is None:
            return None
        body = self.store.get(self.key(MANIFEST_NAME), most=MAX_BYTES)
        return Manifest.parse(f"{self.place}/{MANIFEST_NAME}", body)

    def plan(self) -> Plan | None:
        """Copy the existing plan into the stage and return it; None: there is none."""
        if self.store.head(self.work_key(PLAN_NAME)) is None:
            return None
        work = self._work()
        (work / PLAN_NAME).write_bytes(self.store.get(self.work_key(PLAN_NAME)))
        return Plan.read(work)

    def _work(self) -> Path:
        work = self.stage / WORK_NAME
        work.mkdir(parents=True, exist_ok=True)
        return work

    @contextmanager
    def opened(self, rows: Rows, options: PackOptions, observer: Observer) -> Iterator[Plan | Manifest]:
        manifest = self.manifest()
        if manifest is not None:
            check_options(manifest.options, options, self.place)
            yield manifest
            return
        scanning = functools.partial(observer.scanning, self.place)
        plan = self.plan() or self._first(rows, options, scanning)
        yield check_plan(plan, rows, self.place, options)

    def _first(self, rows: Rows, options: PackOptions, found: Callable[[int], None]) -> Plan:
        """Make and write the plan, unless somebody has done so meanwhile: then return theirs.

        Raises:
            PackError: the folder has files that are no pack's.
        """
        self.refuse_strangers()
        work = self._work()
        plan = plan_of(rows, options, self.place.name, work, found)
        for name in _LISTING:
            self.store.upload(self._listing_key(plan, name), work / f"{name}.bin")
        plan.write(work)
        if self.store.put(self.work_key(PLAN_NAME), (work / PLAN_NAME).read_bytes(), if_absent=True):
            return plan
        theirs = self.plan()
        assert theirs is not None
        return theirs

    def refuse_strangers(self) -> None:
        """Raise PackError if the folder has files that are no pack's."""
        strangers = sorted(name for name in self.names() if not name.startswith(f"{WORK_NAME}/"))
        if strangers:
            raise PackError(
                f"{self.place} is not empty and holds no pack (found {strangers[0]!r}); choose another "
                "folder."
            )

    def _listing_key(self, plan: Plan, name: str) -> str:
        """Return the key of this plan's ``files.bin`` or ``paths.bin``: two plans may be made at a time."""
        return self.work_key(f"{name}-{plan.digest}-{plan.totals.times}.bin")

    def part_name(self, plan: Plan, number: int) -> str:
        """Return the name of a shard's part of this plan; it exists once the shard does."""
        return f"{WORK_NAME}/{plan.digest}/{plan.shards[number].name}.part"

    def data_name(self, plan: Plan, number: int) -> str:
        """Return the name below the folder of the file with a shard's records."""
        file = format_of(str(plan.identity["format"])).data_file(Path(plan.shards[number].name))
        return file.as_posix()

    def discard(self) -> None:
        """Remove what a pack made here, the manifest first, and nothing else.

        Raises:
            PackError: the set has changed since it was packed.
        """
        manifest, plan = self.manifest(), self.plan()
        if manifest is not None:
            refuse_grown(manifest, self.place)
        ours = {MANIFEST_NAME, INDEX_NAME, ENTRIES_NAME, SKIPPED_NAME, runs_name()}
        if manifest is not None:
            ours |= {shard.file for shard in manifest.shards}
            ours |= {str(entry["file"]) for entry in manifest.fields if "file" in entry}
            ours |= {*_carried(manifest)}
        ours |= {self.data_name(plan, i) for i in range(len(plan.shards))} if plan is not None else set()
        made = re.compile(rf"field-\d\d\.fli|{re.escape(self.place.name)}-\d{{5}}\.\w+(/\w+\.\w+)?")
        names = self.names()
        if f"{WORK_NAME}/{RUN_NAME}" in names:  # its shards are announced by their pattern alone
            ours |= {name for name in names if made.fullmatch(name)}
        for name in sorted(names, key=lambda name: name != MANIFEST_NAME):
            if name in ours or name.startswith(f"{WORK_NAME}/"):
                self.store.delete(self.key(name))

    # Shards

    def missing(self, plan: Plan) -> list[int]:
        names = self.names()
        return [number for number in range(len(plan.shards)) if self.part_name(plan, number) not in names]

    def is_finished(self, plan: Plan, number: int) -> bool:
        return self.store.head(self.key(self.part_name(plan, number))) is not None

    def claim(self, plan: Plan, number: int) -> Claim | None:
        return None if self.is_finished(plan, number) else NoClaim()

    def awaited(self, plan: Plan, number: int) -> Claim | None:
        return self.claim(plan, number)

    @contextmanager
    def elsewhere(self) -> Iterator[Target]:
        with TemporaryFolder("pack") as folder:
            yield replace(self, stage=folder / self.stage.name)

    def prepare(self, plan: Plan, number: int, rows: Rows) -> None:
        """Fetch the listing of one shard's rows into the work folder, at its offset in the whole listing."""
        work, shard = self._work(), plan.shards[number]
        first = max(shard.start - 1, 0)
        begin, end = first * ENTRY.itemsize, shard.stop * ENTRY.itemsize
        try:
            listed = self.store.get(self._listing_key(plan, "files"), begin, end)
            _write_at(work / "files.bin", begin, listed)
            ends = [int.from_bytes(listed[at : at + 8], "little") for at in (0, len(listed) - ENTRY.itemsize)]
            start = ends[0] if shard.start else 0
            paths = (
                self.store.get(self._listing_key(plan, "paths"), start, ends[1]) if ends[1] > start else b""
            )
            _write_at(work / "paths.bin", start, paths)
        except ObjectMissing:
            raise PackError(
                f"another pack has published {self.place}, or thrown it away, while this one was "
                "at work. Run the same command again."
            ) from None

    def commit(self, plan: Plan, number: int, part: ShardPart, options: PackOptions) -> None:
        """Upload the records, the entry points, and last the part: now the shard counts as finished."""
        final, name = self.stage / plan.shards[number].name, self.part_name(plan, number)
        own = part_path(self.stage, final.name)
        try:
            commit_here(self.stage, plan, number, part, options, pieces=True)
            if len(part.records):
                data = self.data_name(plan, number)
                self.store.upload(self.key(data), self.stage / data)
            if exists(piece_path(own)):
                self.store.upload(self.key(piece_path(Path(name)).as_posix()), piece_path(own))
            self.store.upload(self.key(name), own)
        finally:
            for path in (final, own, piece_path(own)):
                remove(path)

    # Publishing: index, columns and entry points are made here, from the parts

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()  # there are no locks

    def is_complete(self) -> bool:
        return self.manifest() is not None

    def planned(self, rows: Rows, options: PackOptions) -> Plan | None:
        manifest = self.manifest()
        if manifest is not None:
            check_options(manifest.options, options, self.place)
            return None
        plan = self.plan()
        if plan is None:
            raise no_plan(self.place)
        return check_plan(plan, rows, self.place, options)

    def publish(self, plan: Plan | Manifest | None, options: PackOptions, observer: Observer) -> PackResult:
        began = packed = time.monotonic()
        summary: Summary | None = None
        manifest = self.manifest()  # another pack of the same set may have published, and removed the parts
        if manifest is None:
            assert isinstance(plan, Plan)
            self._fetch_parts(plan, options)
            manifest, summary = publish_planned(self.stage, plan)
            packed = time.monotonic()
            owns = [self._own(plan, number) for number in range(len(plan.shards))]
            names = [self.data_name(plan, number) for number in range(len(plan.shards))]
            self.make_entries(owns, names, manifest, options, observer)
            self.upload(manifest)
        self.tidy()
        facts, done = entry_facts(self.dataset(options)), time.monotonic() - packed
        lines = self.skipped_lines() if summary is not None else ()
        return PackResult(self.place, manifest, facts, summary, packed - began, done, 0, lines)

    def dataset(self, options: PackOptions) -> PackedFiles:
        """Open the published dataset."""
        storage = None if self.place.scheme == "file" else options.storage_options
        return PackedFiles(str(self.place), storage_options=storage)

    def skipped_lines(self) -> tuple[str, ...]:
        """Return the lines of the stage's ``skipped.jsonl``."""
        path = self.stage / SKIPPED_NAME
        return tuple(path.read_text(encoding="utf-8").splitlines()) if exists(path) else ()

    def upload(self, manifest: Manifest) -> None:
        """Upload the tables of the stage, the manifest last."""
        columns = [str(entry["file"]) for entry in manifest.fields if "file" in entry]
        runs = [] if manifest.runs is None else [manifest.runs.file]
        first = (*_carried(manifest), INDEX_NAME, *columns, *runs)
        for name in (*first, ENTRIES_NAME, SKIPPED_NAME, MANIFEST_NAME):
            if exists(self.stage / name):
                self.store.upload(self.key(name), self.stage / name)

    def tidy(self) -> None:
        """Remove what a published pack needs no more; the plan last, which tells what else there is."""
        names = [name for name in self.names() if name.startswith(f"{WORK_NAME}/")]
        for name in sorted(names, key=lambda name: name.endswith(f"/{PLAN_NAME}")):
            self.store.delete(self.key(name))
        if self.place.scheme == "file":  # no other store has folders
            remove(Path("/", self.work_key("")))

    def _fetch_parts(self, plan: Plan, options: PackOptions) -> None:
        """Fetch the parts of all shards, and their entry points.

        Raises:
            PackError: a shard is not as its part says.
        """
        names, _ = self.names(), self._work()

        def fetch_one(number: int) -> None:
            name, own = self.part_name(plan, number), self._own(plan, number)
            own.write_bytes(self.store.get(self.key(name)))
            piece = piece_path(Path(name)).as_posix()
            if piece in names and options.entries is not None:
                piece_path(own).write_bytes(self.store.get(self.key(piece)))
            part, data = ShardPart.read(own), self.data_name(plan, number)
            if len(part.records) and names.get(data) != part.shard_bytes:
                raise PackError(
                    f"{self.place / data} has {names.get(data, 'no')} bytes, and was written with "
                    f"{part.shard_bytes}. Remove {self.place / name}, and pack shard {number} again."
                )

        with ThreadPoolExecutor(_THREADS, "fetch") as pool:
            for _ in pool.map(fetch_one, range(len(plan.shards))):
                pass

    def _own(self, plan: Plan, number: int) -> Path:
        return part_path(self.stage, plan.shards[number].name)

    def make_entries(
        self, parts: Sequence[Path], data: Sequence[str], manifest: Manifest, options: PackOptions,
        observer: Observer,
    ) -> None:  # fmt: skip
        """Make the entry points in the stage, from those of each shard.

        Args:
            parts: the shards' parts, on this machine.
            data: the names below the folder of the files with their records.
        """
        if options.entries is not None and manifest.codecs.get("jpeg"):
            digest = _C.Index(str(self.stage / INDEX_NAME)).digest
            observer.started(entries_work(self.place, manifest.num_records))
            shards, shown = zip(parts, data, strict=True), manifest.schema.shown
            made = self._made(shards, options.entries, shown, observer)
            write_entries(self.stage, manifest, digest, options.entries, made)

    def _made(
        self, shards: Iterable[tuple[Path, str]], spacing: int, shown: tuple[bool, bool], observer: Observer
    ) -> Iterator[Made]:
        for own, data in shards:
            part = ShardPart.read(own)
            if not len(part.records):
                continue
            piece = read_piece(own, part, spacing)
            if piece is None:  # packed with another spacing, or none
                piece = self._made_again(data, own, part, spacing, shown)
            yield piece
            observer.advanced(len(part.records))

    def _made_again(
        self, data: str, own: Path, part: ShardPart, spacing: int, shown: tuple[bool, bool]
    ) -> Made:
        """Make entry points here, from the shard's records."""
        copy = self.stage / data
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy.write_bytes(self.store.get(self.key(data)))
            write_piece(own, part, copy, spacing, shown)
        finally:
            remove(copy)
        piece = read_piece(own, part, spacing)
        assert piece is not None
        return piece


def _carried(manifest: Manifest) -> list[str]:
    """Return the files of a set that its source had as they are."""
    folders = manifest.options.get(CARRIED) or {}
    return [f"{folder}/{name}" for folder, files in folders.items() for name in files]


def _write_at(path: Path, offset: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        write_at(descriptor, data, offset)
    finally:
        os.close(descriptor)
