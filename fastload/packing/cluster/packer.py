"""``fastload pack --plan-only`` and ``--shards``: a plan that is made once, and some of its shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.packing.cluster.job import ShareJob, claim_path
from fastload.packing.cluster.opening import Target, discard, opened, targets_of, waited
from fastload.packing.cluster.shares import Shares
from fastload.packing.files import require_space
from fastload.packing.lock import holder_of
from fastload.packing.options import PackOptions
from fastload.packing.packer import bad_files, fitting_processes
from fastload.packing.plan import WORK_NAME, PackPlan, packing_work, planned_bytes
from fastload.packing.pool import write_shards
from fastload.packing.progress import Observer
from fastload.packing.shard_job import BadFiles
from fastload.remote.location import Location, is_url
from fastload.shard.manifest import Manifest

__all__ = ["Share", "asked_of", "begin", "pack_shares", "plan_shares", "totals_of", "words_for_errors"]


@dataclass(frozen=True)
class Share:
    """What a pack of some shards has come to; shards are counted through all splits."""

    output: Path | Location
    shards: int  # of the plan; of a complete dataset those that it has
    asked: tuple[int, ...]  # numbers of those that this pack was to see to
    written: int  # of them, by this pack
    finished: int  # of the plan, by anybody
    published: bool  # all that there is is a dataset already
    files: int  # of the plan
    bytes: int


def plan_shares(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> Share:
    """Make the plan of a pack that several will share, and write no shard; a plan that is there stays.

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
    shares: Shares,
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> Share:
    """Write some of a plan's shards, making the plan if nobody has. Others may do so at the same time.

    When it returns, all of these shards are there: what another pack is writing is waited for, and written
    here if that one dies. Nothing is published; see :func:`fastload.packing.cluster.publish.publish_shares`.

    Raises:
        PackError: see :func:`fastload.packing.pack`; also another plan than that of the pack in ``output``.
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
    source: Any, output: Any, options: PackOptions, shares: Shares | None, observer: Observer
) -> Share:
    from fastload.packing.cluster.store_pack import share_in_store

    return share_in_store(source, str(output), options, shares, observer)


@contextmanager
def words_for_errors(output: str | os.PathLike[str]) -> Iterator[None]:
    """Turns what the system says into a PackError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FastloadError):
            raise
        raise PackError(f"cannot pack into {Path(output).absolute()}: {error}.") from error


def _pack(
    targets: list[Target], output: Path, options: PackOptions, shares: Shares | None, observer: Observer
) -> Share:
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
        return Share(output, total, tuple(asked), written, finished, published, files, size)


def totals_of(plans: list[PackPlan | Manifest]) -> tuple[int, int, int]:
    """Shards, files and bytes of plans, or of what has become of them."""
    files = sum(p.totals.files if isinstance(p, PackPlan) else p.num_records for p in plans)
    size = sum(p.totals.bytes if isinstance(p, PackPlan) else p.data_bytes for p in plans)
    return sum(len(plan.shards) for plan in plans), files, size


def asked_of(shares: Shares | None, total: int) -> list[int]:
    """The numbers of the shards that a pack is to see to; without shares none."""
    return shares.numbers(total) if shares is not None else []


def _write(job: ShareJob, numbers: list[int], observer: Observer) -> int:
    """See to it that some shards are there; returns how many were written here."""
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
    """Say that ``numbers`` of a job will be there, of which some are missing; look whether there is room."""
    plan = job.plan
    others = {shard.name for shard in plan.shards} - {plan.shards[number].name for number in missing}
    require_space(job.output, planned_bytes(plan, job.output / WORK_NAME, frozenset(others)))
    observer.started(packing_work(plan, job.output, numbers, missing))


def _wait(job: ShareJob, missing: list[int], observer: Observer) -> None:
    """Until one of the shards that others write is there, or nobody writes it any more."""
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
