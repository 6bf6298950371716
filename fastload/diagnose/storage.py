"""How fast storage gives records that are not in memory: read for a second, at random and in order.

Their pages are dropped from the page cache before, by ``posix_fadvise``, which needs no root; only those of
the ranges that are read. Pages that a process maps stay, and so does what lies on a file system in memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.diagnose.subject import Subject
from fastload.machine.positional import read_at

__all__ = ["Range", "RangeReader", "Storage", "measure_storage", "steady"]

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


def measure_storage(subject: Subject, seconds: float) -> Storage | None:
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


def _ranges(subject: Subject, order: npt.NDArray[np.int64]) -> list[Range]:
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


def _blocks(subject: Subject) -> list[Range]:
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
