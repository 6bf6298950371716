"""Alternating runs of several candidates, their medians and spreads, and a record of it all.

A candidate is a command that prints one JSON object as the last line of its standard output. If that has
"memory_at_end", the fields of a harness.machine.Memory, it counts as one more sample of the run's memory.
Each run is a process of its own, and the candidates take turns (A B C, then C B A, ...), so that a slow
minute of the machine, or a warmer cache, does not fall on one of them. The environment variable
BENCH_STARTED holds ``time.monotonic()`` of the moment before the process was started.

No median is given for fewer than five runs: two or three say nothing about their spread.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.machine import Memory, MemorySampler, busy_seconds, warm_page_cache
from harness.provenance import provenance

__all__ = [
    "MINIMUM_REPEATS",
    "Candidate",
    "Run",
    "Summary",
    "TooFewRuns",
    "alternate",
    "check_repeats",
    "failures",
    "ratio",
    "run_once",
    "summarize",
    "table",
    "values_of",
    "write_results",
]

# The variable is for the tests, which only look whether a benchmark runs: its figures mean nothing then.
MINIMUM_REPEATS = int(os.environ.get("FASTLOAD_BENCH_SMOKE_REPEATS", "5"))
ERROR_CHARACTERS = 2000  # of a failed run's output that are kept


class TooFewRuns(ValueError):
    """A median was asked of fewer than :data:`MINIMUM_REPEATS` runs."""


@dataclass(frozen=True)
class Candidate:
    """A command to measure; ``env`` adds to this process's environment.

    ``reads`` are files and folders that are read before each run, so that they are in the page cache:
    a kernel may drop what the turns of the other candidates leave unused.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    reads: Sequence[Path] = ()


@dataclass(frozen=True)
class Run:
    """One run of one candidate: ``values`` is what it printed, empty if it failed."""

    name: str
    round: int
    values: Mapping[str, Any]
    error: str = ""  # exit status and the end of its output, if it failed
    wall: float = 0.0  # seconds from start to exit
    memory: Memory = field(default_factory=Memory)  # at the highest that was seen of the whole process tree
    outside_cores: float = 0.0  # mean number of cores that other processes used meanwhile


@dataclass(frozen=True)
class Summary:
    """Median and extremes of at least five runs."""

    median: float
    low: float
    high: float
    count: int

    def text(self, digits: int = 0) -> str:
        """``median [low-high]``."""
        return f"{self.median:.{digits}f} [{self.low:.{digits}f}-{self.high:.{digits}f}]"


def check_repeats(repeats: int) -> None:
    """Raise :class:`TooFewRuns` if a benchmark with so many repeats could not print a median."""
    if repeats < MINIMUM_REPEATS:
        raise TooFewRuns(f"{repeats} runs are too few for a median and a spread; at least {MINIMUM_REPEATS}.")


def summarize(values: Sequence[float]) -> Summary:
    """Median and extremes of ``values``; raises :class:`TooFewRuns` below five."""
    check_repeats(len(values))
    return Summary(statistics.median(values), min(values), max(values), len(values))


def ratio(summary: Summary, baseline: Summary) -> float:
    """How many times the baseline's median the median is."""
    return summary.median / baseline.median


def run_once(candidate: Candidate, round_number: int = 0, timeout: float = 600.0) -> Run:
    """Run one candidate once, in a session of its own, and watch memory and CPU meanwhile."""
    warm_page_cache(candidate.reads)
    begin, busy, own = time.monotonic(), busy_seconds(), time.process_time()
    env = {**os.environ, **candidate.env, "BENCH_STARTED": repr(begin)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            list(candidate.command), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env,
            start_new_session=True,
        )  # fmt: skip
        with MemorySampler(process.pid) as sampler:
            code, used, late = _wait(process, begin + timeout)
        wall = time.monotonic() - begin
        outside = (busy_seconds() - busy - used - (time.process_time() - own)) / wall
        out.seek(0)
        err.seek(0)
        output, complaint = out.read(), err.read()
    values, error = _parse(output)
    if late:
        error = f"still running after {timeout:.0f} s, killed"
    elif code != 0:
        error = f"exit status {code}"
    if error:
        error = f"{error}: {(complaint.strip() or output.strip())[-ERROR_CHARACTERS:]}"
        values = {}
    # A short run may end between two samples: what it says itself, with all its processes there, counts too.
    seen = (sampler.peak, Memory(**values.get("memory_at_end", {})))
    highest = max(seen, key=lambda memory: memory.total)
    return Run(candidate.name, round_number, values, error, wall, highest, max(0.0, outside))


def _wait(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, float, bool]:
    """Exit status, CPU seconds of the process and its waited-for descendants, and if it was killed."""
    late = False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline and not late:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what it left behind would disturb the next run
    return process.returncode, usage.ru_utime + usage.ru_stime, late


def _parse(output: str) -> tuple[dict[str, Any], str]:
    lines = output.strip().splitlines()
    try:
        values = json.loads(lines[-1]) if lines else None
    except ValueError:
        values = None
    if isinstance(values, dict):
        return values, ""
    return {}, "its last line of output is not a JSON object"


def alternate(
    candidates: Sequence[Candidate],
    repeats: int = MINIMUM_REPEATS,
    *,
    timeout: float = 600.0,
    report: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True),
) -> list[Run]:
    """Run every candidate ``repeats`` times, in turns; a failed run is reported and kept.

    A candidate that failed is not run again: its later rounds would only repeat the failure.
    """
    check_repeats(repeats)
    runs: list[Run] = []
    failed: set[str] = set()
    for number in range(repeats):
        turn = candidates if number % 2 == 0 else candidates[::-1]
        for candidate in turn:
            if candidate.name in failed:
                continue
            run = run_once(candidate, number, timeout)
            runs.append(run)
            if run.error:
                failed.add(run.name)
            report(f"round {number + 1}/{repeats} {run.name}: {run.error or f'{run.wall:.1f} s'}")
    return runs


def values_of(runs: Iterable[Run], name: str, key: str) -> list[float]:
    """``key`` of each good run of candidate ``name``, in order."""
    return [float(run.values[key]) for run in runs if run.name == name and not run.error]


def failures(runs: Iterable[Run]) -> dict[str, str]:
    """The candidates that failed, each with its first error."""
    found: dict[str, str] = {}
    for run in runs:
        if run.error:
            found.setdefault(run.name, run.error)
    return found


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [list(header), ["---"] * len(header), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_results(
    path: Path, benchmark: str, arguments: Mapping[str, Any], runs: Sequence[Run], **more: Any
) -> None:
    """Write every run as JSON, with date, commit, versions, machine and arguments; ``more`` as it is."""
    body = {
        "benchmark": benchmark,
        **provenance(),
        **more,
        "arguments": {name: str(value) for name, value in arguments.items()},
        "failures": failures(runs),
        "runs": [asdict(run) for run in runs],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1) + "\n")
