"""Runs processes step by step, in every order: an exhaustive scheduler over the real code.

A step is a call of libc that is about a path below one folder (``step_calls.c``, preloaded). Each process is
forked from here and waits at each of its steps until it is told to go on, so that one at a time runs, and
what happens is a function of the choices made here. A schedule is what is done otherwise than by rule, at
which step: go on with another process, kill the one that is due, or stop it until the others have ended. The
rule is to go on with whoever ran last, unless it waits or has ended. So schedules with up to two deviations
are all those with up to two preemptions, kills and stops together (context bounding: Musuvathi and Qadeer,
PLDI 2007); each runs from a fresh start (stateless: Godefroid, POPL 1997).

A process waits where a lock was not to be had, or where it sleeps; it is not due again before another one
has changed something. Where all wait for each other, or for one that is stopped, time passes for them:
``sleep`` and ``monotonic`` are ours (:class:`Clock`), so no time limit of the code takes any time.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import shutil
import signal
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Actor", "Clock", "Outcome", "Schedule", "Steps", "build_steps", "explore", "run_schedule"]

_SILENCE = 60.0  # seconds without a step: it waits for something that is no step
_PASSES = 7.0  # seconds that pass at a time
_LOOKS = ("stat", "statvfs", "listdir", "open", "sleep", "begin")  # what changes nothing for others
_MOST = 1500  # steps of a schedule: more, and nobody comes to an end

#: What is done otherwise than by rule: (number of the step, "go" | "kill" | "stop", number of the actor).
Schedule = tuple[tuple[int, str, int], ...]
#: What a process does; what it gives is put into the outcome.
Actor = Callable[[], Any]


def build_steps(folder: Path) -> Path:
    """The library to preload, compiled into ``folder``."""
    library = folder / "step_calls.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("no C compiler")
    source = Path(__file__).with_name("step_calls.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


class Steps:
    """The library that this process was started with."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        if not hasattr(self._library, "step_calls_arm"):
            raise RuntimeError("step_calls.so is not preloaded: see build_steps")

    def arm(self, folder: Path, say: int, hear: int, threads: bool) -> None:
        """From now on this process waits at each of its steps."""
        self._library.step_calls_arm(os.fsencode(folder), say, hear, int(threads))

    def point(self, what: str) -> None:
        """A step that is no call."""
        self._library.step_calls_point(what.encode())

    @property
    def passed(self) -> float:
        """Seconds that have passed because nobody could do anything but wait."""
        return _PASSES * self._library.step_calls_passed()


class Clock:
    """In place of the module ``time`` in what is run."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._slept = steps, 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self._slept + self._steps.passed

    def time(self) -> float:
        """Seconds since 1970; only noted in headers."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """A step, behind which so much time has passed, or more."""
        self._slept += seconds
        self._steps.point("sleep")


@dataclass
class _Process:
    pid: int
    say: int
    hear: int
    at: str = ""  # the step that it waits at; empty: it has ended
    waits: bool = False  # until another one has changed something
    refused: bool = False  # its last lock was not to be had
    stopped: bool = False
    killed: bool = False
    answer: Any = None
    rest: bytes = b""

    @property
    def lives(self) -> bool:
        return bool(self.at)


@dataclass
class Outcome:
    """What came of a schedule."""

    schedule: Schedule
    answers: list[Any]  # of each actor: what it gave, {"error": text}, or None where it was killed
    steps: int = 0
    killed: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    trace: list[tuple[int, str]] = field(default_factory=list)  # actor and step
    others: list[tuple[int, ...]] = field(default_factory=list)
    """Of each step: who else was due."""
    waited: list[int] = field(default_factory=list)
    """Steps behind which somebody waited."""

    def told(self) -> str:
        """The schedule in words, with the steps around what was done otherwise."""
        words = []
        for at, what, actor in self.schedule:
            step = self.trace[at] if at < len(self.trace) else (-1, "")
            words.append(f"at {at} {what} {actor} (step of {step[0]}: {step[1]})")
        return "; ".join(words) or "by rule"


def _fork(work: Actor, steps: Steps, folder: Path, threads: bool) -> _Process:
    hears, tells = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(hears[1])
            os.close(tells[0])
            steps.arm(folder, tells[1], hears[0], threads)
            steps.point("begin")
            try:
                answer = work()
            except BaseException as error:
                text = "".join(traceback.format_exception(error)[-3:])
                answer = {"error": type(error).__name__, "text": str(error), "where": text}
            os.write(tells[1], b"=" + json.dumps(answer).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(hears[0])
    os.close(tells[1])
    return _Process(pid, tells[0], hears[1])


def _listen(process: _Process) -> str:
    """Until it waits at its next step, or has ended; gives what is wrong with it."""
    text, process.rest = process.rest, b""
    while not text.endswith(b"\n"):
        if not select.select([process.say], [], [], _SILENCE)[0]:
            os.kill(process.pid, signal.SIGKILL)
            _reap(process)
            return f"no step for {_SILENCE:g} s behind {process.at!r}"
        block = os.read(process.say, 1 << 16)
        if not block:
            behind, process.at = process.at, ""
            _reap(process)
            return f"ended without a word behind {behind!r}"
        text += block
    line = text.splitlines()[-1].decode()
    if line.startswith("="):
        process.answer = json.loads(line[1:])
        process.refused = False
        _reap(process)
        return ""
    process.refused = line.startswith("!")
    process.waits = process.refused or line == "sleep"
    process.at = line.lstrip("!")
    return ""


def _reap(process: _Process) -> None:
    process.at = ""
    os.waitpid(process.pid, 0)
    os.close(process.say)
    os.close(process.hear)


class _Run:
    def __init__(self, processes: list[_Process], schedule: Schedule) -> None:
        self.processes = processes
        self.outcome = Outcome(schedule, [None] * len(processes))
        self.current = 0
        self._otherwise: dict[int, list[tuple[str, int]]] = {}
        for at, what, actor in schedule:
            self._otherwise.setdefault(at, []).append((what, actor))

    def go(self) -> Outcome:
        outcome = self.outcome
        for number, process in enumerate(self.processes):
            self._hear(number, process)
        while any(process.lives for process in self.processes):
            if outcome.steps >= _MOST:
                outcome.problems.append(f"no end after {_MOST} steps, at {[p.at for p in self.processes]}")
                break
            self._step()
        for number, process in enumerate(self.processes):
            if process.lives:
                os.kill(process.pid, signal.SIGKILL)
                _reap(process)
            outcome.answers[number] = process.answer
        return outcome

    def _hear(self, number: int, process: _Process) -> None:
        if problem := _listen(process):
            self.outcome.problems.append(f"actor {number}: {problem}")

    def _due(self) -> list[int]:
        """Who may make a step; those that wait only where nobody else may."""
        living = [n for n, process in enumerate(self.processes) if process.lives]
        going = [n for n in living if not self.processes[n].stopped]
        return [n for n in going if not self.processes[n].waits] or going or living

    def _step(self) -> None:
        due, outcome = self._due(), self.outcome
        by_rule = self._next(due)
        number = outcome.steps
        for what, actor in self._otherwise.get(number, []):
            process = self.processes[actor]
            if not process.lives:
                continue
            if what == "go":
                by_rule = actor
            elif what == "kill":
                os.kill(process.pid, signal.SIGKILL)
                outcome.killed.append(actor)
                process.killed = True
                _reap(process)
            else:
                process.stopped = True
                outcome.stopped.append(actor)
        if not self.processes[by_rule].lives or self.processes[by_rule].stopped:
            if not any(process.lives for process in self.processes):
                return
            by_rule = self._next(self._due())
        if all(process.stopped for process in self.processes if process.lives):
            for process in self.processes:
                process.stopped = False  # the others have ended: it goes on
        self._let(by_rule, due)

    def _next(self, due: Sequence[int]) -> int:
        if self.current in due:
            if not self.processes[self.current].waits:
                return self.current
            return next((n for n in due if n > self.current), due[0])  # all wait: one after the other
        return next((n for n in due if n > self.current), due[0])

    def _let(self, actor: int, due: Sequence[int]) -> None:
        process, outcome = self.processes[actor], self.outcome
        outcome.trace.append((actor, process.at))
        outcome.others.append(tuple(n for n in due if n != actor))
        outcome.steps += 1
        passes, looks = process.waits, process.at.partition(" ")[0] in _LOOKS
        process.waits = False
        self.current = actor
        os.write(process.hear, b"t" if passes else b"g")
        self._hear(actor, process)
        if not (looks or process.refused):  # something has changed
            for other in self.processes:
                other.waits = other.waits and other is process
        if process.waits:
            outcome.waited.append(outcome.steps - 1)


def run_schedule(
    actors: Sequence[Actor], schedule: Schedule, steps: Steps, folder: Path, threads: bool = False
) -> Outcome:
    """Run the actors once.

    Args:
        actors: each runs in a process of its own.
        schedule: what is done otherwise than by rule.
        steps: the preloaded library.
        folder: calls about paths below it are steps.
        threads: also those of other threads than the first; no two of a process may make steps at a time.
    """
    return _Run([_fork(actor, steps, folder, threads) for actor in actors], schedule).go()


def _children(outcome: Outcome) -> Iterator[Schedule]:
    """The schedules with one deviation more, behind the last one of this; one kill or stop at most."""
    begin = outcome.schedule[-1][0] if outcome.schedule else -1
    rough = any(what != "go" for _, what, _ in outcome.schedule)
    changed = True  # a kill behind a step that changes nothing is the kill before it
    for at in range(begin + 1, len(outcome.trace)):
        actor, step = outcome.trace[at]
        for other in outcome.others[at]:
            yield (*outcome.schedule, (at, "go", other))
        if not rough and (changed or outcome.trace[at - 1][0] != actor):
            yield (*outcome.schedule, (at, "kill", actor))
        changed = step.partition(" ")[0] not in _LOOKS


def _stopped(outcome: Outcome) -> Iterator[Schedule]:
    """With a stop in place of a preemption, where the others came to wait: else it is the same."""
    if not outcome.schedule or outcome.schedule[-1][1] != "go":
        return
    at = outcome.schedule[-1][0]
    before = next((actor for actor, _ in reversed(outcome.trace[:at])), outcome.schedule[-1][2])
    again = next((n for n in range(at, len(outcome.trace)) if outcome.trace[n][0] == before), _MOST)
    rough = any(what != "go" for _, what, _ in outcome.schedule)
    if not rough and any(at <= number < again for number in outcome.waited):
        yield (*outcome.schedule[:-1], (at, "stop", before))


def explore(
    run: Callable[[Schedule], Outcome],
    bound: int,
    points: int,
    seed: int,
    most_bad: int = 20,
) -> tuple[Counter[str], list[tuple[str, str]]]:
    """Run all schedules with at most ``bound`` deviations, or ``points`` of them, drawn by the seed; end at
    ``most_bad`` bad ones.

    Returns:
        Counts of schedules, steps, kills and stops; for each bad one the schedule and what was wrong.
    """
    counts: Counter[str] = Counter()
    bad: list[tuple[str, str]] = []
    waiting: list[Schedule] = [()]
    stops: list[Schedule] = []  # fewer than the others, and drawn as often
    chosen = random.Random(seed)
    while (waiting or stops) and (points == 0 or counts["schedules"] < points) and len(bad) < most_bad:
        among = stops if not waiting or (stops and chosen.random() < 0.3) else waiting
        if points != 0:  # any of them; without, the last one, which keeps the list short
            pick = chosen.randrange(len(among))
            among[pick], among[-1] = among[-1], among[pick]
        outcome = run(among.pop())
        counts["schedules"] += 1
        counts["steps"] += outcome.steps
        counts["kills"] += len(outcome.killed)
        counts["stops"] += len(outcome.stopped)
        bad += [(outcome.told(), problem) for problem in outcome.problems]
        if outcome.problems:
            continue
        stops += _stopped(outcome)
        if len(outcome.schedule) < bound:
            waiting += _children(outcome)
    return counts, bad
