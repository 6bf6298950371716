"""Batches in work: which samples DALI decodes, which our own decoder, in the order of the sampler."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.backends.dali.graph import Graph
from fastload.backends.dali.share import DecodeShare
from fastload.prefetch.feeder import BatchKey, Feeder, Pending
from fastload.prefetch.slots import Slot
from fastload.sampler import BatchIds, Sampler

__all__ = ["Queue", "Work"]

_ANNOUNCED_AT_ONCE = 4  # batches


@dataclass
class Work:
    """One batch in work."""

    key: BatchKey
    batch: BatchIds
    records: Any  # _C.RecordBatch: DALI's part, kept until its pixels are there
    parts: list[Pending] = field(default_factory=list)  # our own decoder's, all in one slot
    dropped: bool = False  # nobody waits for it any more

    @property
    def slot(self) -> Slot | None:
        """Memory of the whole batch, where our own decoder has a part of it."""
        return self.parts[0].slot if self.parts else None

    def dali_ids(self) -> npt.NDArray[np.int64]:
        """Sample ids of DALI's part."""
        return np.ascontiguousarray(self.batch.ids[self.records.positions], np.int64)


@dataclass
class _Announced:
    key: BatchKey
    batch: BatchIds
    handle: Any


class Queue:
    """Keeps ``depth`` batches beyond the consumer's in work, across the end of an epoch.

    Args:
        feed: ``_C.RecordFeed``, gives DALI's part of a batch.
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
        feed: Any,
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
        self._ahead = ahead
        self._most_bytes = most_bytes
        self._works: deque[Work] = deque()
        self._announced: deque[_Announced] = deque()
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
            following = self._sampler_following(self._last)
            if following is None:
                break
            self._submit(following)
        self._graph.start()
        self._announce()
        return self._works.popleft()

    def cancel(self) -> None:
        """Drop all batches. What DALI runs already is left to its end."""
        self._last = None
        self._forget()
        while self._works:
            work = self._works.pop()
            work.dropped = True
            for part in work.parts:
                self._feeder.drop(part)

    def close(self) -> None:
        """Let go of all batches and their records, when DALI and our own decoder have ended. Idempotent."""
        for batches in (self.flights, self._works, self._announced):
            batches.clear()

    def again(self, works: list[Work]) -> None:
        """Let a new pipeline run these batches, whose pixels were lost."""
        self.flights = deque(works)
        for work in works:
            self._graph.add(work.records)
        self._graph.start()

    def native(self, work: Work, ids: npt.NDArray[np.int64]) -> Pending:
        """Let our own decoder fill the positions of ``ids`` that are not ``_C.ELSEWHERE``."""
        part = self._feeder.submit_apart(work.key, work.batch, ids, work.slot)
        work.parts.append(part)
        return part

    def _submit(self, key: BatchKey) -> None:
        if self._announced and self._announced[0].key != key:
            self._forget()
        found = self._announced[0] if self._announced else _Announced(key, self._sampler.batch(*key), None)
        batch = found.batch
        records = self._feed.fetch(
            batch.ids, batch.draws, key.epoch, self._share.value, self._most_bytes, found.handle
        )
        if self._announced:
            self._announced.popleft()
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

    def _announce(self) -> None:
        last = self._announced[-1].key if self._announced else self._last
        samples = sum(len(announced.batch.ids) for announced in self._announced)
        for _ in range(_ANNOUNCED_AT_ONCE):
            following = self._sampler_following(last) if samples < self._ahead else None
            if following is None:
                return
            batch = self._sampler.batch(*following)
            handle = self._feed.announce(batch.ids, batch.draws, following.epoch, self._share.value)
            self._announced.append(_Announced(following, batch, handle))
            samples += len(batch.ids)
            last = following

    def _forget(self) -> None:
        while self._announced:
            self._feed.forget(self._announced.pop().handle)

    def _sampler_following(self, key: BatchKey | None) -> BatchKey | None:
        return self._feeder.following(key) if key is not None else None
