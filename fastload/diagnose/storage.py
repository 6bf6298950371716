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
from fastload.backends.planned_batches import parts_of_pairs
from fastload.diagnose.trial import LoaderUnderTest
from fastload.machine.paths import read_at
from fastload.prefetch.engine_calls import plan_read_ahead
from fastload.transforms import RandomResizedCrop
from fastload.transforms.compiler import compile_plan

# ---- Cold reads of files ----------------------------------------------------------------------------
# The pages of the ranges to read are first dropped from the page cache by ``posix_fadvise``, which does not
# need root. Pages that a process maps stay, and so do those of a file system in memory.

_READERS = 32  # as many as the loader has for reading ahead
_ORDERLY = 1 << 20  # bytes of a read in order: a block of shuffle="block"
_MOST = 256 << 20  # bytes of a sample of ranges
_SLOWEST = 16  # reads whose latency is measured, one by one


@dataclass(frozen=True)
class Storage:
    """How fast storage is.

    Args:
        random, orderly: samples per second, cold.
        warm: samples per second from the page cache, by one thread.
        latency: median seconds of a cold read of one record, alone.
        bytes: bytes per second of the random reads.
        remote: whether it is a network file system or a store.
        evidence: how it was measured.
        line: the store's location; "" for files.
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
    """Read records of files cold and warm; None for memory and for stores (:func:`measure_line`)."""
    if subject.in_store:
        return None
    folders = {part.folder for part in subject.parts}
    kinds = [_C.file_system(str(folder)) for folder in folders]
    if any(kind["in_memory"] for kind in kinds):
        return None
    order = np.random.default_rng(0).permutation(_ids(subject))[: max(64, int(_MOST / subject.record_bytes))]
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


def _ids(subject: LoaderUnderTest) -> npt.NDArray[np.int64]:
    """Return the ids of all samples that were not dropped, ascending; parts are counted through."""
    first, ids = 0, []
    for part in subject.parts:
        ids.append(first + part.ids_at(np.arange(len(part))))
        first += part.num_ids
    return np.concatenate(ids)


def _ranges(subject: LoaderUnderTest, order: npt.NDArray[np.int64]) -> list[Range]:
    """Return the file ranges of these records."""
    bounds = np.cumsum([0, *(part.num_ids for part in subject.parts)])
    ranges = []
    for place in order.tolist():
        at = int(np.searchsorted(bounds, place, "right")) - 1
        part = subject.parts[at]
        record = part.record(place - int(bounds[at]))
        path = part.folder / part.manifest.shards[int(record["shard"])].file
        ranges.append((path, int(record["offset"]), int(record["length"])))
    return ranges


def _blocks(subject: LoaderUnderTest) -> list[Range]:
    """Return ranges in order, from the middle of each shard."""
    shards = [
        (part.folder / shard.file, shard.size) for part in subject.parts for shard in part.manifest.shards
    ]
    ranges: list[Range] = []
    for path, size in shards:
        taken = min(size, max(_ORDERLY, _MOST // len(shards)))
        begin = (size - taken) // 2 // _ORDERLY * _ORDERLY
        ranges += [(path, at, min(_ORDERLY, size - at)) for at in range(begin, begin + taken, _ORDERLY)]
        if sum(length for _, _, length in ranges) >= _MOST:
            break
    return [each for each in ranges if each[2] > 0]


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
            os.posix_fadvise(self._open[path], 0, 0, os.POSIX_FADV_RANDOM)  # reads no more than asked
        return self._open[path]

    def _drop(self, ranges: Sequence[Range]) -> None:
        for path, offset, length in ranges:
            begin = offset // 4096 * 4096  # only whole pages are dropped
            end = -(-(offset + length) // 4096) * 4096
            os.posix_fadvise(self._file(path), begin, end - begin, os.POSIX_FADV_DONTNEED)
        self._left.append(_resident(self._file, ranges[:: max(1, len(ranges) // 32)]))

    def latency(self, ranges: Sequence[Range]) -> float:
        """Read one range after the other, and return the median seconds."""
        self._drop(ranges)
        times = []
        for each in ranges:
            began = time.perf_counter()
            self._read(each)
            times.append(time.perf_counter() - began)
        return float(np.median(times))

    def rate(self, ranges: Sequence[Range], seconds: float) -> float:
        """Read in all threads until the time or the ranges end, and return the bytes per second."""
        self._drop(ranges)
        end, rest = time.monotonic() + seconds, iter(ranges)

        def work() -> list[tuple[float, int]]:
            done = []
            while time.monotonic() < end:
                each = next(rest, None)  # a list's iterator: safe under the GIL
                if each is None:
                    break
                done.append((self._read(each), time.monotonic()))
            return [(when, size) for size, when in done]

        began = time.monotonic()
        jobs = [self._pool.submit(work) for _ in range(_READERS)]
        return steady([read for job in jobs for read in job.result()], began, seconds / 3)

    def warm(self, ranges: Sequence[Range], seconds: float) -> float:
        """Read ranges that are in memory in one thread, and return the bytes per second."""
        few = ranges[:64]
        for each in few:
            self._read(each)
        began, done, turn = time.monotonic(), 0, 0
        while time.monotonic() - began < seconds:
            done += self._read(few[turn % len(few)])
            turn += 1
        return done / (time.monotonic() - began)

    def _read(self, part: Range) -> int:
        path, offset, length = part
        return len(read_at(self._file(path), length, offset))


def steady(reads: Sequence[tuple[float, int]], began: float, burst: float) -> float:
    """Return the bytes per second after the burst that clouds and cgroups allow at first. If the reads ended
    within two bursts, all of them count."""
    if not reads:
        return 1.0
    last = max(when for when, _ in reads)
    since = began + burst if last > began + 2 * burst else began
    done = sum(size for when, size in reads if when > since)
    return max(1.0, done / max(1e-6, last - since))


def _resident(descriptor_of: Callable[[Path], int], ranges: Sequence[Range]) -> float:
    """Return the share of ranges that are read without waiting for storage (preadv2, RWF_NOWAIT)."""
    resident = []
    memory = bytearray(4096)
    for path, offset, _ in ranges:
        try:
            resident.append(os.preadv(descriptor_of(path), [memory], offset, os.RWF_NOWAIT) > 0)
        except (BlockingIOError, OSError):
            resident.append(False)
    return float(np.mean(resident)) if resident else 0.0


# ---- Reads from a store: read ahead as in training, and not decoded ---------------------------------

_SIDE = 224  # of the crop, which is never cut
_LOOK = 0.005  # seconds
_PATIENCE = 10.0  # seconds for the first record
_ENOUGH = 128  # records; until this many have come, the run lasts ...
_LONGEST = 4.0  # ... up to this many times as long
_REST = 0.3  # seconds without a record after which all requests are done
_LONGEST_REST = 3.0
_ALONE = 8  # records that are asked for one by one
_ALONE_SECONDS = 1.0


def measure_line(subject: LoaderUnderTest, seconds: float) -> Storage | None:
    """Read from a set's store at random and in order; None: nothing came in ten seconds."""
    dataset = subject.given
    ids = _ids(subject)
    random = np.random.default_rng(0).permutation(ids)
    orderly = np.roll(ids, -int(np.searchsorted(ids, random[0])))
    ahead = plan_read_ahead(dataset, subject.core)
    speeds: list[tuple[float, float]] = []
    engine = _engine(dataset, ahead.buffer_bytes)
    try:
        fetching = Fetching(engine, subject.batch_size, max(ahead.samples, subject.batch_size))
        for ids in (random, orderly):
            rates = fetching.rates(ids, seconds)
            if rates is None:
                return None
            speeds.append(rates)
            fetching.rest()
    finally:
        engine.close()
    (scattered, nbytes), (in_order, _) = speeds
    stores = sorted({str(part.location) for part in dataset.parts if part.location is not None})
    evidence = (
        f"The engine read ahead for {seconds:.1f} s each, at random and in order, with as many requests at "
        "once as in training, and decoded nothing"
    )
    latency = _latency(dataset, random)
    in_order = max(in_order, scattered)  # on a slow link a range of many records may not come in time
    return Storage(scattered, in_order, 0.0, latency, nbytes, True, evidence, " and ".join(stores))


def _engine(dataset: Any, buffers: int) -> Any:
    parts, views, fields = parts_of_pairs(compile_plan(RandomResizedCrop(_SIDE)), (_SIDE, _SIDE))
    return _C.Engine(
        sources=dataset.sources,
        parts=parts,
        views=views,
        fields=fields,
        seed=0,
        threads=1,
        max_pixels=1,
        fallback=None,
        read_ahead=buffers,
    )


def _latency(dataset: Any, ids: npt.NDArray[np.int64]) -> float:
    """Read one record after the other, and return the median seconds."""
    end, times = time.monotonic() + _ALONE_SECONDS, []
    for sample in ids[:_ALONE].tolist():
        part, number = dataset.locate(sample)
        began = time.perf_counter()
        part.reader.read(number)
        times.append(time.perf_counter() - began)
        if time.monotonic() > end:
            break
    return float(np.median(times))


class Fetching:
    """A consumer that announces batches as a loader does, and forgets them when they have come.

    Args:
        engine: ``_C.Engine``, or an object with its ``announce``, ``forget`` and ``read_ahead``.
        batch: samples that are announced together.
        ahead: samples that are requested at once.
        clock, sleep: in seconds.
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
        """Return records and bytes per second, without the burst at first; None: nothing came.

        Args:
            ids: of the samples to read, again and again.
            seconds: of the run; longer if few records come.
        """
        starts = range(0, len(ids), self._batch)
        chunks = itertools.cycle([ids[at : at + self._batch] for at in starts])
        waiting: deque[tuple[Any, int]] = deque()  # a handle, and the count of records that completes it
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
        burst = seconds / 3  # connections start, and buffers on the way empty
        return (
            steady([(when, count) for when, count, _ in come], began, burst),
            steady([(when, got) for when, _, got in come], began, burst),
        )

    def _until(self, seconds: float, records: int) -> float:
        if records >= _ENOUGH:
            return seconds
        return _LONGEST * seconds if records else max(_PATIENCE, seconds)

    def rest(self) -> None:
        """Wait for forgotten requests that are still under way, or the next run would count them."""
        quiet = began = self._clock()
        known = self._engine.read_ahead()["ahead"]
        while (now := self._clock()) - quiet < _REST and now - began < _LONGEST_REST:
            self._sleep(_LOOK)
            come = self._engine.read_ahead()["ahead"]
            quiet, known = (now, come) if come > known else (quiet, known)
