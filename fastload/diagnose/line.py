"""How fast a store gives records: read ahead by the engine as in training, and never decoded."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.diagnose.storage import Storage, steady
from fastload.diagnose.subject import Subject
from fastload.prefetch.read_ahead import plan_read_ahead
from fastload.transforms import RandomResizedCrop
from fastload.transforms.compiler import compile_plan

__all__ = ["Fetching", "measure_line"]

_SIDE = 224  # of the crop that is never cut
_LOOK = 0.005  # seconds
_PATIENCE = 10.0  # seconds for the first record
_ENOUGH = 128  # records; fewer are waited for ...
_LONGEST = 4.0  # ... so many times as long
_REST = 0.3  # seconds in which nothing comes: what was under way has come
_LONGEST_REST = 3.0
_ALONE = 8  # records that are asked for one by one
_ALONE_SECONDS = 1.0


def measure_line(subject: Subject, seconds: float) -> Storage | None:
    """What the store of a set gives at random and in order; None: nothing came in ten seconds."""
    dataset = subject.given
    random = np.random.default_rng(0).permutation(subject.records).astype(np.int64)
    orderly = np.roll(np.arange(subject.records, dtype=np.int64), -int(random[0]))
    ahead = plan_read_ahead(dataset, subject.core)
    found: list[tuple[float, float]] = []
    engine = _engine(dataset, ahead.buffer_bytes)
    try:
        fetching = Fetching(engine, subject.batch_size, max(ahead.samples, subject.batch_size))
        for ids in (random, orderly):
            rates = fetching.rates(ids, seconds)
            if rates is None:
                return None
            found.append(rates)
            fetching.rest()
    finally:
        engine.close()
    (scattered, given), (in_order, _) = found
    stores = sorted({str(part.location) for part in dataset.parts if part.location is not None})
    evidence = (
        f"The engine read ahead for {seconds:.1f} s each, at random and in order, with as many requests at "
        "once as in training, and decoded nothing"
    )
    latency = _latency(dataset, random)
    in_order = max(in_order, scattered)  # on a slow line no range of many records may have come in time
    return Storage(scattered, in_order, 0.0, latency, given, True, evidence, " and ".join(stores))


def _engine(dataset: Any, buffers: int) -> Any:
    plan = compile_plan(RandomResizedCrop(_SIDE))
    return _C.Engine(
        sources=dataset.sources,
        geometry=plan.geometry_spec(),
        store=plan.store_spec(),
        out_height=_SIDE,
        out_width=_SIDE,
        seed=0,
        threads=1,
        max_pixels=1,
        fallback=None,
        read_ahead=buffers,
    )


def _latency(dataset: Any, ids: npt.NDArray[np.int64]) -> float:
    """Median seconds of one record after the other."""
    end, found = time.monotonic() + _ALONE_SECONDS, []
    for sample in ids[:_ALONE].tolist():
        part, number = dataset.locate(sample)
        began = time.perf_counter()
        part.reader.read(number)
        found.append(time.perf_counter() - began)
        if time.monotonic() > end:
            break
    return float(np.median(found))


class Fetching:
    """Announces batches as a loader does, and forgets them when they have come.

    Args:
        engine: ``_C.Engine``, or what announces, forgets and counts as it does.
        batch: samples that are announced together.
        ahead: samples that are asked for at a time.
        clock, sleep: seconds.
    """

    def __init__(
        self,
        engine: Any,
        batch: int,
        ahead: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._engine, self._batch, self._ahead = engine, batch, ahead
        self._clock, self._sleep = clock, sleep

    def rates(self, ids: npt.NDArray[np.int64], seconds: float) -> tuple[float, float] | None:
        """Records and bytes per second, without what came in a burst at first; None: nothing came.

        Args:
            ids: of the samples, again and again.
            seconds: longer, where few come in that time.
        """
        starts = range(0, len(ids), self._batch)
        chunks = itertools.cycle([ids[at : at + self._batch] for at in starts])
        waiting: deque[tuple[Any, int]] = deque()  # and how many records have come when it has
        before = self._engine.read_ahead()
        asked = records = size = 0
        began = self._clock()
        come: list[tuple[float, int, int]] = []
        while (now := self._clock()) - began < self._until(seconds, records):
            counts = self._engine.read_ahead()
            some, got = counts["ahead"] - before["ahead"], counts["bytes"] - before["bytes"]
            if some > records:
                come.append((now, some - records, got - size))
                records, size = some, got
            while waiting and waiting[0][1] <= records:
                self._engine.forget(waiting.popleft()[0])
            while asked - records < self._ahead:
                chunk = next(chunks)
                asked += len(chunk)
                waiting.append((self._engine.announce(chunk), asked))
            self._sleep(_LOOK)
        for handle, _ in waiting:
            self._engine.forget(handle)
        if not come:
            return None
        burst = seconds / 3  # connections begin, and others' buffers empty
        return (
            steady([(when, count) for when, count, _ in come], began, burst),
            steady([(when, got) for when, _, got in come], began, burst),
        )

    def _until(self, seconds: float, records: int) -> float:
        if records >= _ENOUGH:
            return seconds
        return _LONGEST * seconds if records else max(_PATIENCE, seconds)

    def rest(self) -> None:
        """Wait for what was under way when it was forgotten, which would be counted next."""
        quiet = began = self._clock()
        known = self._engine.read_ahead()["ahead"]
        while (now := self._clock()) - quiet < _REST and now - began < _LONGEST_REST:
            self._sleep(_LOOK)
            come = self._engine.read_ahead()["ahead"]
            quiet, known = (now, come) if come > known else (quiet, known)
