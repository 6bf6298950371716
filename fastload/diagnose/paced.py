"""A step that takes the time of the user's, for trials of a loader and a step together."""

from __future__ import annotations

import statistics
import time
import zlib

from fastload.diagnose.facts import Stage

__all__ = ["PacedStep"]

_BYTES = bytes(1 << 16)  # some 20 microseconds of work that does not keep Python's lock

_SLEEP, _SLEEPS = 0.0005, 9  # seconds, and how many of them are looked at


class PacedStep:
    """Computes for as long as the step does, in this thread, and waits for the rest of its time.

    Args:
        step: alone. Of a step that computes in several threads at once one thread's time is taken.
    """

    def __init__(self, step: Stage) -> None:
        self._seconds = 1 / step.rate
        self._cpu = min(step.cpu, self._seconds)
        self._late = _lateness()

    def __call__(self, samples: int) -> None:
        """One step."""
        began, end = time.perf_counter(), time.thread_time() + self._cpu * samples
        while time.thread_time() < end:
            zlib.crc32(_BYTES)
        rest = self._seconds * samples - (time.perf_counter() - began)
        if rest > self._late:
            time.sleep(rest - self._late)
        while time.perf_counter() - began < self._seconds * samples:
            pass


def _lateness() -> float:
    """Seconds that a sleep takes too long here: of steps of some hundred microseconds it is half."""
    found = []
    for _ in range(_SLEEPS):
        began = time.perf_counter()
        time.sleep(_SLEEP)
        found.append(time.perf_counter() - began - _SLEEP)
    return statistics.median(found)
