"""A loader's clocks as a stream of plain numbers: every so many steps, what has changed since.

For MLflow, Weights & Biases, or a file of one's own::

    from fastload.integrations.stats_stream import Every

    log = Every(50, loader, lambda step, values: mlflow.log_metrics(values, step=step))
    for batch in loader:
        train(batch)
        log.step()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader


_STAGES = {"shard": "read", "decode": "decode", "transform": "transform"}


class Every:
    """Calls back with a flat dict of numbers after every ``n`` steps of a training loop.

    The loader knows nothing of it; between two calls a step costs a comparison.

    Args:
        n: steps between two calls.
        loader: whose clocks are read.
        callback: called with the number of the step, from 1 or as given to :meth:`step`, and the numbers of
            :func:`scalars`, in the loop's own thread. What it raises comes out of :meth:`step`.
        prefix: goes before each name.
    """

    def __init__(
        self,
        n: int,
        loader: DataLoader[Any],
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
            number: what the callback is told; None: how many steps were counted.
        """
        self._steps += 1
        if self._steps % self._n:
            return
        now, after = time.perf_counter(), self._loader.stats()
        found = scalars(self._before, after, now - self._began)
        self._before, self._began = after, now
        named = {f"{self._prefix}{name}": value for name, value in found.items()}
        self._callback(self._steps if number is None else number, named)


def scalars(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """What happened between two ``loader.stats()``.

    Args:
        seconds: between them.

    Returns:
        ``images_per_second``; ``data_wait_percent`` of the time; ``data_wait_ms`` a batch; ``samples_ahead``:
        decoded and not yet delivered; ``faults``; with threads of ours ``threads``, how many of them were
        ``busy_threads``, ``read_ms``, ``decode_ms`` and ``transform_ms`` a sample on a thread,
        ``encoded_mb_per_second``; with reading ahead ``storage_mb_per_second`` and ``late_records``; with the
        node cache ``cache_hit_percent``; with a device ``transfer_ms`` a batch and ``device_blocked_percent``
        of the time. What did not happen in between has no mean and is left out.
    """
    seconds = max(seconds, 1e-9)

    def grown(*path: str) -> float:
        return _at(after, path) - _at(before, path)

    batches, decoded = grown("data_wait", "count"), grown("stages", "decode", "count")
    found = {
        "images_per_second": grown("samples") / seconds,
        "data_wait_percent": 100 * grown("data_wait", "seconds") / seconds,
        "faults": grown("faults"),
    }
    if batches:
        found["data_wait_ms"] = 1e3 * grown("data_wait", "seconds") / batches
    if after["threads"]:
        spent = {word: grown("stages", name, "seconds") for name, word in _STAGES.items()}
        found["threads"] = float(after["threads"])
        found["busy_threads"] = sum(spent.values()) / seconds
        found["samples_ahead"] = _at(after, ("stages", "decode", "count")) - float(after["samples"])
        found["encoded_mb_per_second"] = grown("bytes") / seconds / 1e6
        if decoded:
            found |= {f"{word}_ms": 1e3 * value / decoded for word, value in spent.items()}
    if after["read_ahead"]:
        found["storage_mb_per_second"] = grown("read_ahead", "bytes") / seconds / 1e6
        found["late_records"] = grown("read_ahead", "late")
    asked = grown("cache", "hits") + grown("cache", "misses")
    if asked:
        found["cache_hit_percent"] = 100 * grown("cache", "hits") / asked
    if batches and "transfer" in after["stages"]:
        found["transfer_ms"] = 1e3 * grown("stages", "transfer", "seconds") / batches
        found["device_blocked_percent"] = 100 * grown("stages", "transfer", "blocked_seconds") / seconds
    return found


def _at(stats: Mapping[str, Any], path: tuple[str, ...]) -> float:
    """A number within nested dicts; 0 where something does not count it."""
    found: Any = stats
    for name in path:
        found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return float(found) if isinstance(found, (int, float)) else 0.0
