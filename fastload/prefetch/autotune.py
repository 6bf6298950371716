"""``autotune=True``: threads and prefetch depth adjusted by measurements, within fixed bounds.

The rules (:class:`Policy`) are a pure function of the windows they have seen; the meter (:class:`Autotuner`)
cuts a loader's life into windows, applies the rules' decisions and logs them. Batches never depend on either:
they are the same with any number of threads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean

_log = logging.getLogger("fastload")

STARVED = 0.03  # share of time waiting for data from which on the loader is too slow
PLAIN = 0.15  # ... in a single window; less must occur in two in a row
FED = 0.01  # ... up to which it is fast enough for fewer threads
BUSY = 0.7  # share of time from which on threads count as busy: more of them may help
SOME = 0.05  # share of idle time that deeper prefetch may recover when no more threads are allowed
GAIN = 0.03  # a step of threads is kept if it gains this, or a quarter of the possible gain, if that is less
TRIES = 2  # windows whose average must show no gain, before it is undone
SPARE = 1.5  # whole threads that are idle before one is released
PATIENCE = 3  # consecutive windows that must agree before anything is lowered
DOUBT = 8  # windows after lowering in which a wait is blamed on it
HOLD = 16  # windows for which a limit is believed; doubled each time it is found again
HOLD_MOST = 4  # ... the upper limit of threads at first: one noisy window may have found it
MOST_HOLD = 1024
WINDOW_SECONDS = 1.0
WINDOW_BATCHES = 8
PAUSE = 0.1  # minimum seconds between two epochs that count as a pause
EXTRA_DEPTH = 4  # batches by which prefetch may grow


@dataclass(frozen=True)
class Setting:
    """The values that are tuned."""

    threads: int
    depth: int  # batches in progress ahead of the consumer


@dataclass(frozen=True)
class Bounds:
    """The range of the values: threads from 1, depth from what the user requested."""

    most_threads: int
    least_depth: int
    most_depth: int


@dataclass(frozen=True)
class Window:
    """A stretch of a loader's life, without pauses, at one setting."""

    seconds: float
    wait: float  # share of them for which the consumer waited for data
    idle: float  # share of them for which the threads were idle, on average
    rate: float  # samples per second

    def __str__(self) -> str:
        return (
            f"data wait {self.wait:.1%} of {self.seconds:.1f} s, threads idle {self.idle:.0%}, "
            f"{self.rate:.0f} images/s"
        )


class _Limit:
    """A value that it did not pay to pass; believed for a while."""

    def __init__(self, default: int, hold: int = HOLD) -> None:
        self._default = default
        self._hold = hold
        self._left = 0
        self.value = default

    def found(self, value: int) -> None:
        self.value, self._left = value, self._hold
        self._hold = min(2 * self._hold, MOST_HOLD)

    def pass_window(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.value = self._default


class Policy:
    """The rules that decide, after each window, what to change.

    * The consumer waits (much, or in two windows in a row) and the threads are busy: more threads, a quarter
      more at a time. If that was not faster (the disk or memory is the limit), back to the former number.
    * The consumer waits though threads are idle (uneven samples, or a slow Python callable): deeper prefetch.
      A little idle time is enough for that when no more threads are allowed; at its bound, more threads.
    * The consumer does not wait and more than one thread is idle, three windows in a row: threads are
      released, half of the idle ones at a time, at last also prefetch depth. If it waits afterwards, they
      come back, and their number is the minimum for a while, longer each time.
    """

    def __init__(self, setting: Setting, bounds: Bounds) -> None:
        self.setting = setting
        self._bounds = bounds
        self._calm = 0  # consecutive windows in which less would have done
        self._short = 0  # consecutive windows in which the consumer waited
        self._raised: tuple[Setting, float] | None = None  # setting and rate before threads were added
        self._tried: list[float] = []  # rates since then
        self._lowered: Setting | None = None  # setting before the last lowering
        self._doubt = 0  # windows in which the lowering may still turn out to be wrong
        self._most = _Limit(bounds.most_threads, HOLD_MOST)
        self._least_threads = _Limit(1)
        self._least_depth = _Limit(bounds.least_depth)

    def decide(self, window: Window) -> str | None:
        """Examine a window; perhaps change ``setting``, and say why in a few words."""
        before = self.setting
        for limit in (self._most, self._least_threads, self._least_depth):
            limit.pass_window()
        self._doubt -= 1
        if self._doubt < 0:
            self._lowered = None  # the lowered setting suffices
        why = self._starved(window) if window.wait >= STARVED else self._fed(window)
        return why if self.setting != before else None

    def _starved(self, window: Window) -> str:
        self._calm = 0
        self._short += 1
        raised, self._raised = self._raised, None
        if self._lowered is not None:
            self.setting, self._lowered = self._lowered, None
            self._least_threads.found(self.setting.threads)
            self._least_depth.found(self.setting.depth)
            return "the consumer waits since less was tried"
        now = self.setting
        if raised is not None:
            earlier, rate = raised
            expected = now.threads / earlier.threads - 1
            self._tried.append(window.rate)
            if fmean(self._tried) < rate * (1 + min(expected / 4, GAIN)):
                if len(self._tried) < TRIES:
                    self._raised = raised
                    return ""
                self._most.found(earlier.threads)
                self.setting = replace(now, threads=earlier.threads)
                return f"{now.threads} threads were no faster than {earlier.threads}"
        elif window.wait < PLAIN and self._short < 2:
            return ""
        more = min(now.threads + max(1, now.threads // 4), self._most.value)
        deeper = min(now.depth + 1, self._bounds.most_depth)
        if deeper > now.depth and window.idle > (1 - BUSY if more > now.threads else SOME):
            self.setting = replace(now, depth=deeper)
            return "the consumer waits although threads are idle"
        if more > now.threads:
            self._raised, self._tried = (now, window.rate), []
            self.setting = replace(now, threads=more)
        return "the consumer waits and the threads are busy"

    def _fed(self, window: Window) -> str:
        self._raised, self._short = None, 0
        if window.wait > FED:
            self._calm = 0
            return ""
        spare = window.idle * self.setting.threads
        threads, depth = self.setting.threads, self.setting.depth
        if spare >= SPARE and threads > self._least_threads.value:
            threads = max(threads - max(1, int(spare / 2)), self._least_threads.value)
        elif window.idle > 1 - BUSY and depth > self._least_depth.value:
            depth -= 1
        self._calm = self._calm + 1 if (threads, depth) != (self.setting.threads, self.setting.depth) else 0
        if self._calm >= PATIENCE:
            self._calm = 0
            self._lowered, self._doubt = self.setting, DOUBT
            self.setting = Setting(threads, depth)
        return f"less does as well: {spare:.1f} of the threads were idle"


class Autotuner:
    """A meter that measures windows of one loader and adjusts its setting.

    Args:
        setting: the first setting.
        bounds: its range.
        measure: returns, since any fixed moment, the seconds for which the consumer was blocked, and the sum
            over the threads in use of the idle seconds.
        apply: called with a new setting.
        clock: returns seconds.
    """

    def __init__(
        self,
        setting: Setting,
        bounds: Bounds,
        measure: Callable[[], tuple[float, float]],
        apply: Callable[[Setting], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._policy = Policy(setting, bounds)
        self._measure = measure
        self._apply = apply
        self._clock = clock
        self._skip = setting.depth + 1  # batches until those prefetched before are used up
        self._restart(clock())

    def _restart(self, now: float) -> None:
        self._began = self._ended = now
        self._waited, self._idle = self._measure()
        self._longest = 0.0
        self._batches = self._samples = 0

    @contextmanager
    def waiting(self, samples: int, first: bool) -> Iterator[None]:
        """Measure the wait for a batch of ``samples``; ``first``: of an epoch, perhaps after a pause.

        Without a pause the epochs are one stretch: those of a small set may be shorter than a window.
        """
        pause = self._clock() - self._ended
        self._longest = max(self._longest, pause)
        yield
        now = self._clock()
        if (first and pause > PAUSE) or self._skip > 0:
            self._skip -= 1
            self._restart(now)
            return
        self._ended = now
        self._batches += 1
        self._samples += samples
        if self._batches >= WINDOW_BATCHES and now - self._began >= WINDOW_SECONDS:
            self._finish(now)

    def _finish(self, now: float) -> None:
        seconds = now - self._began
        # A checkpoint or a validation in the middle of the epoch says nothing about training.
        if self._longest < seconds / 2:
            threads = self._policy.setting.threads
            waited, idle = self._measure()
            wait = (waited - self._waited) / seconds
            idle = (idle - self._idle) / (seconds * threads)
            self._move(Window(seconds, wait, min(max(idle, 0.0), 1.0), self._samples / seconds))
        self._restart(now)

    def _move(self, window: Window) -> None:
        before = self._policy.setting
        why = self._policy.decide(window)
        if why is None:
            return
        after = self._policy.setting
        self._apply(after)
        self._skip = after.depth + 1
        _log.info(
            "autotune: %s (%s): threads %d -> %d, prefetch %d -> %d",
            why,
            window,
            before.threads,
            after.threads,
            before.depth,
            after.depth,
        )
