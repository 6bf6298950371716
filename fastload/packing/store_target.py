"""A set packed into a store: its plan, shards and parts, packed in shares and published."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload._native import _C
from fastload.errors import ObjectMissing, PackError
from fastload.machine.paths import exists, write_at
from fastload.packing.cluster import PackShare, asked_of, check_identity, sources_of, totals_of
from fastload.packing.entries import Made, write_entries
from fastload.packing.facts import Summary, entry_facts
from fastload.packing.files import remove
from fastload.packing.folders import ENTRY
from fastload.packing.options import PackOptions
from fastload.packing.packer import bad_files, fitting_processes, known_samples
from fastload.packing.plan import PLAN_NAME, WORK_NAME, PackPlan, check_options, make_plan, packing_work
from fastload.packing.progress import Observer, entries_work
from fastload.packing.publish import SKIPPED_NAME, PackResult, publish_dataset
from fastload.packing.shares import ShardRanges, ShareJob, piece_path, ranges, read_piece, write_piece
from fastload.packing.source import Source
from fastload.packing.work import Advance, BadFiles, Claim, ShardPart, part_path, write_shards
from fastload.remote.location import Location
from fastload.remote.opening import open_store
from fastload.remote.store import Store
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import format_of
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, MANIFEST_NAME, MAX_BYTES, Manifest

# ---- A pack's folder in an object store -------------------------------------------------------------
# ``.fastload-pack/`` has the plan (``plan.json``, written once: whoever comes second takes the first one's),
# the listing, and a part for each finished shard. There are no locks: two writers of one shard write the
# same bytes.

_LISTING = ("files", "paths")


def target_at(location: Location, storage_options: Mapping[str, Any] | None) -> StoreTarget:
    """Return the folder at a URL; ``storage_options`` apply to object stores."""
    options = None if location.scheme == "file" else storage_options
    return StoreTarget(open_store(location, options), location)


@dataclass(frozen=True)
class StoreTarget:
    """One dataset's folder in a store."""

    store: Store
    location: Location

    def key(self, name: str) -> str:
        """Return the path in the store of a file of the dataset."""
        return (self.location / name).path

    def work_key(self, name: str) -> str:
        """Return the path of a file that is removed when the dataset is published."""
        return self.key(f"{WORK_NAME}/{name}")

    def names(self) -> dict[str, int]:
        """Return all files and their bytes, by their names below the folder."""
        prefix = self.location.path + "/"
        return {file.path[len(prefix) :]: file.size for file in self.store.list(prefix)}

    def manifest(self) -> Manifest | None:
        """Return the manifest of a complete dataset; None: it is not complete."""
        if self.store.head(self.key(MANIFEST_NAME)) is None:
            return None
        body = self.store.get(self.key(MANIFEST_NAME), most=MAX_BYTES)
        return Manifest.parse(f"{self.location}/{MANIFEST_NAME}", body)

    def plan(self, stage: Path) -> PackPlan | None:
        """Copy the existing plan into the work folder of ``stage`` and return it; None: there is none."""
        if self.store.head(self.work_key(PLAN_NAME)) is None:
            return None
        work = stage / WORK_NAME
        work.mkdir(parents=True, exist_ok=True)
        (work / PLAN_NAME).write_bytes(self.store.get(self.work_key(PLAN_NAME)))
        return PackPlan.read(work)

    def make_plan(
        self, source: Source, options: PackOptions, stage: Path, found: Callable[[int], None]
    ) -> PackPlan:
        """Make and write the plan, unless somebody has done so meanwhile: then return theirs.

        Raises:
            PackError: the folder has files that are no pack's.
        """
        strangers = sorted(name for name in self.names() if not name.startswith(f"{WORK_NAME}/"))
        if strangers:
            raise PackError(
                f"{self.location} is not empty and holds no pack (found {strangers[0]!r}); choose another "
                "folder."
            )
        work = stage / WORK_NAME
        work.mkdir(parents=True, exist_ok=True)
        plan = make_plan(source, options, self.location.name, work, found)
        for name in _LISTING:
            self.store.upload(self.listing_key(plan, name), work / f"{name}.bin")
        plan.write(work)
        if self.store.put(self.work_key(PLAN_NAME), (work / PLAN_NAME).read_bytes(), if_absent=True):
            return plan
        theirs = self.plan(stage)
        assert theirs is not None
        return theirs

    def listing_key(self, plan: PackPlan, name: str) -> str:
        """Return the key of this plan's ``files.bin`` or ``paths.bin``: two plans may be made at a time."""
        return self.work_key(f"{name}-{plan.digest}-{plan.totals.times}.bin")

    def fetch_listing(self, plan: PackPlan, number: int, work: Path) -> None:
        """Write the listing of one shard's files into a work folder, at its offset in the whole listing."""
        shard = plan.shards[number]
        first = max(shard.start - 1, 0)
        begin, end = first * ENTRY.itemsize, shard.stop * ENTRY.itemsize
        rows = self.store.get(self.listing_key(plan, "files"), begin, end)
        _write_at(work / "files.bin", begin, rows)
        ends = [int.from_bytes(rows[at : at + 8], "little") for at in (0, len(rows) - ENTRY.itemsize)]
        start = ends[0] if shard.start else 0
        paths = self.store.get(self.listing_key(plan, "paths"), start, ends[1])
        _write_at(work / "paths.bin", start, paths)

    def part_name(self, plan: PackPlan, number: int) -> str:
        """Return the name of a shard's part of this plan; it exists once the shard does."""
        return f"{WORK_NAME}/{plan.digest}/{plan.shards[number].name}.part"

    def data_name(self, plan: PackPlan, number: int) -> str:
        """Return the name below the folder of the file with a shard's records."""
        file = format_of(str(plan.identity["format"])).data_file(Path(plan.shards[number].name))
        return file.as_posix()

    def discard(self, plan: PackPlan | None) -> None:
        """Remove what a pack made here, the manifest first, and nothing else."""
        manifest = self.manifest()
        ours = {MANIFEST_NAME, INDEX_NAME, ENTRIES_NAME, SKIPPED_NAME}
        ours |= {shard.file for shard in manifest.shards} if manifest is not None else set()
        ours |= {self.data_name(plan, i) for i in range(len(plan.shards))} if plan is not None else set()
        names = [*self.names()]
        for name in sorted(names, key=lambda name: name != MANIFEST_NAME):
            if name in ours or name.startswith(f"{WORK_NAME}/"):
                self.store.delete(self.key(name))

    def tidy(self) -> None:
        """Remove what a published pack needs no more; the plan last, which tells what else there is."""
        names = [name for name in self.names() if name.startswith(f"{WORK_NAME}/")]
        for name in sorted(names, key=lambda name: name.endswith(f"/{PLAN_NAME}")):
            self.store.delete(self.key(name))


def _write_at(path: Path, offset: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        write_at(descriptor, data, offset)
    finally:
        os.close(descriptor)


# ---- Writing shards that go into a store ------------------------------------------------------------


class _Nothing:
    def close(self) -> None:
        """Do nothing, as a store has no locks."""


@dataclass(frozen=True)
class StoreJob(ShareJob):
    """A job whose ``output`` is a folder of this machine, in which nothing is kept."""

    target: StoreTarget = field(kw_only=True)

    def is_finished(self, number: int) -> bool:
        return self.target.store.head(self.target.key(self.target.part_name(self.plan, number))) is not None

    def claim(self, number: int) -> Claim | None:
        return None if self.is_finished(number) else _Nothing()

    def write(self, number: int, advance: Advance) -> ShardPart:
        work = self.output / WORK_NAME
        work.mkdir(parents=True, exist_ok=True)
        try:
            self.target.fetch_listing(self.plan, number, work)
        except ObjectMissing:
            raise PackError(
                f"another pack has published {self.target.location}, or thrown it away, while this one was "
                "at work. Run the same command again."
            ) from None
        return super().write(number, advance)

    def publish(self, number: int, part: ShardPart) -> None:
        final = self.output / self.plan.shards[number].name
        own = part_path(self.output, final.name)
        try:
            super().publish(number, part)
            self._upload(number, part, own)
        finally:
            for path in (final, own, piece_path(own)):
                remove(path)

    def _upload(self, number: int, part: ShardPart, own: Path) -> None:
        """Upload the records, the entry points, and last the part: now the shard counts as finished."""
        to, name = self.target, self.target.part_name(self.plan, number)
        if len(part.records):
            data = to.data_name(self.plan, number)
            to.store.upload(to.key(data), self.output / data)
        if exists(piece_path(own)):
            to.store.upload(to.key(piece_path(Path(name)).as_posix()), piece_path(own))
        to.store.upload(to.key(name), own)


# ---- From finished shards in a store to a dataset there ---------------------------------------------
# Index and entry points are made here, from the parts.

_THREADS = 16  # parts fetched at a time


def require_shards(output: str, missing: list[int], count: int) -> None:
    """Raise PackError if a pack of ``count`` shards cannot be published because some are missing."""
    if missing:
        raise PackError(
            f"{output} cannot be published: of {count} shards there are {len(missing)} missing "
            f"({ranges(missing)}). 'fastload pack SOURCE OUTPUT --shards {ranges(missing)}' packs them."
        )


def publish_target(
    target: StoreTarget, stage: Path, plan: PackPlan | Manifest, options: PackOptions, observer: Observer
) -> PackResult:
    """Publish one dataset whose shards all exist; a complete one stays unchanged."""
    began = packed = time.monotonic()
    summary: Summary | None = None
    if isinstance(plan, PackPlan):
        publication = _Publication(target, stage, plan, options, observer)
        publication.fetch()
        manifest, summary = publish_dataset(stage, plan)
        packed = time.monotonic()
        publication.finish(manifest)
    else:
        manifest = plan
    target.tidy()
    storage = None if target.location.scheme == "file" else options.storage_options
    facts = entry_facts(PackedFiles(str(target.location), storage_options=storage))
    reasons = () if summary is None else _reasons(stage)
    done = time.monotonic() - packed
    return PackResult(target.location, manifest, facts, summary, packed - began, done, 0, reasons)


def _reasons(stage: Path) -> tuple[str, ...]:
    path = stage / SKIPPED_NAME
    return tuple(path.read_text(encoding="utf-8").splitlines()) if exists(path) else ()


@dataclass(frozen=True)
class _Publication:
    target: StoreTarget
    stage: Path
    plan: PackPlan
    options: PackOptions
    observer: Observer

    def fetch(self) -> None:
        """Fetch the parts of all shards, and their entry points.

        Raises:
            PackError: a shard is not as its part says.
        """
        names = self.target.names()

        def fetch_one(number: int) -> None:
            self._fetch_one(number, names)

        with ThreadPoolExecutor(_THREADS, "fetch") as pool:
            for _ in pool.map(fetch_one, range(len(self.plan.shards))):
                pass

    def _fetch_one(self, number: int, names: dict[str, int]) -> None:
        store, key = self.target.store, self.target.key
        name, own = self.target.part_name(self.plan, number), self._own(number)
        own.write_bytes(store.get(key(name)))
        piece = piece_path(Path(name)).as_posix()
        if piece in names and self.options.entries is not None:
            piece_path(own).write_bytes(store.get(key(piece)))
        part, data = ShardPart.read(own), self.target.data_name(self.plan, number)
        if len(part.records) and names.get(data) != part.shard_bytes:
            raise PackError(
                f"{self.target.location / data} has {names.get(data, 'no')} bytes, and was written with "
                f"{part.shard_bytes}. Remove {self.target.location / name}, and pack shard {number} again."
            )

    def _own(self, number: int) -> Path:
        return part_path(self.stage, self.plan.shards[number].name)

    def finish(self, manifest: Manifest) -> None:
        """Make the entry points; then upload everything, the manifest last."""
        spacing = self.options.entries
        if spacing is not None and manifest.codecs.get("jpeg"):
            digest = _C.Index(str(self.stage / INDEX_NAME)).digest
            self.observer.started(entries_work(self.target.location, manifest.num_records))
            write_entries(self.stage, manifest, digest, spacing, self._made(spacing))
        for name in (INDEX_NAME, ENTRIES_NAME, SKIPPED_NAME, MANIFEST_NAME):
            if exists(self.stage / name):
                self.target.store.upload(self.target.key(name), self.stage / name)

    def _made(self, spacing: int) -> Iterator[Made]:
        for number in range(len(self.plan.shards)):
            own = self._own(number)
            part = ShardPart.read(own)
            if not len(part.records):
                continue
            piece = read_piece(own, part, spacing)
            if piece is None:  # packed with another spacing, or none
                piece = self._again(number, own, part, spacing)
            yield piece
            self.observer.advanced(len(part.records))

    def _again(self, number: int, own: Path, part: ShardPart, spacing: int) -> Made:
        """Make them here, from the shard's records."""
        data = self.target.data_name(self.plan, number)
        copy = self.stage / data
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy.write_bytes(self.target.store.get(self.target.key(data)))
            write_piece(own, part, copy, spacing)
        finally:
            remove(copy)
        piece = read_piece(own, part, spacing)
        assert piece is not None
        return piece


# ---- Packing into a store, alone, in shares, or on Ray ----------------------------------------------

# Calls a function with a job and each number; yields number and result as the calls finish.
Spread = Callable[[Callable[[Any, int], bool], Any, list[int]], Iterator[tuple[int, bool]]]


@dataclass(frozen=True)
class _Split:
    """One of the datasets that a pack makes, opened."""

    source: Source
    target: StoreTarget
    stage: Path
    plan: PackPlan | Manifest


@contextmanager
def _opened(
    source: Any, output: str, options: PackOptions, observer: Observer, *, plans: bool = True
) -> Iterator[list[_Split]]:
    """Yield all splits with their plans, made if missing (if ``plans`` is False, that is an error), each with
    a temporary folder of this machine."""
    if known_samples(source, options):
        raise PackError(f"{source} has samples of fields, which are packed into a folder of this machine.")
    try:
        root = Location.parse(output)
    except ValueError as error:
        raise PackError(str(error)) from None
    if not root.path:
        raise PackError(f"{root} is a whole store; give a folder in it, {root}/NAME.")
    with tempfile.TemporaryDirectory(prefix="fastload-pack-") as folder:
        splits, root_target = [], target_at(root, options.storage_options)
        known = None if options.restart else root_target.manifest() or root_target.plan(Path(folder))
        for part in sources_of(source, options, known):
            location = root / part.split if part.split else root
            target = target_at(location, options.storage_options)
            stage = Path(folder) / (part.split or "set") / location.name
            stage.mkdir(parents=True)
            if options.restart:
                target.discard(target.plan(stage))
            plan = _plan(part, target, stage, options, observer, plans)
            splits.append(_Split(part, target, stage, plan))
        yield splits


def _plan(
    source: Source, target: StoreTarget, stage: Path, options: PackOptions, observer: Observer, plans: bool
) -> PackPlan | Manifest:
    manifest = target.manifest()
    if manifest is not None:
        check_options(manifest.options, options, target.location)
        return manifest
    plan = target.plan(stage)
    if plan is None:
        if not plans:
            raise PackError(
                f"{target.location} holds no pack that could be published; 'fastload pack SOURCE OUTPUT "
                "--shards ...' makes a plan and packs its shards."
            )
        scanning = functools.partial(observer.scanning, target.location)
        plan = target.make_plan(source, options, stage, scanning)
    check_identity(plan, source, target.location, options)
    return plan


def share_in_store(
    source: Any, output: str, options: PackOptions, shares: ShardRanges | None, observer: Observer
) -> PackShare:
    """Pack as :func:`~fastload.packing.cluster.pack_shares`, or plan as ``plan_shares`` (``shares`` None)."""
    with _opened(source, output, options, observer) as splits:
        total, files, size = totals_of([split.plan for split in splits])
        asked = asked_of(shares, total)
        written = finished = first = 0
        for split in splits:
            count = len(split.plan.shards)
            mine = [number - first for number in asked if 0 <= number - first < count]
            written += _write(split, mine, options, observer, None)[0]
            finished += count - len(_missing(split))
            first += count
        published = all(isinstance(split.plan, Manifest) for split in splits)
        where = Location.parse(output)
        return PackShare(where, total, tuple(asked), written, finished, published, files, size)


def pack_into_store(
    source: Any, output: str, options: PackOptions, observer: Observer, spread: Spread | None = None
) -> list[PackResult]:
    """Pack as :func:`fastload.packing.pack`; ``spread`` writes shards without processes of this machine."""
    began = time.monotonic()
    with _opened(source, output, options, observer) as splits:
        sizes = [
            _write(split, list(range(len(split.plan.shards))), options, observer, spread)[1]
            for split in splits
        ]
        packed = time.monotonic() - began
        results = _published(splits, output, options, observer)
    return [
        replace(result, seconds=result.seconds + packed, written_bytes=size)
        for result, size in zip(results, sizes, strict=True)
    ]


def publish_in_store(source: Any, output: str, options: PackOptions, observer: Observer) -> list[PackResult]:
    """Publish as :func:`~fastload.packing.cluster.publish_shares`."""
    with _opened(source, output, options, observer, plans=False) as splits:
        return _published(splits, output, options, observer)


def _published(
    splits: list[_Split], output: str, options: PackOptions, observer: Observer
) -> list[PackResult]:
    # Another pack of the same set may have published meanwhile, and removed the parts.
    splits = [replace(split, plan=split.target.manifest() or split.plan) for split in splits]
    missing, first = [], 0
    for split in splits:
        missing += [first + number for number in _missing(split)]
        first += len(split.plan.shards)
    require_shards(output, missing, first)
    return [publish_target(split.target, split.stage, split.plan, options, observer) for split in splits]


def _missing(split: _Split) -> list[int]:
    """Return the shards whose parts are missing."""
    if isinstance(split.plan, Manifest):
        return []
    names = split.target.names()
    return [
        number
        for number in range(len(split.plan.shards))
        if split.target.part_name(split.plan, number) not in names
    ]


def _write(
    split: _Split, numbers: list[int], options: PackOptions, observer: Observer, spread: Spread | None
) -> tuple[int, int]:
    """Ensure that some shards exist; return how many were written here, and their source bytes."""
    plan = split.plan
    missing = sorted({*numbers} & {*_missing(split)})
    if isinstance(plan, Manifest) or not missing:
        return 0, 0
    job = StoreJob(split.stage, split.source.root, options, plan, split.source.store, target=split.target)
    size = sum(plan.shards[number].bytes for number in missing)
    observer.started(packing_work(plan, split.target.location, numbers, missing))
    try:
        if spread is None:
            write_shards(job, missing, options.num_proc or fitting_processes(size), observer.advanced)
        else:
            for number, _ in spread(_write_one, job, missing):
                shard = plan.shards[number]
                observer.advanced(shard.stop - shard.start, shard.bytes)
    except BadFiles as error:
        raise PackError(bad_files(error.failures)) from None
    return len(missing), size


def _write_one(job: StoreJob, number: int) -> bool:
    """Write a shard on a worker of another machine, in a temporary folder; False: it existed."""
    if job.is_finished(number):
        return False
    with tempfile.TemporaryDirectory(prefix="fastload-pack-") as folder:
        here = replace(job, output=Path(folder) / job.output.name)
        here.publish(number, here.write(number, lambda files, size: None))
    return True
