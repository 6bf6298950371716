"""How fast storage and stores deliver records that are not in memory."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.diagnose.trial import LoaderUnderTest
from fastload.machine.paths import read_at
from fastload.prefetch.engine_calls import plan_read_ahead
from fastload.transforms import RandomResizedCrop
from fastload.transforms.compiler import compile_plan

# ---- How fast storage gives records that are not in memory ------------------------------------------
# Read for a second, at random and in order.
#
# Their pages are dropped from the page cache before, by ``posix_fadvise``, which needs no root; only those
# of the ranges that are read. Pages that a process maps stay, and so does what lies on a file system in
# memory.

_READERS = 32  # as many as the loader has for reading ahead
_ORDERLY = 1 << 20  # bytes of a read in order: a block of shuffle="block"
_MOST = 256 << 20  # bytes of a sample of ranges
_SLOWEST = 16  # reads whose latency is measured alone


@dataclass(frozen=True)
class Storage:
    """What was found.

    Args:
        random, orderly: samples per second, cold.
        warm: the same from the page cache, by one thread.
        latency: seconds of one record's cold read, alone; the median.
        bytes: a second, of the random reads.
        remote: on a network file system, or in a store.
        evidence: how it was measured.
        line: where the store is; "": these are files.
    """

    random: float
    orderly: float
    warm: float
    latency: float
    bytes: float
    remote: bool
    evidence: str
    line: str = ""


Range = tuple[Path, int, int]  # file, offset, bytes


def measure_storage(subject: LoaderUnderTest, seconds: float) -> Storage | None:
    """Read records of files cold and warm; None for sets in memory, and in stores: see measure_line()."""
    if subject.in_store:
        return None
    folders = {part.folder for part in subject.parts}
    kinds = [_C.file_system(str(folder)) for folder in folders]
    if any(kind["in_memory"] for kind in kinds):
        return None
    order = np.random.default_rng(0).permutation(subject.records)[
        : max(64, int(_MOST / subject.record_bytes))
    ]
    records = _ranges(subject, order)
    blocks = _blocks(subject)
    with RangeReader() as reader:
        latency = reader.latency(records[:_SLOWEST])
        scattered = reader.rate(records[_SLOWEST:] or records, seconds)
        in_order = reader.rate(blocks, seconds)
        warm = reader.warm(records, seconds / 4)
        stayed = reader.stayed
    size = subject.record_bytes
    evidence = (
        f"{_READERS} threads read for {seconds:.1f} s each, records at random and {_ORDERLY >> 20} MiB "
        f"in order, after their pages were dropped ({stayed:.0%} stayed)"
    )
    return Storage(
        scattered / size,
        in_order / size,
        warm / size,
        latency,
        scattered,
        any(kind["remote"] for kind in kinds),
        evidence,
    )


def _ranges(subject: LoaderUnderTest, order: npt.NDArray[np.int64]) -> list[Range]:
    """Where these records lie."""
    bounds = np.cumsum([0, *(len(part) for part in subject.parts)])
    found = []
    for place in order.tolist():
        at = int(np.searchsorted(bounds, place, "right")) - 1
        part = subject.parts[at]
        record = part.record(place - int(bounds[at]))
        path = part.folder / part.manifest.shards[int(record["shard"])].file
        found.append((path, int(record["offset"]), int(record["length"])))
    return found


def _blocks(subject: LoaderUnderTest) -> list[Range]:
    """Stretches of all shards, in order, from the middle of each."""
    shards = [
        (part.folder / shard.file, shard.size) for part in subject.parts for shard in part.manifest.shards
    ]
    room, found = _MOST, []
    for path, size in shards:
        taken = min(size, max(_ORDERLY, room // len(shards)))
        begin = (size - taken) // 2 // _ORDERLY * _ORDERLY
        found += [(path, at, min(_ORDERLY, size - at)) for at in range(begin, begin + taken, _ORDERLY)]
        room_left = sum(length for _, _, length in found)
        if room_left >= _MOST:
            break
    return [one for one in found if one[2] > 0]


class RangeReader:
    """Threads that read ranges of files."""

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}
        self._pool = ThreadPoolExecutor(_READERS)
        self._left: list[float] = []

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()
        for descriptor in self._open.values():
            os.close(descriptor)

    @property
    def stayed(self) -> float:
        """The share of pages that could not be dropped."""
        return float(np.mean(self._left)) if self._left else 0.0

    def _file(self, path: Path) -> int:
        if path not in self._open:
            self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.posix_fadvise(self._open[path], 0, 0, os.POSIX_FADV_RANDOM)  # what is asked for, no more
        return self._open[path]

    def _drop(self, ranges: Sequence[Range]) -> None:
        for path, offset, length in ranges:
            begin = offset // 4096 * 4096  # only whole pages are dropped
            end = -(-(offset + length) // 4096) * 4096
            os.posix_fadvise(self._file(path), begin, end - begin, os.POSIX_FADV_DONTNEED)
        self._left.append(_resident(self._file, ranges[:: max(1, len(ranges) // 32)]))

    def latency(self, ranges: Sequence[Range]) -> float:
        """Median seconds of one read after the other."""
        self._drop(ranges)
        found = []
        for one in ranges:
            began = time.perf_counter()
            self._read(one)
            found.append(time.perf_counter() - began)
        return float(np.median(found))

    def rate(self, ranges: Sequence[Range], seconds: float) -> float:
        """Bytes per second of all threads, until the time or the ranges are over."""
        self._drop(ranges)
        end, rest = time.monotonic() + seconds, iter(ranges)

        def work() -> list[tuple[float, int]]:
            done = []
            while time.monotonic() < end:
                one = next(rest, None)  # a list's iterator: safe under the GIL
                if one is None:
                    break
                done.append((self._read(one), time.monotonic()))
            return [(when, size) for size, when in done]

        began = time.monotonic()
        jobs = [self._pool.submit(work) for _ in range(_READERS)]
        return steady([one for job in jobs for one in job.result()], began, seconds / 3)

    def warm(self, ranges: Sequence[Range], seconds: float) -> float:
        """Bytes per second of one thread, of ranges that are in memory."""
        few = ranges[:64]
        for one in few:
            self._read(one)
        began, done, turn = time.monotonic(), 0, 0
        while time.monotonic() - began < seconds:
            done += self._read(few[turn % len(few)])
            turn += 1
        return done / (time.monotonic() - began)

    def _read(self, one: Range) -> int:
        path, offset, length = one
        return len(read_at(self._file(path), length, offset))


def steady(reads: Sequence[tuple[float, int]], began: float, burst: float) -> float:
    """Bytes per second behind a burst, which clouds and cgroups let through at first; of all, if it was over
    before."""
    if not reads:
        return 1.0
    last = max(when for when, _ in reads)
    since = began + burst if last > began + 2 * burst else began
    done = sum(size for when, size in reads if when > since)
    return max(1.0, done / max(1e-6, last - since))


def _resident(descriptor_of: Callable[[Path], int], ranges: Sequence[Range]) -> float:
    """The share of some ranges that is read without waiting for storage (preadv2, RWF_NOWAIT)."""
    found = []
    memory = bytearray(4096)
    for path, offset, _ in ranges:
        try:
            found.append(os.preadv(descriptor_of(path), [memory], offset, os.RWF_NOWAIT) > 0)
        except (BlockingIOError, OSError):
            found.append(False)
    return float(np.mean(found)) if found else 0.0


# ---- How fast a store gives records -----------------------------------------------------------------
# Read ahead by the engine as in training, and never decoded.

_SIDE = 224  # of the crop that is never cut
_LOOK = 0.005  # seconds
_PATIENCE = 10.0  # seconds for the first record
_ENOUGH = 128  # records; fewer are waited for ...
_LONGEST = 4.0  # ... so many times as long
_REST = 0.3  # seconds in which nothing comes: what was under way has come
_LONGEST_REST = 3.0
_ALONE = 8  # records that are asked for one by one
_ALONE_SECONDS = 1.0


def measure_line(subject: LoaderUnderTest, seconds: float) -> Storage | None:
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
