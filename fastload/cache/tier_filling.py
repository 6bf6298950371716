"""Filling a disk tier before a job needs it: records that are not there yet, read by large requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FastloadError
from fastload.machine.paths import read_at
from fastload.machine.threads import started_pool
from fastload.shard.dataset import PackedFiles

_REQUEST = 8 << 20  # bytes
_GAP = 64 << 10  # bytes between two records that are read along: fewer than another request costs
_POLL_SECONDS = 0.1
_FAILURES = 100  # that are kept
_WRITERS = (
    16  # threads: what more than kMostWriters (csrc/core/cache/disk_tier.h) write at a time is left out
)
_KNOWN = 0xFFFF  # needed in every epoch

Ids = npt.NDArray[np.int64]


@dataclass
class TierFilling:
    """The records of one stream on their way into its tier.

    Args:
        dataset: whose records they are.
        stream: the further picture whose records they are; None: the index's.
        tier: where they go.
        ids: those that are wanted, ascending; None: all. They take the place of others.
    """

    dataset: PackedFiles
    stream: str | None
    tier: _C.DiskTier
    ids: Ids | None
    failures: list[tuple[int, str]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        dataset, stream = self.dataset, self.stream
        self._records = dataset.records if stream is None else dataset.field_records(stream)
        wanted = np.arange(len(self._records), dtype=np.int64) if self.ids is None else self.ids
        self._wanted = wanted[self._records["length"][wanted] > 0]
        self._bytes = int(self._records["length"][self._wanted].sum(dtype=np.uint64))
        self._counts = dict.fromkeys(("there", "put", "no_room", "failed"), (0, 0))
        self._read_bytes = self._requests = 0

    def run(self, threads: int, report: Callable[[dict[str, int]], None]) -> dict[str, int]:
        """Fill the tier; return counts as ``_C.Filler`` has them, which ``report`` gets meanwhile."""
        if self.ids is not None:
            masks = np.zeros(len(self._records), np.uint16)
            masks[self._wanted] = _KNOWN
            self.tier.set_order(0, masks, np.zeros(len(masks), np.uint16))
            self.tier.move(0, 0, False)
        there = np.fromiter(map(self._is_there, self._wanted.tolist()), np.bool_, len(self._wanted))
        self._count("there", self._wanted[there])
        with started_pool(min(threads, _WRITERS), "fill") as pool:
            waiting = {pool.submit(self._take, ids) for ids in self._chunks(self._wanted[~there])}
            try:
                while waiting:
                    done, waiting = wait(waiting, _POLL_SECONDS)
                    for each in done:
                        each.result()
                    report(self.counts())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return self.counts()

    def counts(self) -> dict[str, int]:
        """Return the counts so far."""
        with self._lock:
            found = {
                f"{name}_{unit}": count
                for name, both in self._counts.items()
                for unit, count in zip(("records", "bytes"), both, strict=True)
            }
            found |= {"read_bytes": self._read_bytes, "requests": self._requests}
        found["records"] = len(self._wanted) - found["no_room_records"]
        found["bytes"] = self._bytes - found["no_room_bytes"]
        return found | dict.fromkeys(("claimed_chunks", "claimed_records", "waits"), 0)

    def _is_there(self, record: int) -> bool:
        return self.tier.find(record, int(self._records["length"][record])) is not None

    def _count(self, name: str, ids: Ids) -> None:
        size = int(self._records["length"][ids].sum(dtype=np.uint64))
        with self._lock:
            records, held = self._counts[name]
            self._counts[name] = records + len(ids), held + size

    def _chunks(self, ids: Ids) -> Iterator[Ids]:
        """Yield the records of one request each, in the order of the shard."""
        own = self._records[ids]
        order = np.lexsort((own["offset"], own["shard"]))
        ids, own = ids[order], own[order]
        ends = own["offset"].astype(np.int64) + own["length"]
        gaps = own["offset"][1:].astype(np.int64) - ends[:-1]
        apart = (np.diff(own["shard"].astype(np.int64)) != 0) | (gaps > _GAP) | (gaps < 0)
        runs = np.split(np.arange(len(ids)), np.flatnonzero(apart) + 1)
        for run in runs if len(ids) else []:
            pieces = (ends[run] - ends[run[0]]) // _REQUEST
            yield from np.split(ids[run], np.flatnonzero(np.diff(pieces)) + 1)

    def _take(self, ids: Ids) -> None:
        """Read the records of a request, and put them into the tier."""
        own = self._records[ids]
        begin, end = int(own["offset"][0]), int(own["offset"][-1]) + int(own["length"][-1])
        try:
            read = np.frombuffer(self._read(int(own["shard"][0]), begin, end), np.uint8)
        except (FastloadError, OSError, IndexError) as error:
            self._fail(ids, str(error))
            return
        with self._lock:
            self._read_bytes += end - begin
            self._requests += 1
        for record, entry in zip(ids.tolist(), own, strict=True):
            at = int(entry["offset"]) - begin
            piece = read[at : at + int(entry["length"])]
            try:
                if len(piece) != entry["length"] or _C.crc32c(piece) != entry["crc32c"]:
                    piece = np.frombuffer(self._again(record), np.uint8)
            except FastloadError as error:
                self._fail(np.array([record]), str(error))
                continue
            self.tier.store(record, piece)
            self._count("put" if self._is_there(record) else "no_room", np.array([record]))

    def _read(self, number: int, begin: int, end: int) -> bytes:
        dataset, shard = self.dataset, self.dataset.manifest.shards[number]
        if dataset.location is not None and dataset.store is not None:
            return dataset.store.get((dataset.location / shard.file).path, begin, end)
        with (dataset.folder / shard.file).open("rb", buffering=0) as file:
            return read_at(file.fileno(), end - begin, begin)

    def _again(self, record: int) -> bytes:
        """Read a record that came damaged, as jobs do: perhaps it was damaged on the way."""
        stream = self.stream
        reader = self.dataset.reader if stream is None else self.dataset.record_reader(stream)
        return bytes(reader.read(record))

    def _fail(self, ids: Ids, reason: str) -> None:
        self._count("failed", ids)
        with self._lock:
            self.failures += [(record, reason) for record in ids.tolist()]
            del self.failures[_FAILURES:]
