"""``fastload pack``: a source is opened, planned, written and published, by one pack or by several."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists
from fastload.machine.sizes import counted
from fastload.machine.temporary import TemporaryFolder
from fastload.packing.cut import WORK_NAME, Plan, bad_rows, plan_of, planned_bytes
from fastload.packing.files import free_bytes, holder_of, require_space
from fastload.packing.listing import Listing
from fastload.packing.opened import Split, opened
from fastload.packing.options import PackOptions
from fastload.packing.progress import Observer, Place, Work
from fastload.packing.publish import PackResult
from fastload.packing.ray import LazyCluster
from fastload.packing.rows import Rows
from fastload.packing.running import pack_running
from fastload.packing.sample_rows import IterableRows, SequenceRows
from fastload.packing.set_rows import SetRows
from fastload.packing.shard_writer import classes_of
from fastload.packing.shares import ShardRanges, ranges
from fastload.packing.spread import BadFiles, fitting_processes, write_shards
from fastload.packing.store_target import store_target
from fastload.packing.target import Folder, OutputFolder, SharedFolder, Target, waited
from fastload.packing.work import ShardWork, write_one
from fastload.remote.location import Location, is_url
from fastload.remote.opening import place_of
from fastload.sample.schema import Schema
from fastload.shard.manifest import MANIFEST_NAME, Manifest

_LOOKED_AT, _MARGIN = 32, 1.5  # rows that tell how much room scaled pictures need, and how far they may err
PathOrUrl = str | os.PathLike[str]
Samples = IterableRows | SequenceRows

# ---- Targets of a source's splits -------------------------------------------------------------------


@contextmanager
def _targets(
    source: PathOrUrl | Samples, output: PathOrUrl, options: PackOptions, shared: bool
) -> Iterator[list[tuple[Split, Target]]]:
    """Yield the source's splits, each with the target that it goes into.

    Args:
        shared: whether other packs may be at work in a folder.

    Raises:
        PackError: nothing can be packed, or not there.
    """
    with ExitStack() as stack, _words_for_errors(output):
        if is_url(output):
            stage = stack.enter_context(TemporaryFolder("pack"))
            root = store_target(_location(str(output)), stage / "set", options.storage_options)
            known = None if options.restart else root.manifest() or root.plan()
            splits = _splits(source, options, known)
            _refuse_nesting(source, output, splits, options)
            yield [(split, _in_store(root.place, split, stage, options)) for split in splits]
            return
        folder = Path(output).absolute()
        splits = _splits(source, options, _known(folder) if shared else None)
        _refuse_nesting(source, folder, splits, options)
        kind = SharedFolder if shared else Folder
        yield [(split, kind(folder / split.name if split.name else folder)) for split in splits]


def _splits(source: PathOrUrl | Samples, options: PackOptions, known: Plan | Manifest | None) -> list[Split]:
    if isinstance(source, (IterableRows, SequenceRows)):
        return [Split("", source)]
    return opened(source, options, known)


def _location(output: str) -> Location:
    try:
        root = Location.parse(output)
    except ValueError as error:
        raise PackError(str(error)) from None
    if not root.path:
        raise PackError(f"{root} is a whole store; give a folder in it, {root}/NAME.")
    return root


def _in_store(root: Location, split: Split, stage: Path, options: PackOptions) -> Target:
    place = root / split.name if split.name else root
    folder = stage / (split.name or "set") / place.name
    folder.mkdir(parents=True, exist_ok=True)
    return store_target(place, folder, options.storage_options)


def _known(folder: Path) -> Plan | Manifest | None:
    if exists(folder / MANIFEST_NAME):
        return Manifest.read(folder)
    return Plan.read(OutputFolder(folder).work)


def _refuse_nesting(
    given: PathOrUrl | Samples, output: PathOrUrl, splits: Sequence[Split], options: PackOptions
) -> None:
    """Raise PackError if a pack would find its own output among its images, or replace its source."""
    if isinstance(given, (IterableRows, SequenceRows)):
        return
    source, _, _ = place_of(given, None)
    target, _, _ = place_of(output, None)
    is_walked = any(split.rows.walks for split in splits)
    if is_url(source) or is_url(target):
        is_inside = is_walked and str(source).rstrip("/") == str(target).rstrip("/")
    else:
        source, target = Path(source).absolute(), Path(target).absolute()
        at, below = target.resolve(), source.resolve()
        is_inside = is_walked and below in (at, *at.parents)
        if options.restart:
            _refuse_removal([source, *_containers(splits)], at)
    if is_inside:
        raise PackError(f"the output {target} lies inside the source {source}; choose a folder outside it.")


def _containers(splits: Sequence[Split]) -> Iterator[Path]:
    """Yield the files of this machine that rows lie in, also those that an index names."""
    for _, rows in splits:
        yield from rows.containers
        shards = rows.dataset.manifest.shards if isinstance(rows, SetRows) else ()
        yield from (path for path in (Path(shard.file) for shard in shards) if path.is_absolute())


def _refuse_removal(files: Sequence[Path], output: Path) -> None:
    """Raise PackError if --restart would remove files of the source, which are of the pack in its output."""
    for path in files:
        place = path.resolve()
        if output in place.parents and place.relative_to(output).parts[0] in OutputFolder(output).made():
            raise PackError(f"{path} is part of what --restart removes in {output}; choose another folder.")


@contextmanager
def _words_for_errors(output: PathOrUrl) -> Iterator[None]:
    """Turn system errors into a PackError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        where = output if is_url(output) else Path(output).absolute()
        raise PackError(f"cannot pack into {where}: {error}.") from error


# ---- A whole pack -----------------------------------------------------------------------------------


def pack(
    source: PathOrUrl | Samples,
    output: PathOrUrl,
    options: PackOptions | None = None,
    observer: Observer | None = None,
    ray: str | None = None,
) -> list[PackResult]:
    """Pack a source into ``output``; a parent of train/ and val/ becomes one packed dataset per split.

    After an interruption at any moment, the same call resumes, and the result is the same byte for
    byte. With several processes, call it under ``if __name__ == "__main__":``, like any program that
    spawns processes.

    Args:
        source: a path or URL, or rows of Python samples.
        output: a folder of this machine, or its URL.
        options: the pack's options.
        observer: receives progress.
        ray: the address of a Ray cluster that writes the shards, see
            :class:`~fastload.packing.ray.RayCluster`; None: processes of this machine.

    Raises:
        PackError: files that cannot be packed, a changed source, a full disk, another pack at work.
    """
    options, observer = options or PackOptions(), observer or Observer()
    results = []
    with _targets(source, output, options, ray is not None) as targets, LazyCluster(ray, options) as cluster:
        for split, target in targets:
            if isinstance(split.rows, (IterableRows, SequenceRows)):
                _require_sizes(split, "--ray" if ray else None)
                results.append(pack_running(split.rows, target, options, observer))
            else:
                results.append(_pack_one(split, target, options, observer, cluster))
    return results


def _require_sizes(split: Split, what: str | None) -> None:
    """Refuse to share rows whose sizes only encoding tells."""
    if what is not None and isinstance(split.rows, (IterableRows, SequenceRows)):
        kind = "an iterable comes once" if isinstance(split.rows, IterableRows) else "a sequence has no sizes"
        raise PackError(
            f"{what} needs a plan of shards, and nobody can plan these samples: {kind}. Pack them by one "
            "pack, with num_proc for more processes."
        )


def _pack_one(
    split: Split, target: Target, options: PackOptions, observer: Observer, cluster: LazyCluster
) -> PackResult:
    began, written = time.monotonic(), 0
    if options.restart and target.is_shared:
        target.discard()
        options = replace(options, restart=False)
    with ExitStack() as stack:
        plan = stack.enter_context(target.opened(split.rows, options, observer))
        if isinstance(plan, Plan):
            work = ShardWork(split.rows, plan, target, options)
            _, written = _write(work, range(len(plan.shards)), observer, cluster)
        packed = time.monotonic() - began
        if target.is_shared:
            stack.close()  # publishing wants it alone
            stack.enter_context(target.alone())
        _put_carried(split.rows, target)
        result = target.publish(plan, options, observer)
    result = _with_notes(result, split.rows)
    return replace(result, seconds=result.seconds + packed, written_bytes=written)


def _with_notes(result: PackResult, rows: Rows) -> PackResult:
    """Return a result with its rows' notes; of a complete set only the manifest tells how it was made."""
    lost = tuple(rows.lost([entry["path"] for entry in result.skipped()]))
    return replace(result, notes=lost if result.was_complete else rows.notes + lost)


def _put_carried(rows: Rows, target: Target) -> None:
    """Write what goes into the set as it is, before anything says that the set is complete."""
    if rows.carried is not None and not target.is_complete():
        rows.carried.write(target.stage)


def _write(
    work: ShardWork, numbers: Sequence[int], observer: Observer, cluster: LazyCluster
) -> tuple[int, int]:
    """Ensure that some shards exist; return how many were written here, and their source bytes.

    It waits for what another pack is writing, and writes it here if that pack dies.
    """
    plan, target = work.plan, work.target
    missing = sorted({*numbers} & {*target.missing(plan)})
    if not missing and target.is_shared:
        return 0, 0
    _begin(work, numbers, missing, observer)
    size, written = sum(plan.shards[number].bytes for number in missing), 0
    try:
        while missing:
            left = _spread(work, missing, size, observer, cluster)
            written += len(missing) - len(left)
            missing = [number for number in left if not work.is_finished(number)]
            if missing:
                _wait(work, missing, observer)
    except BadFiles as error:
        raise PackError(bad_rows(error, work.rows.unit)) from None
    return written, size


def _spread(
    work: ShardWork, missing: list[int], size: int, observer: Observer, cluster: LazyCluster
) -> list[int]:
    """Write shards; return those that other packs had claimed."""
    if cluster.address is None:
        processes = work.options.num_proc or fitting_processes(size, work.rows.process_bytes)
        # Each process knows how many others there are. One without a shard would leave its cores unused.
        processes = max(1, min(processes, len(missing)))
        work = replace(work, options=replace(work.options, num_proc=processes))
        return write_shards(work, missing, processes, observer.advanced)
    work = replace(work, options=replace(work.options, num_proc=None))
    for number, _ in cluster.opened().as_finished(write_one, work, missing):
        shard = work.plan.shards[number]
        observer.advanced(shard.stop - shard.start, shard.bytes)
    return []


def _begin(work: ShardWork, numbers: Sequence[int], missing: list[int], observer: Observer) -> None:
    """Check that there is room for the ``missing`` shards of ``numbers``, and report that work begins."""
    plan, place = work.plan, work.target.place
    _announce(work.rows, place, observer)
    if isinstance(place, Path):
        others = {shard.name for shard in plan.shards} - {plan.shards[number].name for number in missing}
        needed = planned_bytes(plan, place / WORK_NAME, frozenset(others))
        if work.options.max_side is not None and needed > free_bytes(place):
            needed = int(needed * _stored_share(work))
        require_space(place, needed)

    def totals(of: Sequence[int]) -> tuple[int, int]:
        shards = [plan.shards[number] for number in of]
        return sum(shard.stop - shard.start for shard in shards), sum(shard.bytes for shard in shards)

    (rows, size), (left_rows, left_size) = totals(numbers), totals(missing)
    where, done = f"into {counted(len(numbers), 'shard')} of", (rows - left_rows, size - left_size)
    if len(numbers) == len(plan.shards):
        size = plan.totals.bytes  # of the files, which shards of raw pixels do not have
    observer.started(Work("packing", place, work.rows.unit, rows, size, *done, where))


def _announce(rows: Rows, place: Place, observer: Observer) -> None:
    for line in rows.announced():
        observer.said(place, line)


def _stored_share(work: ShardWork) -> float:
    """Return what some rows, spread evenly, take once scaled down, as a share of their bytes; at most 1.

    Rows of a store are not fetched for this.
    """
    if work.rows.files is not None or not isinstance(work.target.place, Path):
        return 1.0
    listing, had, stored = Listing(work.target.place / WORK_NAME), 0, 0
    for position in range(0, len(listing), max(1, len(listing) // _LOOKED_AT)):
        for batch in work.rows.batches(position, position + 1, work.options, listing):
            stored += int(batch.sizes.sum())
        had += next(listing.rows(position, position + 1)).size
    return min(1.0, (stored + 1) / had * _MARGIN) if had else 1.0


def _wait(work: ShardWork, missing: list[int], observer: Observer) -> None:
    """Wait until one of the shards that others write exists, or nobody writes it any more."""
    assert isinstance(work.target, SharedFolder)
    path, name = work.target.claim_path(work.plan, missing[0]), work.plan.shards[missing[0]].name
    observer.said(work.target.place, f"{holder_of(path)} writes {name}; waiting for it")

    def changed() -> bool:
        for number in missing:
            held = work.claim(number)
            if held is not None:
                held.close()
                return True
            if work.is_finished(number):
                return True
        return False

    waited(changed)


# ---- One of several packs of the same plan ----------------------------------------------------------


@dataclass(frozen=True)
class PackShare:
    """The outcome of a pack of some shards, which are counted through all splits."""

    output: Place
    shards: int  # of the plan, or of a complete dataset
    asked: tuple[int, ...]  # numbers of the shards that this pack was asked for
    written: int  # of those, by this pack
    finished: int  # of the plan, by anybody
    published: bool  # whether every split is a dataset already
    files: int  # of the plan
    bytes: int


def plan_shares(
    source: PathOrUrl | Samples,
    output: PathOrUrl,
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> PackShare:
    """Make the plan of a pack that several will share, and write no shard; an existing plan stays.

    Raises:
        PackError: see :func:`pack`.
    """
    return _shared(source, output, None, options or PackOptions(), observer or Observer())


def pack_shares(
    source: PathOrUrl | Samples,
    output: PathOrUrl,
    shares: ShardRanges,
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> PackShare:
    """Write some of a plan's shards, making the plan if nobody has. Others may do so at the same time.

    When it returns, all of these shards exist: it waits for what another pack is writing, and writes it
    here if that pack dies. Nothing is published; see :func:`publish_shares`.

    Raises:
        PackError: see :func:`pack`; also if the pack in ``output`` has another plan.
    """
    options = options or PackOptions()
    if options.restart:
        raise PackError(
            "--restart with --shards would throw away what others pack; 'fastload pack SOURCE OUTPUT "
            "--plan-only --restart' throws everything away, once, before they begin."
        )
    return _shared(source, output, shares, options, observer or Observer())


def _shared(
    source: PathOrUrl | Samples, output: PathOrUrl, shares: ShardRanges | None,
    options: PackOptions, observer: Observer,
) -> PackShare:  # fmt: skip
    with ExitStack() as stack:
        targets = stack.enter_context(_targets(source, output, options, shared=True))
        for split, target in targets:
            _require_sizes(split, "--shards" if shares is not None else "--plan-only")
            if options.restart:
                target.discard()
        options = replace(options, restart=False)
        plans = [
            stack.enter_context(target.opened(split.rows, options, observer)) for split, target in targets
        ]
        for split, target in targets if shares is None else ():
            _announce(split.rows, target.place, observer)
        total = sum(len(plan.shards) for plan in plans)
        asked = shares.numbers(total) if shares is not None else []
        written = finished = first = 0
        for (split, target), plan in zip(targets, plans, strict=True):
            count = len(plan.shards)
            finished += count
            if isinstance(plan, Plan):
                work = ShardWork(split.rows, plan, target, options)
                mine = [number - first for number in asked if 0 <= number - first < count]
                written += _write(work, mine, observer, LazyCluster(None, options))[0]
                finished -= len(target.missing(plan))
            first += count
        rows = sum(plan.totals.files if isinstance(plan, Plan) else plan.num_records for plan in plans)
        size = sum(plan.totals.bytes if isinstance(plan, Plan) else plan.data_bytes for plan in plans)
        where = Location.parse(str(output)) if is_url(output) else Path(output).absolute()
        published = all(isinstance(plan, Manifest) for plan in plans)
        return PackShare(where, total, tuple(asked), written, finished, published, rows, size)


def publish_shares(
    source: PathOrUrl | Samples,
    output: PathOrUrl,
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> list[PackResult]:
    """Make datasets of a plan's finished shards, byte for byte what one machine makes.

    After an interruption at any moment, the same call resumes; complete datasets stay unchanged.

    Raises:
        PackError: shards are missing or another plan's (the message says which), a pack is still at work,
            or the options differ from the plan's.
    """
    options, observer = options or PackOptions(), observer or Observer()
    with ExitStack() as stack:
        targets = stack.enter_context(_targets(source, output, options, shared=True))
        for split, target in targets:
            _require_sizes(split, "--publish")
            stack.enter_context(target.alone())
        plans = [target.planned(split.rows, options) for split, target in targets]
        _require_shards(output, [target for _, target in targets], plans)
        for split, target in targets:
            _put_carried(split.rows, target)
        return [
            _with_notes(target.publish(plan, options, observer), split.rows)
            for (split, target), plan in zip(targets, plans, strict=True)
        ]


def _require_shards(output: PathOrUrl, targets: Sequence[Target], plans: Sequence[Plan | None]) -> None:
    missing: list[int] = []
    others: list[int] = []
    first = 0
    for target, plan in zip(targets, plans, strict=True):
        if plan is None or target.is_complete():
            continue  # it was published when all shards existed
        for number in target.missing(plan):
            is_other = isinstance(target, SharedFolder) and target.state_of(plan, number) != "missing"
            (others if is_other else missing).append(first + number)
        first += len(plan.shards)
    if not missing and not others:
        return
    problems = [f"{len(missing)} missing ({ranges(missing)})"] if missing else []
    problems += [f"{len(others)} written by another plan ({ranges(others)})"] if others else []
    raise PackError(
        f"{output} cannot be published: of {first} shards there are {' and '.join(problems)}. 'fastload pack "
        f"SOURCE OUTPUT --shards {ranges(sorted(missing + others))}' packs them."
    )


# ---- What a pack would do ---------------------------------------------------------------------------


@dataclass(frozen=True)
class DryRun:
    """What a pack would do."""

    output: Place
    records: int
    bytes: int  # of the files that are packed
    classes: int
    shards: int
    needed_bytes: int
    free_bytes: int | None  # None: a store does not say
    schema: Schema
    ignored: Mapping[str, Any] = field(default_factory=dict)  # what the source has and is not packed
    notes: tuple[str, ...] = ()  # what became of a table's columns


def dry_run(
    source: PathOrUrl | Samples, output: PathOrUrl, options: PackOptions | None = None
) -> list[DryRun]:
    """Return what :func:`pack` would do, without writing to ``output``.

    Raises:
        PackError: see :func:`pack`.
    """
    options = options or PackOptions()
    runs = []
    for split in _splits(source, options, None):
        _require_sizes(split, "a dry run")
        place = _location(str(output)) if is_url(output) else Path(output).absolute()
        place = place / split.name if split.name else place
        with TemporaryFolder("plan") as work:
            plan = plan_of(split.rows, options, place.name, work)
            needed = planned_bytes(plan, work)
        free = None if isinstance(place, Location) else _free(place)
        totals, classes = plan.totals, len(classes_of(plan.schema))
        counts = (totals.files, totals.bytes, classes, len(plan.shards), needed, free)
        notes = (*split.rows.notes, *split.rows.announced())
        runs.append(DryRun(place, *counts, plan.schema, plan.ignored, notes))
    return runs


def _free(target: Path) -> int:
    """Return how many bytes may be written where a folder is or would be."""
    return free_bytes(next(folder for folder in (target, *target.parents) if exists(folder)))
