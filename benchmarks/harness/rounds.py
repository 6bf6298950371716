"""A candidate's side of turns.py: gets ready when told to, then measures a round for each line that it reads.

Where something is missing (a GPU, a library), the candidate exits with SKIPPED and one line that says what;
the benchmarks print that line instead of figures.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from harness.machine import session_cpu

__all__ = ["SKIPPED", "Clock", "Measure", "serve", "settle", "skip"]

Measure = Callable[[], Mapping[str, Any]]  # what one round does; its figures
SKIPPED = 77  # as automake's tests have it
QUIET_SECONDS = 0.06  # without a tick of CPU time: nothing is being loaded ahead any more


class Clock:
    """Wall and CPU time, of this process and its workers, since it was made."""

    def __init__(self) -> None:
        self._cpu = session_cpu(os.getsid(0))
        self._begin = time.perf_counter()

    def read(self) -> dict[str, float]:
        """``seconds``, ``cpu_seconds`` and ``cores``, the mean number of cores in use."""
        seconds = time.perf_counter() - self._begin
        used = session_cpu(os.getsid(0)) - self._cpu
        return {"seconds": seconds, "cpu_seconds": used, "cores": used / seconds}


def skip(reason: str) -> NoReturn:
    """End: this candidate cannot run here."""
    print(f"skipped: {reason}", file=sys.stderr, flush=True)
    os._exit(SKIPPED)


def settle(limit: float = 5.0) -> None:
    """Wait until threads and workers that load ahead are at rest, so that they disturb nobody."""
    end = time.monotonic() + limit
    before = session_cpu(os.getsid(0))
    while time.monotonic() < end:
        time.sleep(QUIET_SECONDS)
        now = session_cpu(os.getsid(0))
        if now == before:
            return
        before = now


def serve(start: Callable[[], Measure]) -> NoReturn:
    """Say that everything is imported; at the first line of standard input, ``start()``; answer every further
    line with what the callable that it gave measures, until there are no more.
    """
    _say({"imported": True})
    sys.stdin.readline()
    measure = start()
    settle()
    _say({"ready": True})
    for _ in sys.stdin:
        before = session_cpu(os.getsid(0))
        values = dict(measure())
        settle()
        values["cpu_seconds"] = session_cpu(os.getsid(0)) - before  # all of the round, warm-up too
        _say(values)
    os._exit(0)


def _say(values: Mapping[str, Any]) -> None:
    print(json.dumps(values), flush=True)
