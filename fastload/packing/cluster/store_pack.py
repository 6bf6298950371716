"""Packing into a store: plan, shards and publication by URL, alone, in shares, or on Ray."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.packing.cluster.opening import check_identity, sources_of
from fastload.packing.cluster.packer import Share, asked_of, totals_of
from fastload.packing.cluster.shares import Shares
from fastload.packing.cluster.store_job import StoreJob
from fastload.packing.cluster.store_publish import publish_target, require_shards
from fastload.packing.cluster.store_target import StoreTarget, target_at
from fastload.packing.options import PackOptions
from fastload.packing.packer import bad_files, fitting_processes, known_samples
from fastload.packing.plan import PackPlan, check_options, packing_work
from fastload.packing.pool import write_shards
from fastload.packing.progress import Observer
from fastload.packing.result import PackResult
from fastload.packing.shard_job import BadFiles
from fastload.packing.source import Source
from fastload.remote.location import Location
from fastload.shard.manifest import Manifest

__all__ = ["Spread", "pack_into_store", "publish_in_store", "share_in_store"]

# Calls a function with a job and each number; gives number and result as they come to their end.
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
    """All splits with their plans, made where there are none (``plans`` False: that is an error), and a
    folder of this machine for each, which goes in the end."""
    if known_samples(source, options):
        raise PackError(f"{source} has samples of fields, which are packed into a folder of this machine.")
    try:
        root = Location.parse(output)
    except ValueError as error:
        raise PackError(str(error)) from None
    if not root.path:
        raise PackError(f"{root} is a whole store; give a folder in it, {root}/NAME.")
    with tempfile.TemporaryDirectory(prefix="fastload-pack-") as folder:
        splits, whole = [], target_at(root, options.storage_options)
        known = None if options.restart else whole.manifest() or whole.plan(Path(folder))
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
    source: Any, output: str, options: PackOptions, shares: Shares | None, observer: Observer
) -> Share:
    """See :func:`~fastload.packing.cluster.packer.pack_shares` and ``plan_shares`` (``shares`` None)."""
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
        return Share(where, total, tuple(asked), written, finished, published, files, size)


def pack_into_store(
    source: Any, output: str, options: PackOptions, observer: Observer, spread: Spread | None = None
) -> list[PackResult]:
    """See :func:`fastload.packing.pack`; ``spread``: writes shards otherwise than by processes from here."""
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
    """See :func:`~fastload.packing.cluster.publish.publish_shares`."""
    with _opened(source, output, options, observer, plans=False) as splits:
        return _published(splits, output, options, observer)


def _published(
    splits: list[_Split], output: str, options: PackOptions, observer: Observer
) -> list[PackResult]:
    # Another pack of the same may have published meanwhile, and removed the parts.
    splits = [replace(split, plan=split.target.manifest() or split.plan) for split in splits]
    missing, first = [], 0
    for split in splits:
        missing += [first + number for number in _missing(split)]
        first += len(split.plan.shards)
    require_shards(output, missing, first)
    return [publish_target(one.target, one.stage, one.plan, options, observer) for one in splits]


def _missing(split: _Split) -> list[int]:
    """The shards that are not there, or not as their parts say."""
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
    """See to it that some shards are there; how many were written here, and their source bytes."""
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
    """On a worker of another machine: write a shard in a folder of its own; False: it was there."""
    if job.is_finished(number):
        return False
    with tempfile.TemporaryDirectory(prefix="fastload-pack-") as folder:
        here = replace(job, output=Path(folder) / job.output.name)
        here.publish(number, here.write(number, lambda files, size: None))
    return True
