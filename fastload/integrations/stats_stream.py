"""A loader's clocks as a stream of plain numbers: every ``n`` steps, what has changed since the last call.

For MLflow, Weights & Biases, or a file::

    from fastload.integrations.stats_stream import Every

    log = Every(50, loader, lambda step, values: mlflow.log_metrics(values, step=step))
    for batch in loader:
        train(batch)
        log.step()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fastload.loader.view import Clocks

_STAGES = {"shard": "read", "decode": "decode", "transform": "transform"}
_OF_THE_WORLD, _OF_A_SOURCE = ("size", "changes"), ("share", "wish")


class Every:
    """A counter of steps that calls back with a flat dict of numbers after every ``n`` of them.

    The loader does not know of it; between two calls a step costs one comparison.

    Args:
        n: steps between two calls.
        loader: the loader whose clocks are read.
        callback: called with the number of the step, from 1 or as given to :meth:`step`, and the numbers of
            :func:`scalars`, in the loop's own thread. Its exceptions come out of :meth:`step`.
        prefix: put before each name.
    """

    def __init__(
        self,
        n: int,
        loader: Clocks,
        callback: Callable[[int, dict[str, float]], object],
        prefix: str = "fastload/",
    ) -> None:
        if n < 1:
            raise ValueError(f"n, the steps between two calls, must be >= 1. Found: {n}.")
        self._n = n
        self._loader = loader
        self._callback = callback
        self._prefix = prefix
        self._steps = 0
        self._before, self._began = loader.stats(), time.perf_counter()

    def step(self, number: int | None = None) -> None:
        """Count a step.

        Args:
            number: passed to the callback; None: how many steps were counted.
        """
        self._steps += 1
        if self._steps % self._n:
            return
        now, after = time.perf_counter(), self._loader.stats()
        numbers = scalars(self._before, after, now - self._began)
        self._before, self._began = after, now
        named = {f"{self._prefix}{name}": value for name, value in numbers.items()}
        self._callback(self._steps if number is None else number, named)


def scalars(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Compute what happened between two ``loader.stats()``.

    Args:
        seconds: time between them.

    Returns:
        ``images_per_second``; ``data_wait_percent`` of the time; ``data_wait_ms`` per batch;
        ``samples_ahead``: decoded and not yet delivered; ``faults``; with decoding threads ``threads``, how
        many were ``busy_threads``, ``read_ms``, ``decode_ms`` and ``transform_ms`` per sample on a thread,
        ``encoded_mb_per_second``; with read-ahead ``storage_mb_per_second`` and ``late_records``; with the
        node cache ``cache_hit_percent``; with a device ``transfer_ms`` per batch and
        ``device_blocked_percent`` of the time; where ranks divide the samples ``world_size`` and
        ``world_changes`` so far; of a set with generations ``generation``; of a mixture, for each source,
        ``share/SOURCE`` so far and ``wish/SOURCE``. What did not happen has no mean and is left out.
    """
    seconds = max(seconds, 1e-9)

    def grown(*path: str) -> float:
        return _at(after, path) - _at(before, path)

    batches, decoded = grown("data_wait", "count"), grown("stages", "decode", "count")
    numbers = {
        "images_per_second": grown("samples") / seconds,
        "data_wait_percent": 100 * grown("data_wait", "seconds") / seconds,
        "faults": grown("faults"),
    }
    if batches:
        numbers["data_wait_ms"] = 1e3 * grown("data_wait", "seconds") / batches
    if after["threads"]:
        spent = {word: grown("stages", name, "seconds") for name, word in _STAGES.items()}
        numbers["threads"] = float(after["threads"])
        numbers["busy_threads"] = sum(spent.values()) / seconds
        numbers["samples_ahead"] = _at(after, ("stages", "decode", "count")) - float(after["samples"])
        numbers["encoded_mb_per_second"] = grown("bytes") / seconds / 1e6
        if decoded:
            numbers |= {f"{word}_ms": 1e3 * value / decoded for word, value in spent.items()}
    if after["read_ahead"]:
        numbers["storage_mb_per_second"] = grown("read_ahead", "bytes") / seconds / 1e6
        numbers["late_records"] = grown("read_ahead", "late")
    asked = grown("cache", "hits") + grown("cache", "misses")
    if asked:
        numbers["cache_hit_percent"] = 100 * grown("cache", "hits") / asked
    if batches and "transfer" in after["stages"]:
        numbers["transfer_ms"] = 1e3 * grown("stages", "transfer", "seconds") / batches
        numbers["device_blocked_percent"] = 100 * grown("stages", "transfer", "blocked_seconds") / seconds
    return numbers | _places(after)


def sources(stats: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the sources of a mixture by where they are; one that comes again has a number, too."""
    found: dict[str, Mapping[str, Any]] = {}
    for number, source in enumerate(stats.get("mixture", ())):
        found[f"{source['where']} ({number})" if source["where"] in found else source["where"]] = source
    return found


def _places(stats: Mapping[str, Any]) -> dict[str, float]:
    """Return what is not counted between two points: ranks, generation, and a mixture's shares."""
    numbers = {f"world_{name}": float(stats["world"][name]) for name in _OF_THE_WORLD if "world" in stats}
    if "generation" in stats:
        numbers["generation"] = float(stats["generation"])
    for title, source in sources(stats).items():
        numbers |= {f"{name}/{title}": float(source[name]) for name in _OF_A_SOURCE}
    return numbers


def _at(stats: Mapping[str, Any], path: tuple[str, ...]) -> float:
    """Return a number in nested dicts, or 0 if it is not counted."""
    value: Any = stats
    for name in path:
        value = value.get(name, {}) if isinstance(value, Mapping) else {}
    return float(value) if isinstance(value, (int, float)) else 0.0
