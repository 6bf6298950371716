"""One set packed by Ray, with one task per shard."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from fastload.errors import FastloadError, PackError
from fastload.extras import need
from fastload.packing.cluster import (
    begin,
    discard,
    opened,
    publish_shares,
    targets_of,
    waited,
    words_for_errors,
)
from fastload.packing.entries import Made, Maker, entries_of
from fastload.packing.fetched import opened_once, spans_of
from fastload.packing.options import PackOptions
from fastload.packing.packer import bad_files
from fastload.packing.plan import PackPlan
from fastload.packing.progress import Observer
from fastload.packing.publish import PackResult
from fastload.packing.shares import ShareJob
from fastload.packing.work import BadFiles, Claim
from fastload.remote.location import is_url
from fastload.shard.dataset import PackedFiles

# ---- Tasks on a Ray cluster -------------------------------------------------------------------------
# This uses Ray's plain core and keeps nothing in actors, so that any worker may die.

LOCAL = "local"  # the address of a cluster on this machine, for this command only
_RETRIES = 5  # of a task whose worker or machine died
_AHEAD = 4  # waiting tasks per CPU of the cluster: enough to keep it busy, and to make it grow
_PATIENCE = 20  # seconds for a cluster's first answer
Item = TypeVar("Item")
Result = TypeVar("Result")


class RayCluster:
    """A context manager for a cluster that takes tasks.

    Args:
        address: as ``ray.init`` takes it (``auto``, ``HOST:PORT``, ``ray://HOST:PORT``); :data:`LOCAL`: this
            machine, for as long as the context lasts. If the program has initialised Ray, that is used.
        at_once: tasks at a time; None: as many as there are CPUs.

    Raises:
        LibraryMissing: Ray is not installed.
    """

    def __init__(self, address: str, at_once: int | None = None) -> None:
        need("ray", "--ray")
        import ray

        self._ray: Any = ray
        self._address, self._at_once, self._mine = address, at_once, False

    def __enter__(self) -> RayCluster:
        if self._ray.is_initialized():
            return self
        try:
            if self._address == LOCAL:
                cpus = self._at_once or len(os.sched_getaffinity(0))
                self._ray.init("local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
            else:
                _require_answer(self._address)
                self._ray.init(self._address, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise PackError(
                f"there is no Ray cluster at {self._address!r} ({error}); 'ray start --head' makes one, and "
                f"--ray {LOCAL} needs none."
            ) from None
        self._mine = True
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._mine:
            self._ray.shutdown()

    def in_order(
        self, function: Callable[[Any, Item], Result], common: Any, items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yield ``function(common, item)`` of each item, in the items' order, with some tasks ahead.

        Raises:
            BadFiles, PackError: as the function raises them; workers died again and again.
        """
        running: list[Any] = []
        task, shared = self._task(), self._ray.put(common)
        most = self._most()
        try:
            for item in items:
                running.append(task.remote(function, shared, item))
                if len(running) >= most:
                    yield self._result(running.pop(0))
            while running:
                yield self._result(running.pop(0))
        finally:
            self._cancel(running)

    def as_finished(
        self, function: Callable[[Any, Item], Result], common: Any, items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        """Yield item and ``function(common, item)`` of each item, as the tasks finish.

        Raises:
            BadFiles: with the bad files of all tasks in work.
            PackError: as the function raises it; workers died again and again.
        """
        task, shared = self._task(), self._ray.put(common)
        running: dict[Any, Item] = {}
        waiting, most = iter(items), self._most()
        bad: list[tuple[str, str]] = []
        try:
            while True:
                while len(running) < most and not bad:
                    item = next(waiting, None)
                    if item is None:
                        break
                    running[task.remote(function, shared, item)] = item
                if not running:
                    break
                done, _ = self._ray.wait(list(running), num_returns=1)
                for reference in done:
                    try:
                        result = self._result(reference)
                    except BadFiles as error:
                        bad += error.failures
                        del running[reference]
                    else:
                        yield running.pop(reference), result
        finally:
            self._cancel(list(running))
        if bad:
            raise BadFiles(sorted(bad))

    def _task(self) -> Any:
        return self._ray.remote(num_cpus=1, max_retries=_RETRIES)(_guarded)

    def _most(self) -> int:
        if self._at_once is not None:
            return self._at_once
        return max(1, int(_AHEAD * self._ray.cluster_resources().get("CPU", 1)))

    def _cancel(self, running: list[Any]) -> None:
        for reference in running:
            self._ray.cancel(reference)

    def _result(self, reference: Any) -> Any:
        try:
            kind, value = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise PackError(f"a task of the Ray cluster failed: {error}") from None
        except self._ray.exceptions.RayError as error:
            raise PackError(
                f"a Ray worker died {_RETRIES + 1} times over the same work ({error}). Run the same command "
                "again: finished shards are kept."
            ) from None
        if kind == "bad files":
            raise BadFiles(value)
        if kind == "error":
            raise PackError(value)
        return value


def _require_answer(address: str) -> None:
    """Raise OSError if nobody listens at HOST:PORT, since Ray would wait for minutes."""
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), _PATIENCE).close()


def _guarded(function: Callable[[Any, Any], Any], common: Any, item: Any) -> tuple[str, Any]:
    """Run a function on a worker and return errors as words, which Ray would wrap into tracebacks."""
    try:
        return "done", function(common, item)
    except BadFiles as error:
        return "bad files", error.failures
    except (FastloadError, OSError) as error:
        return "error", str(error)


# ---- ``--ray`` of ``pack``, ``index`` and ``verify`` ------------------------------------------------
# The same work is spread over a Ray cluster's machines, which all see source and dataset under the same
# names.


def pack_on_ray(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    address: str,
    options: PackOptions | None = None,
    observer: Observer | None = None,
) -> list[PackResult]:
    """Pack like :func:`fastload.packing.pack`, shard by shard on a Ray cluster, and publish.

    After a kill at any moment, the same call resumes; Ray replaces a worker that dies.

    Args:
        address: see :class:`~fastload.packing.ray.RayCluster`.

    Raises:
        PackError: see :func:`fastload.packing.pack`; also if Ray or the cluster is missing.
    """
    options, observer = options or PackOptions(), observer or Observer()
    if is_url(output):
        from fastload.packing.store_target import pack_into_store

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
    """Write the missing shards of a plan; return their source bytes."""
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
    """Write a shard on a worker, unless another pack does, or a worker whose driver has died."""
    held: list[Claim] = []

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
    """Return the maker of a dataset's entry points on a cluster, for ``fastload.packing.entries``."""

    def made(dataset: PackedFiles, spacing: int) -> Iterator[Made]:
        spans = spans_of(dataset.manifest)
        common = (dataset.folder, dataset.id, spacing)
        for (start, stop), pieces in zip(spans, cluster.in_order(_entries, common, spans), strict=True):
            yield from pieces
            observer.advanced(stop - start)

    return made


def _entries(common: tuple[Path, str, int], span: tuple[int, int]) -> list[Made]:
    """Make the entry points of some samples on a worker."""
    folder, packed_as, spacing = common
    return list(entries_of(opened_once(folder, packed_as).reader, range(*span), spacing, 1))
