"""Clocks and counts of a loader, for each stage: what ``stats()`` returns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fastload.machine.threads import ForkSafeLock
from fastload.sample.layout import PACK_OFFSETS, VALID

_OF_ONE_CACHE_USER = ("hits", "misses", "stored", "damaged", "failed")

# Names in batches that are dicts, of fields and by ``collate``, that have a row for each sample.
_LONG_AS_BATCH = (VALID, "pixel_mask", "img")


@dataclass(frozen=True)
class Counts:
    """The counts of a back end since it was made; empty for what it does not have.

    Args:
        threads: each decoding thread's clocks, from ``_C.Engine.stats()``.
        read_ahead: from ``_C.Engine.read_ahead()``.
        cache: see :meth:`fastload.cache.opening.CacheUse.stats`.
        transfer: the transfer's clocks; see :func:`stage_stats`.
        kept: pictures kept for mosaics, from ``_C.Engine.kept()``.
        decoders: of several decoders; see :meth:`fastload.backends.dali.backend.DaliBackend.counts`.
    """

    threads: Sequence[dict[str, Any]] = ()
    read_ahead: dict[str, int] = field(default_factory=dict)
    cache: dict[str, Any] = field(default_factory=dict)
    transfer: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    decoders: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def sum(cls, found: Sequence[Counts]) -> Counts:
        """Add up several back ends of one loader, with the node cache's own numbers only once."""
        caches = [counts.cache for counts in found]
        own = [{name: cache[name] for name in _OF_ONE_CACHE_USER if name in cache} for cache in caches]
        return cls(
            threads=[thread for counts in found for thread in counts.threads],
            read_ahead=_summed([counts.read_ahead for counts in found]),
            cache={**(caches[0] if caches else {}), **_summed(own)},
            transfer=_summed([counts.transfer for counts in found]),
            kept=_summed([counts.kept for counts in found]),
            decoders=_summed([counts.decoders for counts in found]),
        )


def _summed(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up numbers by name, also in nested dicts; take the first of anything else."""
    total: dict[str, Any] = {}
    for name in dict.fromkeys(name for counts in found for name in counts):
        values = [counts[name] for counts in found if name in counts]
        if isinstance(values[0], dict):
            total[name] = _summed(values)
        elif isinstance(values[0], (int, float)) and not isinstance(values[0], bool):
            total[name] = sum(values)
        else:
            total[name] = values[0]
    return total


def batch_length(batch: Any, default: int) -> int:
    """Return the samples in a batch: the length of its last tensor or list of dicts, else ``default`` (for a
    user's collate function)."""
    last = batch[-1] if isinstance(batch, (tuple, list)) and batch else None
    if isinstance(batch, dict):
        last = next((batch[name] for name in _LONG_AS_BATCH if name in batch), None)
        if PACK_OFFSETS in batch and "documents" in batch:  # rows are packs: their samples are counted
            last = getattr(batch["documents"], "values", last)
    if isinstance(last, list) and all(isinstance(target, dict) for target in last):
        return len(last)
    try:
        return int(last.shape[0])  # type: ignore[union-attr]
    except Exception:  # anything: a batch may be of any type; nested tensors raise for their shape
        return default


@dataclass
class ConsumerClock:
    """A clock of the consumer: how long it waited for data, and how long in all.

    Threads may share it. Simultaneous waits of several threads add up.
    """

    batches: int = 0
    samples: int = 0
    wait_seconds: float = 0.0  # inside next()
    first_batch_seconds: float | None = None  # from the first next() to its batch
    _began: float | None = field(default=None, repr=False)
    _ended: float = field(default=0.0, repr=False)
    _lock: ForkSafeLock = field(default_factory=ForkSafeLock, repr=False)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as data wait."""
        start = time.perf_counter()
        if self._began is None:
            self._began = start
        try:
            yield
        finally:
            with self._lock.held():
                self._ended = time.perf_counter()
                self.wait_seconds += self._ended - start

    def delivered(self, samples: int) -> None:
        """Count one batch of ``samples``."""
        with self._lock.held():
            self.batches += 1
            self.samples += samples
        if self.first_batch_seconds is None and self._began is not None:
            self.first_batch_seconds = time.perf_counter() - self._began

    @property
    def total_seconds(self) -> float:
        """Seconds from the first next() to the last one's return."""
        return self._ended - self._began if self._began is not None else 0.0


def stage_stats(clock: ConsumerClock, counts: Counts, entries_damaged: int = 0) -> dict[str, Any]:
    """Return a loader's clocks and counts since it was made, as one dict.

    Args:
        clock: the consumer's.
        counts: the back ends'.
        entries_damaged: how many records were decoded without their entry points, which are damaged.

    Returns:
        ``stages``: for shard, decode and transform the ``seconds`` summed over threads and the ``count`` of
        samples; for prefetch the ``seconds`` for which threads had nothing to do; for transfer the
        ``seconds`` of the copy engine, the ``count`` of batches and ``bytes`` copied, ``host_copies`` of
        pixels between decoding and the bus, ``blocked_seconds`` for which the consumer waited for the device
        to release a slot, and ``pinned_bytes`` (each if known). ``data_wait``: the consumer's ``seconds``,
        their ``share`` of the time since the first batch was requested, and the ``count`` of batches.
        ``decoded``: records by decoding path. ``entries_damaged``, ``samples``, ``bytes`` (encoded),
        ``faults``, ``threads``, ``images_per_second`` (over the consumer's whole time),
        ``first_batch_seconds``, ``read_ahead``, ``cache``. For mosaics ``kept``: pictures ``used_again``, and
        the ``bytes`` kept now. ``decoders``, if there are several.
    """
    threads = counts.threads
    samples = sum(thread["samples"] for thread in threads)
    stages: dict[str, dict[str, Any]] = {
        name: {"seconds": sum(thread["seconds"][name] for thread in threads), "count": samples}
        for name in ("shard", "decode", "transform")
    }
    idle = sum(thread["seconds"]["idle"] for thread in threads)
    stages["prefetch"] = {"seconds": idle, "count": clock.batches}
    if counts.transfer:
        stages["transfer"] = counts.transfer
    paths = threads[0]["decoded"] if threads else {}
    total = clock.total_seconds
    return {
        "stages": stages,
        "data_wait": {
            "seconds": clock.wait_seconds,
            "share": clock.wait_seconds / total if total > 0 else 0.0,
            "count": clock.batches,
        },
        "decoded": {path: sum(thread["decoded"][path] for thread in threads) for path in paths},
        "entries_damaged": entries_damaged,
        "samples": clock.samples,
        "bytes": sum(thread["bytes"] for thread in threads),
        "faults": sum(thread["faults"] for thread in threads),
        "threads": sum(thread["in_use"] for thread in threads),
        "images_per_second": clock.samples / total if total > 0 else 0.0,
        "first_batch_seconds": clock.first_batch_seconds,
        "read_ahead": counts.read_ahead,
        "cache": counts.cache,
        **({"kept": counts.kept} if counts.kept else {}),
        **({"decoders": counts.decoders} if counts.decoders else {}),
    }
