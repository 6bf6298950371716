"""Batches that somebody will be asked for, and whose records are read meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from fastload.sampler import BatchIds, Sampler
from fastload.sampler.order import IdArray

__all__ = ["Announced", "Announcements", "BatchKey", "following"]

Handle = TypeVar("Handle")  # of the reading that has begun

_AT_ONCE = 4  # batches


class BatchKey(NamedTuple):
    """Which batch: the ``step``-th after position ``start`` of ``epoch``."""

    epoch: int
    start: int
    step: int


def following(sampler: Sampler, key: BatchKey) -> BatchKey | None:
    """The batch after ``key``, perhaps of the next epoch; None if it is not known yet."""
    after = key._replace(step=key.step + 1)
    if sampler.is_ready(*after):
        return after
    # A user's sampler may depend on what happens until its epoch begins: it is not asked early.
    if sampler.order.is_drawn or not sampler.has_batch(key.epoch + 1, 0, 0):
        return None
    return BatchKey(key.epoch + 1, 0, 0)


@dataclass(frozen=True)
class Announced(Generic[Handle]):
    """A batch; ``handle`` is what announcing it gave, None if nobody did."""

    key: BatchKey
    batch: BatchIds
    handle: Handle | None = None
    partners: IdArray | None = None  # what its samples are put together with, (n, k) sample ids; -1: none


class Announcements(Generic[Handle]):
    """Announces batches in the order of the sampler, ``ahead`` samples beyond those that are in work.

    Args:
        sampler: which samples each batch has.
        ahead: samples.
        announce: begins to read a batch's records; gives a handle.
        forget: the batch of a handle will not be asked for.
        partners: of an epoch and a batch, the other samples that each is put together with.
    """

    def __init__(
        self,
        sampler: Sampler,
        ahead: int,
        announce: Callable[[BatchKey, BatchIds, IdArray | None], Handle],
        forget: Callable[[Handle], None],
        partners: Callable[[int, BatchIds], IdArray] | None = None,
    ) -> None:
        self._sampler = sampler
        self._ahead = ahead
        self._announce = announce
        self._forget = forget
        self._partners = partners
        self._waiting: deque[Announced[Handle]] = deque()
        self._samples = 0  # of those

    def find(self, key: BatchKey) -> Announced[Handle]:
        """The batch ``key``. If another one is announced first, all are forgotten."""
        if self._waiting and self._waiting[0].key != key:
            self.forget()
        if self._waiting:
            return self._waiting[0]
        batch = self._sampler.batch(*key)
        return Announced(key, batch, None, self.partners_of(key.epoch, batch))

    def partners_of(self, epoch: int, batch: BatchIds) -> IdArray | None:
        """What a batch's samples are put together with; None: nothing."""
        return None if self._partners is None else self._partners(epoch, batch)

    def taken(self) -> None:
        """The batch of :meth:`find` is in work."""
        if self._waiting:
            self._samples -= len(self._waiting.popleft().batch.ids)

    def go_on(self, last: BatchKey | None) -> None:
        """Announce a few batches more, so that the first one does not wait for all of them.

        Args:
            last: the last batch in work.
        """
        if self._waiting:
            last = self._waiting[-1].key
        for _ in range(_AT_ONCE):
            if last is None or self._samples >= self._ahead:
                return
            key = following(self._sampler, last)
            if key is None:
                return
            batch = self._sampler.batch(*key)
            partners = self.partners_of(key.epoch, batch)
            self._waiting.append(Announced(key, batch, self._announce(key, batch, partners), partners))
            self._samples += len(batch.ids)
            last = key

    def forget(self) -> None:
        """None of the announced batches will be asked for."""
        while self._waiting:
            last = self._waiting.pop()
            self._samples -= len(last.batch.ids)
            assert last.handle is not None  # go_on() has announced it
            self._forget(last.handle)

    def clear(self) -> None:
        """Let go of all handles, when whoever gave them has ended."""
        self._waiting.clear()
        self._samples = 0
