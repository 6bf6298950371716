"""Work that is spread over a Ray cluster: shards to pack, files to index, records to verify."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar

from fastload.errors import FastloadError, PackError
from fastload.extras import need
from fastload.packing.options import PackOptions
from fastload.packing.spread import BadFiles

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
        annotations: list[tuple[str, str]] = []
        try:
            while True:
                while len(running) < most and not bad and not annotations:
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
                        annotations += error.annotations
                        del running[reference]
                    else:
                        yield running.pop(reference), result
        finally:
            self._cancel(list(running))
        if bad or annotations:
            raise BadFiles(sorted(bad), sorted(annotations))

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
            raise BadFiles(*value)
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
        return "bad files", (error.failures, error.annotations)
    except (FastloadError, OSError) as error:
        return "error", str(error)


class LazyCluster:
    """A context manager for a cluster that is asked for when there is work for it.

    Args:
        address: see :class:`RayCluster`; None: there is none.
        options: those of the pack, with the number of tasks at a time.
    """

    def __init__(self, address: str | None, options: PackOptions) -> None:
        self.address, self._at_once = address, options.num_proc
        self._stack = ExitStack()
        self._cluster: RayCluster | None = None

    def __enter__(self) -> LazyCluster:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def opened(self) -> RayCluster:
        """Return the cluster."""
        assert self.address is not None
        if self._cluster is None:
            self._cluster = self._stack.enter_context(RayCluster(self.address, self._at_once))
        return self._cluster
