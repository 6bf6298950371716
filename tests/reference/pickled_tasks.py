"""A stand-in for a Ray cluster: all that a task gets and gives is pickled, as between machines."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fastload.errors import PackError
from fastload.packing.ray import _guarded
from fastload.packing.spread import BadFiles

__all__ = ["PickledTasks"]


class PickledTasks:
    """Tasks one after the other. ``count``: how many there were."""

    def __init__(self) -> None:
        self.count = 0

    def _run(self, function: Callable[[Any, Any], Any], common: Any, item: Any) -> Any:
        self.count += 1
        task = pickle.loads(pickle.dumps((function, common, item)))
        kind, value = pickle.loads(pickle.dumps(_guarded(*task)))
        if kind == "bad files":
            raise BadFiles(*value)
        if kind == "error":
            raise PackError(value)
        return value

    def in_order(self, function: Any, common: Any, items: Iterable[Any]) -> Iterator[Any]:
        """As ``RayCluster.in_order``."""
        yield from (self._run(function, common, item) for item in items)

    def as_finished(self, function: Any, common: Any, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """As ``RayCluster.as_finished``, the last one first."""
        yield from ((item, self._run(function, common, item)) for item in reversed(list(items)))

    @contextmanager
    def at(self, address: str) -> Iterator[PickledTasks]:
        """As ``ray_cluster`` of the commands."""
        yield self
