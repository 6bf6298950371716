"""One set packed by several processes or hosts over a shared file system: plan, shares, publication."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.machine.paths import exists, is_dir
from fastload.packing.entries import Made, ensure_entries, entries_of
from fastload.packing.facts import Summary, entry_facts
from fastload.packing.files import (
    PLAN_LOCK_NAME,
    Claim,
    claim,
    folder_lock,
    holder_of,
    make_folder,
    remove,
    require_space,
    share_lock,
)
from fastload.packing.options import PackOptions
from fastload.packing.output import OutputFolder
from fastload.packing.packer import bad_files, fitting_processes, known_samples, refuse_nesting
from fastload.packing.plan import (
    PLAN_NAME,
    WORK_NAME,
    PackPlan,
    check_options,
    packing_work,
    planned_bytes,
    resume_plan,
)
from fastload.packing.progress import Observer
from fastload.packing.publish import PackResult, publish_dataset
from fastload.packing.shares import ShardRanges, ShareJob, claim_path, ranges, read_piece, shard_state
from fastload.packing.source import Source, open_sources, planned_source
from fastload.packing.work import BadFiles, ShardPart, part_path, write_shards
from fastload.remote.location import Location, is_url
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import MANIFEST_NAME, Manifest

# ---- The plan that several packs share --------------------------------------------------------------
# The first pack makes it; the others wait for it and read it.

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0  # seconds between two looks at what another process does


@dataclass(frozen=True)
class Destination:
    """One of the packed datasets that a pack makes: a split, or the only one."""

    source: Source
    output: Path


def targets_of(
    source: str | os.PathLike[str], output: str | os.PathLike[str], options: PackOptions
) -> list[Destination]:
    """Return the datasets that ``source`` becomes.

    Raises:
        PackError: nothing can be packed, or not in shares.
    """
    if known_samples(source, options):
        raise PackError(
            f"{source} has samples of fields, which one pack reads in order; --shards, --publish and "
            "--plan-only take folders of images, and tables of path and label."
        )
    folder = Path(output).absolute()
    refuse_nesting(source, folder)
    parts = sources_of(source, options, _known(folder))
    return [Destination(part, folder / part.split if part.split else folder) for part in parts]


def _known(folder: Path) -> PackPlan | Manifest | None:
    if exists(folder / MANIFEST_NAME):
        return Manifest.read(folder)
    return PackPlan.read(OutputFolder(folder).work)


def sources_of(
    source: str | os.PathLike[str], options: PackOptions, known: PackPlan | Manifest | None
) -> list[Source]:
    """Return the sources at a path or URL; a URL whose plan is known is not listed again."""
    planned = planned_source(source, known.classes, options.storage_options) if known is not None else None
    return [planned] if planned is not None else open_sources(source, options)


@contextmanager
def opened(target: Destination, options: PackOptions, observer: Observer) -> Iterator[PackPlan | Manifest]:
    """Share a target with other packs; yield its plan, made if there is none, or the manifest of a complete
    dataset.

    Raises:
        PackError: the folder is not a pack's, it has another plan, or a pack holds it alone.
    """
    make_folder(target.output)
    folder = OutputFolder(target.output)
    if folder.state() == "complete":  # checked first, so that nothing is left beside a finished dataset
        yield _complete(target, options)
        return
    with share_lock(target.output):
        state = folder.state()
        if state == "foreign":
            raise folder.refusal()
        if state == "complete":
            yield _complete(target, options)
            return
        folder.refuse_others(PLAN_NAME)
        plan = PackPlan.read(folder.work) or _first(target, options, observer)
        check_plan(plan, target, options)
        yield plan


def _complete(target: Destination, options: PackOptions) -> Manifest:
    manifest = Manifest.read(target.output)
    check_options(manifest.options, options, target.output)
    return manifest


def check_plan(plan: PackPlan, target: Destination, options: PackOptions) -> None:
    """Check a plan against a target by :func:`check_identity`."""
    check_identity(plan, target.source, target.output, options)


def check_identity(plan: PackPlan, source: Source, output: Path | Location, options: PackOptions) -> None:
    """Raise PackError if a plan has other options or classes; its files are checked when packed."""
    check_options(plan.identity, options, output)
    if plan.classes != source.classes:
        raise PackError(
            f"the source has changed since the pack of {output} was planned: it had {len(plan.classes)} "
            f"classes, and has {len(source.classes)} now, or others. --plan-only --restart throws the "
            "unfinished pack away and plans anew."
        )


def discard(target: Destination) -> None:
    """Throw away what a pack made in a target; nobody else may be at work there."""
    make_folder(target.output)
    with folder_lock(target.output):
        OutputFolder(target.output).discard()


def waited(done: Callable[[], bool]) -> None:
    """Wait until ``done`` returns True, asking less and less often."""
    pause = _FIRST_WAIT
    while not done():
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_WAIT)


def _first(target: Destination, options: PackOptions, observer: Observer) -> PackPlan:
    """Make the plan, or wait for the one that another pack is making."""
    lock, work = target.output / PLAN_LOCK_NAME, OutputFolder(target.output).work
    held = claim(lock)
    if held is None:
        observer.said(target.output, f"{holder_of(lock)} makes the plan; waiting for it")
        claims: list[Claim] = []

        def free() -> bool:
            claims.extend(filter(None, [claim(lock)]))
            return bool(claims)

        waited(free)
        [held] = claims
    try:
        plan = PackPlan.read(work)
        if plan is None:
            scanning = functools.partial(observer.scanning, target.output)
            plan = resume_plan(target.source, options, target.output.name, work, scanning)
        return plan
    finally:
        held.close()


# ---- ``fastload pack --plan-only`` and ``--shards`` -------------------------------------------------


@dataclass(frozen=True)
class PackShare:
    """The outcome of a pack of some shards, which are counted through all splits."""

    output: Path | Location
    shards: int  # of the plan, or of a complete dataset
    asked: tuple[int, ...]  # numbers of the shards that this pack was asked for
    written: int  # of those, by this pack
    finished: int  # of the plan, by anybody
    published: bool  # whether every split is a dataset already
    files: int  # of the plan
    bytes: int


def plan_shares(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> PackShare:
    """Make the plan of a pack that several will share, and write no shard; an existing plan stays.

    Raises:
        PackError: see :func:`fastload.packing.pack`.
    """
    options, observer = options or PackOptions(), observer or Observer()
    if is_url(output):
        return _in_store(source, output, options, None, observer)
    with words_for_errors(output):
        if options.restart:
            for target in targets_of(source, output, options):
                discard(target)
        return _pack(targets_of(source, output, options), Path(output).absolute(), options, None, observer)


def pack_shares(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    shares: ShardRanges,
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> PackShare:
    """Write some of a plan's shards, making the plan if nobody has. Others may do so at the same time.

    When it returns, all of these shards exist: it waits for what another pack is writing, and writes it
    here if that pack dies. Nothing is published; see :func:`fastload.packing.cluster.publish_shares`.

    Raises:
        PackError: see :func:`fastload.packing.pack`; also if the pack in ``output`` has another plan.
    """
    options, observer = options or PackOptions(), observer or Observer()
    if options.restart:
        raise PackError(
            "--restart with --shards would throw away what others pack; 'fastload pack SOURCE OUTPUT "
            "--plan-only --restart' throws everything away, once, before they begin."
        )
    if is_url(output):
        return _in_store(source, output, options, shares, observer)
    with words_for_errors(output):
        targets = targets_of(source, output, options)
        return _pack(targets, Path(output).absolute(), options, shares, observer)


def _in_store(
    source: Any, output: Any, options: PackOptions, shares: ShardRanges | None, observer: Observer
) -> PackShare:
    from fastload.packing.store_target import share_in_store

    return share_in_store(source, str(output), options, shares, observer)


@contextmanager
def words_for_errors(output: str | os.PathLike[str]) -> Iterator[None]:
    """Turn system errors into a PackError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot pack into {Path(output).absolute()}: {error}.") from error


def _pack(
    targets: list[Destination],
    output: Path,
    options: PackOptions,
    shares: ShardRanges | None,
    observer: Observer,
) -> PackShare:
    with ExitStack() as stack:
        plans = [stack.enter_context(opened(target, options, observer)) for target in targets]
        total, files, size = totals_of(plans)
        asked = asked_of(shares, total)
        written = finished = first = 0
        for target, plan in zip(targets, plans, strict=True):
            count = len(plan.shards)
            if isinstance(plan, PackPlan):
                job = ShareJob(target.output, target.source.root, options, plan, target.source.store)
                written += _write(job, [n - first for n in asked if 0 <= n - first < count], observer)
                count = sum(map(job.is_finished, range(count)))
            finished += count
            first += len(plan.shards)
        published = all(isinstance(plan, Manifest) for plan in plans)
        return PackShare(output, total, tuple(asked), written, finished, published, files, size)


def totals_of(plans: list[PackPlan | Manifest]) -> tuple[int, int, int]:
    """Return shards, files and bytes of plans, or of the datasets that they have become."""
    files = sum(p.totals.files if isinstance(p, PackPlan) else p.num_records for p in plans)
    size = sum(p.totals.bytes if isinstance(p, PackPlan) else p.data_bytes for p in plans)
    return sum(len(plan.shards) for plan in plans), files, size


def asked_of(shares: ShardRanges | None, total: int) -> list[int]:
    """Return the numbers of the shards that a pack is asked for; none without shares."""
    return shares.numbers(total) if shares is not None else []


def _write(job: ShareJob, numbers: list[int], observer: Observer) -> int:
    """Ensure that some shards exist; return how many were written here."""
    missing = [number for number in numbers if not job.is_finished(number)]
    if not missing:
        return 0
    begin(job, numbers, missing, observer)
    written, size = 0, sum(job.plan.shards[number].bytes for number in missing)
    try:
        while missing:
            processes = job.options.num_proc or fitting_processes(size)
            left = write_shards(job, missing, processes, observer.advanced)
            written += len(missing) - len(left)
            missing = [number for number in left if not job.is_finished(number)]
            if missing:
                _wait(job, missing, observer)
    except BadFiles as error:
        raise PackError(bad_files(error.failures)) from None
    return written


def begin(job: ShareJob, numbers: list[int], missing: list[int], observer: Observer) -> None:
    """Check that there is room for the ``missing`` shards of ``numbers``, and report that work begins."""
    plan = job.plan
    others = {shard.name for shard in plan.shards} - {plan.shards[number].name for number in missing}
    require_space(job.output, planned_bytes(plan, job.output / WORK_NAME, frozenset(others)))
    observer.started(packing_work(plan, job.output, numbers, missing))


def _wait(job: ShareJob, missing: list[int], observer: Observer) -> None:
    """Wait until one of the shards that others write exists, or nobody writes it any more."""
    path = claim_path(job.output, job.plan.shards[missing[0]].name)
    reason = f"{holder_of(path)} writes {job.plan.shards[missing[0]].name}"
    observer.said(job.output, f"{reason}; waiting for it")

    def changed() -> bool:
        for number in missing:
            held = job.claim(number)
            if held is not None:
                held.close()
                return True
            if job.is_finished(number):
                return True
        return False

    waited(changed)


# ---- ``fastload pack --publish`` --------------------------------------------------------------------


def publish_shares(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
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
    if is_url(output):
        from fastload.packing.store_target import publish_in_store

        return publish_in_store(source, str(output), options, observer)
    with words_for_errors(output), ExitStack() as stack:
        targets = targets_of(source, output, options)
        for target in targets:
            if not is_dir(target.output):
                raise _no_plan(target.output)
            stack.enter_context(folder_lock(target.output))
        plans = [_plan(target, options) for target in targets]
        _require_shards(targets, plans)
        published = [_Published(t, plan, options) for t, plan in zip(targets, plans, strict=True)]
        return [dataset.finish(observer) for dataset in published]


def _no_plan(output: Path) -> PackError:
    return PackError(
        f"{output} holds no pack that could be published; 'fastload pack SOURCE OUTPUT --shards ...' makes "
        "a plan and packs its shards."
    )


def _plan(target: Destination, options: PackOptions) -> PackPlan | None:
    """Return a target's plan; None: it is published, and nothing of the plan is left.

    Raises:
        PackError: there is no plan, or another one.
    """
    folder = OutputFolder(target.output)
    state = folder.state()
    if state == "foreign":
        raise folder.refusal()
    plan = PackPlan.read(folder.work) if exists(folder.work) else None
    if state == "complete":
        check_options(Manifest.read(target.output).options, options, target.output)
        return plan
    folder.refuse_others(PLAN_NAME)
    if plan is None:
        raise _no_plan(target.output)
    check_plan(plan, target, options)
    return plan


def _require_shards(targets: list[Destination], plans: list[PackPlan | None]) -> None:
    missing, others, first = [], [], 0
    for target, plan in zip(targets, plans, strict=True):
        if plan is None or OutputFolder(target.output).state() == "complete":
            continue  # it was published when all shards existed
        for number in range(len(plan.shards)):
            state = shard_state(target.output, plan, number)
            missing += [first + number] if state == "missing" else []
            others += [first + number] if state == "of another plan" else []
        first += len(plan.shards)
    if not missing and not others:
        return
    problems = [f"{len(missing)} missing ({ranges(missing)})"] if missing else []
    problems += [f"{len(others)} written by another plan ({ranges(others)})"] if others else []
    output = targets[0].output if len(targets) == 1 else targets[0].output.parent
    raise PackError(
        f"{output} cannot be published: of {first} shards there are {' and '.join(problems)}. 'fastload pack "
        f"SOURCE OUTPUT --shards {ranges(sorted(missing + others))}' packs them."
    )


@dataclass
class _Published:
    """A dataset on its last steps to publication."""

    target: Destination
    plan: PackPlan | None
    options: PackOptions

    def finish(self, observer: Observer) -> PackResult:
        began = time.monotonic()
        output, folder = self.target.output, OutputFolder(self.target.output)
        summary: Summary | None = None
        if folder.state() == "complete":
            manifest = Manifest.read(output)
        else:
            assert self.plan is not None
            manifest, summary = publish_dataset(output, self.plan)
        packed = time.monotonic()
        spacing = self.options.entries
        if spacing is not None:
            made = functools.partial(self._made, observer) if self.plan is not None else None
            ensure_entries(output, spacing, self.options.num_proc, observer, made)
        folder.tidy()
        remove(output / PLAN_LOCK_NAME)
        facts = entry_facts(PackedFiles(output))
        return PackResult(output, manifest, facts, summary, packed - began, time.monotonic() - packed, 0)

    def _made(self, observer: Observer, dataset: PackedFiles, spacing: int) -> Iterator[Made]:
        """Yield the shards' entry points as they were packed; make those that lack this spacing."""
        assert self.plan is not None
        threads, first = self.options.num_proc or len(os.sched_getaffinity(0)), 0
        for shard in self.plan.shards:
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
