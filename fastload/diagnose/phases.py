"""A script's loop in phases: warm-up, watching, feeding, and its end.

DESIGN. The script is not changed, so all that can be done is done inside ``next()``: for a while it is what
it always is, and timed; then it gives a batch that is there already, so that the step shows what it can do;
then it raises :class:`Stopped`, which is no Exception, so that the script's own handlers let it pass and its
``finally`` blocks run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastload.diagnose.facts import Stage
from fastload.diagnose.feed import Feed
from fastload.diagnose.record import Record, worker_pids
from fastload.diagnose.torch_loop import Pass
from fastload.diagnose.watch import Diagnosis

__all__ = ["Limits", "Phases", "Stopped"]

_WARM_UP = 2  # steps besides a pass's first one, in which libraries choose their algorithms
_LEAST = 5  # batches that are enough when time is over
_QUIET = 0.03  # of a CPU: what threads take that have nothing to do
_LOOK = 0.1  # seconds


class Stopped(BaseException):
    """The loop was watched long enough. Not an error; whoever watches catches it."""


@dataclass(frozen=True)
class Limits:
    """How long each phase is.

    Args:
        batches, seconds: watch until there are so many batches and seconds.
        most: but no longer than this, if there are a few batches.
        fed, fed_seconds, fed_most: the same of feeding.
        rest: wait so long for the loader's threads to be done.
        patience: prefer a loop without gradients (validation) only after so many seconds.
    """

    batches: int = 20
    seconds: float = 5.0
    most: float = 18.0
    fed: int = 10
    fed_seconds: float = 3.0
    fed_most: float = 12.0
    rest: float = 6.0
    patience: float = 30.0

    @classmethod
    def within(cls, seconds: float) -> Limits:
        """Of an examination of so many seconds, half of which belong to experiments."""
        share = seconds / 60
        return cls(
            seconds=min(5.0, 5 * share),
            most=18 * share,
            fed_seconds=min(3.0, 3 * share),
            fed_most=12 * share,
            rest=6 * share,
            patience=30 * share,
        )


class Phases:
    """Takes a script's busiest loader through the phases.

    Args:
        limits: how long they are.
        began: called when the first batch of any loader is asked for.
        watched: called once at the end, before the script is stopped.
        stops: whether it is stopped; else it is fed until somebody ends the process, as a rank whose first
            one decides when it is over.
        watching: keeps what is seen.
        clock, sleep: seconds.
        enough: called when enough was watched, before the loop is fed.
    """

    def __init__(
        self,
        limits: Limits,
        began: Callable[[], None],
        watched: Callable[[], None],
        stops: bool = True,
        watching: Diagnosis | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        enough: Callable[[], None] = lambda: None,
    ) -> None:
        self._enough = enough
        self.watching = watching or Diagnosis(None, warm_up=_WARM_UP)
        self._limits = limits
        self._began = began
        self._watched = watched
        self._stops = stops
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._main: Record | None = None
        self._feed: Feed | None = None
        self._fed_since = 0.0
        self.is_over = False

    @property
    def record(self) -> Record | None:
        """The loop that was watched: the one that was fed, else the busiest; None without batches."""
        found = self.watching.records
        return self._main or (found[0] if found else None)

    @property
    def step(self) -> Stage | None:
        """The step alone; None where the script ended before it was fed."""
        return self._feed.stage() if self._feed is not None else None

    def next(self, iterator: Any, of: Pass, proceed: Callable[[], Any]) -> Any:
        """See :class:`fastload.diagnose.torch_loop.Listener`."""
        if self.is_over:
            raise Stopped
        if self._since is None:
            self._since = self._clock()
            self._began()
        loader = of.loader
        if loader is None:
            return proceed()
        if self._main is None:
            record = self.watching.record_of(loader)
            record.asked(of, iterator)
            if not self._is_enough(record):
                return record.got(iterator, proceed)
            record.end(iterator)
            self.watching.close()
            self._main = record
            self._enough()
        elif loader is not self._main.loader:
            return proceed()
        if self._feed is None:
            return self._begin_feed(iterator, self._main, proceed)
        return self._fed(self._feed)

    def _is_enough(self, record: Record) -> bool:
        assert self._since is not None
        passed, limits = self._clock() - self._since, self._limits
        if record.with_grad * 2 <= record.batches and passed < limits.patience:
            return False
        if record.batches >= limits.batches and record.seconds >= limits.seconds:
            return True
        return record.batches >= _LEAST and record.seconds >= limits.most

    def _begin_feed(self, iterator: Any, record: Record, proceed: Callable[[], Any]) -> Any:
        """One more batch of the loader's; then its threads fill their queue and rest."""
        batch = proceed()  # raises StopIteration: then the next pass's first batch
        at_rest = self._wait_for_rest(iterator)
        self._feed = Feed(batch, record.batch_size, at_rest, self._clock)
        self._fed_since = self._clock()
        return self._feed.give()

    def _wait_for_rest(self, iterator: Any) -> bool:
        """Whether the loader's threads and workers have come to rest in time."""
        end = self._clock() + self._limits.rest
        before = self.watching.meter.read(worker_pids(iterator))
        quiet = 0
        while self._clock() < end:
            self._sleep(_LOOK)
            now = self.watching.meter.read(worker_pids(iterator))
            used = now.our_cpu + now.workers_cpu - before.our_cpu - before.workers_cpu
            quiet = quiet + 1 if used <= _QUIET * (now.when - before.when) else 0
            if quiet == 2:
                return True
            before = now
        return False

    def _fed(self, feed: Feed) -> Any:
        """The batch that is there already, or the end."""
        feed.asked()
        limits, steps = self._limits, len(feed.steps)
        enough = steps >= limits.fed and feed.seconds >= limits.fed_seconds
        if self._stops and (enough or (steps >= 2 and self._clock() - self._fed_since >= limits.fed_most)):
            self.is_over = True
            self._watched()
            raise Stopped
        return feed.give()
