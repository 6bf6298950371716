"""Batches in work: which samples DALI decodes, which our own decoder, in the order of the sampler."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.backends.dali.graph import Graph
from fastload.backends.dali.share import DecodeShare
from fastload.prefetch.announcing import Announcements, BatchKey, following
from fastload.prefetch.feeder import Feeder, Pending
from fastload.prefetch.slots import Slot
from fastload.sampler import BatchIds, Sampler

__all__ = ["Queue", "Work"]


@dataclass
class Work:
    """One batch in work."""

    key: BatchKey
    batch: BatchIds
    records: _C.RecordBatch  # DALI's part, kept until its pixels are there
    parts: list[Pending] = field(default_factory=list)  # our own decoder's, all in one slot
    dropped: bool = False  # nobody waits for it any more

    @property
    def slot(self) -> Slot | None:
        """Memory of the whole batch, where our own decoder has a part of it."""
        return self.parts[0].slot if self.parts else None

    def dali_ids(self) -> npt.NDArray[np.int64]:
        """Sample ids of DALI's part."""
        return np.ascontiguousarray(self.batch.ids[self.records.positions], np.int64)


class Queue:
    """Keeps ``depth`` batches beyond the consumer's in work, across the end of an epoch.

    Args:
        feed: gives DALI's part of a batch.
        graph: DALI.
        feeder: our own decoder.
        sampler: which samples each batch has.
        share: of our own decoder.
        depth: batches.
        ahead: samples to announce behind them, whose records are read.
        most_bytes: of decoded pictures that a batch may have in DALI.
    """

    def __init__(
        self,
        feed: _C.RecordFeed,
        graph: Graph,
        feeder: Feeder,
        sampler: Sampler,
        share: DecodeShare,
        depth: int,
        ahead: int,
        most_bytes: int,
    ) -> None:
        self._feed, self._graph, self._feeder = feed, graph, feeder
        self._sampler = sampler
        self._share = share
        self._depth = depth
        self._most_bytes = most_bytes
        self._works: deque[Work] = deque()
        self._announced = Announcements(sampler, ahead, partial(_announce, feed, share), feed.forget)
        self._last: BatchKey | None = None
        #: What DALI runs, oldest first; with batches that were dropped.
        self.flights: deque[Work] = deque()

    def take(self, key: BatchKey) -> Work:
        """The batch ``key``; the ones after it are in work."""
        if self._works and self._works[0].key != key:
            self.cancel()
        if not self._works:
            self._submit(key)
        while len(self._works) <= self._depth:
            coming = following(self._sampler, self._last) if self._last is not None else None
            if coming is None:
                break
            self._submit(coming)
        self._graph.start()
        self._announced.go_on(self._last)
        return self._works.popleft()

    def cancel(self) -> None:
        """Drop all batches. What DALI runs already is left to its end."""
        self._last = None
        self._announced.forget()
        while self._works:
            work = self._works.pop()
            work.dropped = True
            for part in work.parts:
                self._feeder.drop(part)

    def close(self) -> None:
        """Let go of all batches and their records, when DALI and our own decoder have ended. Idempotent."""
        self.flights.clear()
        self._works.clear()
        self._announced.clear()

    def again(self, works: list[Work]) -> None:
        """Let a new pipeline run these batches, whose pixels were lost."""
        self.flights = deque(works)
        for work in works:
            self._graph.add(work.records)
        self._graph.start()

    def native(self, work: Work, ids: npt.NDArray[np.int64]) -> Pending:
        """Let our own decoder fill the positions of ``ids`` that are not ``_C.ELSEWHERE``."""
        part = self._feeder.submit_share(work.key, work.batch, ids, work.slot)
        work.parts.append(part)
        return part

    def _submit(self, key: BatchKey) -> None:
        found = self._announced.find(key)
        batch = found.batch
        records = self._feed.fetch(
            batch.ids, batch.draws, key.epoch, self._share.value, self._most_bytes, found.handle
        )
        self._announced.taken()
        work = Work(key, batch, records)
        if len(records) < len(batch.ids):
            rest = np.array(batch.ids, np.int64)
            rest[records.positions] = _C.ELSEWHERE
            self.native(work, rest)
        if len(records):
            self._graph.add(records)
            self.flights.append(work)
        self._works.append(work)
        self._last = key


def _announce(
    feed: _C.RecordFeed, share: DecodeShare, key: BatchKey, batch: BatchIds, partners: None
) -> _C.AnnouncedRecords:
    return feed.announce(batch.ids, batch.draws, key.epoch, share.value)
