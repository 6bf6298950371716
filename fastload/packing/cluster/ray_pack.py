"""``--ray`` of ``pack``, ``index`` and ``verify``: the same work, spread over a Ray cluster's machines.

All of them see source and dataset under the same names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from fastload.errors import PackError
from fastload.packing.cluster.job import ShareJob
from fastload.packing.cluster.on_ray import RayCluster
from fastload.packing.cluster.opening import discard, opened, targets_of, waited
from fastload.packing.cluster.packer import begin, words_for_errors
from fastload.packing.cluster.publish import publish_shares
from fastload.packing.entries import Made, Maker, entries_of
from fastload.packing.options import PackOptions
from fastload.packing.packer import bad_files
from fastload.packing.plan import PackPlan
from fastload.packing.progress import Observer
from fastload.packing.result import PackResult
from fastload.packing.shard_job import BadFiles, Closes
from fastload.packing.spans import opened_once, spans_of
from fastload.remote.location import is_url
from fastload.shard.dataset import PackedFiles

__all__ = ["pack_on_ray", "ray_entries"]


def pack_on_ray(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    address: str,
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> list[PackResult]:
    """Pack as :func:`fastload.packing.pack` does, shard by shard on a Ray cluster, and publish.

    Killed at any moment, the same call goes on; a worker that dies is replaced by Ray.

    Args:
        address: see :class:`~fastload.packing.cluster.on_ray.RayCluster`.

    Raises:
        PackError: see :func:`fastload.packing.pack`; also without Ray, or a cluster.
    """
    options, observer = options or PackOptions(), observer or Observer()
    if is_url(output):
        from fastload.packing.cluster.store_pack import pack_into_store

        with RayCluster(address, options.num_proc) as cluster:
            return pack_into_store(source, str(output), options, observer, cluster.as_finished)
    began = time.monotonic()
    with words_for_errors(output):
        if options.restart:
            for target in targets_of(source, output, options):
                discard(target)
            options = replace(options, restart=False)
        targets = targets_of(source, output, options)
        written = [0] * len(targets)
        with ExitStack() as stack:
            plans = [stack.enter_context(opened(target, options, observer)) for target in targets]
            jobs = [
                (number, ShareJob(target.output, target.source.root, options, plan, target.source.store))
                for number, (target, plan) in enumerate(zip(targets, plans, strict=True))
                if isinstance(plan, PackPlan)
            ]
            if jobs:
                cluster = stack.enter_context(RayCluster(address, options.num_proc))
                for number, job in jobs:
                    written[number] = _write(cluster, job, observer)
    packed = time.monotonic() - began
    results = publish_shares(source, output, options, observer)
    return [
        replace(result, seconds=result.seconds + packed, written_bytes=size)
        for result, size in zip(results, written, strict=True)
    ]


def _write(cluster: RayCluster, job: ShareJob, observer: Observer) -> int:
    """Write the shards of a plan that are missing; returns their source bytes."""
    numbers = list(range(len(job.plan.shards)))
    missing = [number for number in numbers if not job.is_finished(number)]
    begin(job, numbers, missing, observer)
    written = 0
    try:
        for number, mine in cluster.as_finished(_write_one, job, missing):
            shard = job.plan.shards[number]
            written += shard.bytes if mine else 0
            observer.advanced(shard.stop - shard.start, shard.bytes)
    except BadFiles as error:
        raise PackError(bad_files(error.failures)) from None
    return written


def _write_one(job: ShareJob, number: int) -> bool:
    """On a worker: write a shard, unless another pack does, or a worker of a driver that has died."""
    held: list[Closes] = []

    def settled() -> bool:
        claimed = job.claim(number)
        held.extend([claimed] if claimed is not None else [])
        return claimed is not None or job.is_finished(number)

    waited(settled)
    if not held:
        return False
    try:
        job.publish(number, job.write(number, lambda files, size: None))
    finally:
        held[0].close()
    return True


def ray_entries(cluster: RayCluster, observer: Observer) -> Maker:
    """What makes a dataset's entry points on a cluster, as ``fastload.packing.entries`` takes it."""

    def made(dataset: PackedFiles, spacing: int) -> Iterator[Made]:
        spans = spans_of(dataset.manifest)
        common = (dataset.folder, dataset.id, spacing)
        for (start, stop), found in zip(spans, cluster.in_order(_entries, common, spans), strict=True):
            yield from found
            observer.advanced(stop - start)

    return made


def _entries(common: tuple[Path, str, int], span: tuple[int, int]) -> list[Made]:
    """On a worker: the entry points of some samples."""
    folder, packed_as, spacing = common
    return list(entries_of(opened_once(folder, packed_as).reader, range(*span), spacing, 1))
