"""benchmarks/harness/turns.py and harness/rounds.py: candidates that stay alive and take turns."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import machine, measure, rounds, turns
from starvation import tables as starvation_tables
from watched_loops import FakeClock

BENCHMARKS = str(Path(turns.__file__).parents[1])


def candidate(name: str, code: str) -> measure.Candidate:
    """A process that serves with ``start`` and ``measure`` as ``code`` defines them."""
    text = f"import os, sys, time\nfrom harness import rounds\n{code}\n"
    return measure.Candidate(name, [sys.executable, "-c", text], {"PYTHONPATH": BENCHMARKS})


def in_shell(name: str, start: str, each: str) -> measure.Candidate:
    """The same protocol in a shell, which begins at once, as Python on a crowded machine does not."""
    text = f"echo '{{}}'; read line; {start}; echo '{{}}'; while read line; do {each}; done"
    return measure.Candidate(name, ["sh", "-c", text])


def logs(name: str, log: Path) -> measure.Candidate:
    code = (
        f"def note(text):\n    open({str(log)!r}, 'a').write(text + ' ')\n"
        f"def measure():\n    note({name!r})\n    print('chatter', flush=True)\n"
        "    return {'rate': 2.5, 'pid': os.getpid()}\n"
        f"def start():\n    note('start-{name}')\n    return measure\n"
        "rounds.serve(start)"
    )
    return candidate(name, code)


def test_each_is_one_process_and_they_start_and_run_in_turns(tmp_path: Path) -> None:
    lines: list[str] = []
    runs = turns.take_turns([logs(name, tmp_path / "log") for name in "ab"], 5, report=lines.append)
    assert (tmp_path / "log").read_text().split() == ["start-a", "start-b", *"abbaabbaab"]
    assert measure.failures(runs) == {}
    assert measure.values_of(runs, "a", "rate") == [2.5] * 5
    for name in "ab":
        assert len({run.values["pid"] for run in runs if run.name == name}) == 1
    assert len(lines) == 2 + 10
    assert all(machine.process_memory(run.values["pid"]).processes == 0 for run in runs)


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(measure.TooFewRuns):
        turns.take_turns([], 4)


def test_failures_and_skips_are_told_apart_and_the_others_go_on(tmp_path: Path) -> None:
    everyone = [
        candidate("breaks", "rounds.serve(lambda: sys.exit('no such thing'))"),
        candidate("skips", "rounds.skip('needs two GPUs')"),
        candidate("late", "n = []\ndef m():\n    n.append(1)\n    1 / (2 - len(n))\n    return {'rate': 1}\n"
                  "rounds.serve(lambda: m)"),
        logs("good", tmp_path / "log"),
    ]  # fmt: skip
    runs = turns.take_turns(everyone, 5, report=lambda line: None)
    found = measure.failures(runs)
    assert sorted(found) == ["breaks", "late", "skips"]
    assert "no such thing" in found["breaks"]
    assert "ZeroDivisionError" in found["late"]
    assert starvation_tables.reason_of(found["skips"]) == "needs two GPUs"
    assert starvation_tables.reason_of(found["breaks"]) == ""
    assert sorted(starvation_tables.failed_feeds(runs)) == ["breaks", "late"]
    assert measure.summarize(measure.values_of(runs, "good", "rate")).count == 5


def test_a_silent_candidate_is_given_up_and_killed_with_its_children() -> None:
    silent = in_shell("silent", "sleep 600 & echo $! >&2", "sleep 600")
    runs = turns.take_turns([silent], 5, timeout=3.0, report=lambda line: None)
    (error,) = measure.failures(runs).values()
    assert error.startswith("no answer in 3 s")
    child = int(error.split()[-1])
    deadline = time.monotonic() + 60
    while machine.process_memory(child).processes and time.monotonic() < deadline:
        time.sleep(0.05)
    assert machine.process_memory(child).processes == 0


def test_no_round_begins_after_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that jumps behind the third round, as a busy machine's seems to."""
    reports: list[str] = []

    def now() -> float:
        return time.monotonic() + 1e6 * (sum("round" in line for line in reports) > 2)

    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=now))
    quick = in_shell("quick", ":", "echo '{\"rate\": 1}'")
    runs = turns.take_turns([quick], 50, until=time.monotonic() + 1e5, report=reports.append)
    assert [bool(run.error) for run in runs] == [False] * 3 + [True]
    assert "time for all rounds was over" in measure.failures(runs)["quick"]


def test_settling_waits_for_work_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of its own: processes that work for a second."""
    clock = FakeClock()
    end = clock.now + 1
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    monkeypatch.setattr(rounds, "session_cpu", lambda session: min(clock.now, end))
    rounds.settle(0.3)
    assert end - 0.7 <= clock.now < end - 0.6
    rounds.settle()
    assert end <= clock.now < end + 0.2


def test_the_clock_counts_cores() -> None:
    clock = rounds.Clock()
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    values = clock.read()
    assert values["cores"] == pytest.approx(values["cpu_seconds"] / values["seconds"])
    assert values["cpu_seconds"] >= 0.25
