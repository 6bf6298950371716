"""Batches whose transform changes with the epoch: one back end after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastload.backends.stats import Counts
from fastload.errors import StateError
from fastload.prefetch.feeder import BatchKey
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.faults import SampleReport
    from fastload.backends.protocol import Backend

__all__ = ["ScheduledBackend"]


class ScheduledBackend:
    """Batches of a plan that says what holds from which epoch on.

    There is one back end at a time, so its memory is never more than the largest one's. A change costs what
    an epoch's first batch costs after a restart.

    Args:
        make: the back end of one of the plans.
        plan: all of them.
    """

    def __init__(self, make: Callable[[Plan], Backend], plan: Plan) -> None:
        self._make = make
        self._plan = plan
        self._current: tuple[Plan, Backend] | None = None
        self._past = Counts()
        self._errors: list[SampleReport] = []
        self._closed = False

    @property
    def errors(self) -> list[SampleReport]:
        """Reports of the bad samples met so far."""
        now = list(self._current[1].errors) if self._current is not None else []
        return self._errors + now

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key``, as its epoch's plan has it."""
        return self._of(key.epoch).batch(key)

    def _of(self, epoch: int) -> Backend:
        if self._closed:
            raise StateError("The loader is closed. Create a new DataLoader.")
        plan = self._plan.at(epoch)
        if self._current is None or self._current[0] is not plan:
            self._end()
            self._current = plan, self._make(plan)
        return self._current[1]

    def _end(self) -> None:
        if self._current is None:
            return
        self._errors, self._past = self.errors, self.counts()
        (_, backend), self._current = self._current, None
        backend.close()

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        if self._current is not None:
            self._current[1].cancel()

    def close(self) -> None:
        """End all threads. Idempotent."""
        self._closed = True
        if self._current is not None:
            self._current[1].close()

    def counts(self) -> Counts:
        """What was counted so far."""
        if self._current is None:
            return self._past
        return Counts.sum([self._past, self._current[1].counts()])
