"""The cache's protocol between processes: every order of its steps, a kill and a stop at each of them.

Run from the repository root:

    export PYTHONPATH=.:tests/reference:tests/faults
    python tests/faults/cache_schedules.py '{"points": 0, "seed": 1}'

``points``: schedules of each scenario, 0 for all up to its bound (cache_scheduler.py); ``scenarios``: their
names, default all; ``bound``: less than theirs; ``folder``: where the set goes; ``plant``: a defect that is
to be found, one of PLANTS. Prints a line for each scenario, and as its last one a JSON object.

What the processes do (cache_roles.py) is the code of the package as it is, with ``time`` replaced, and
without threads: tables are copied when the filling has ended. What must hold after each schedule is in
:func:`_judge`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cache_roles import Stage, clear, disk, left_small, left_whole, pack_set, prepare, rank, warm
from cache_scheduler import Actor, Outcome, Schedule, Steps, build_steps, explore, run_schedule

import fastload.cache.files
import fastload.cache.folder
import fastload.cache.layout
import fastload.cache.opening
import fastload.cache.warming
from fastload.cache.opening import ENCODED, file_bytes
from fastload.shard.dataset import PackedFiles

__all__ = ["PLANTS", "SCENARIOS", "run_scenario"]

# What a stopped process may cost others: a lock that it has, memory of a removed file that it has open.
_BUSY = ("has been locked by another process", "has been locked for", "does not fit into")


@dataclass(frozen=True)
class Scenario:
    """Actors, and what was there before."""

    actors: tuple[Callable[[Stage], Any], ...]
    before: Callable[[Stage], object] | None = None
    threads: bool = False
    striped: bool = False
    room: float = 0.0  # the file system has room for so many files; 0: much
    bound: int = 2  # deviations of a schedule


SCENARIOS = {
    "two attach": Scenario((rank, rank), left_whole),
    "two make": Scenario((rank, rank)),
    "two make, room for one": Scenario((rank, rank), room=1.5),
    "two make stripes": Scenario((rank, rank), striped=True),
    "one makes stripes, room for one": Scenario((rank,), striped=True, room=1.02),
    "two replace": Scenario((rank, rank), left_small),
    "two replace, room for one": Scenario((rank, rank), left_small, room=1.5),
    "one attaches, one clears": Scenario((rank, clear), left_whole),
    "one makes, one clears": Scenario((rank, clear), striped=True),
    "two warm": Scenario((warm, warm), threads=True),
    "a rank and a warmer": Scenario((rank, warm), threads=True),
    "two open a tier on disk": Scenario((disk, disk)),
    "a tier on disk, one clears": Scenario((disk, clear)),
    "three: make, replace, clear": Scenario((rank, rank, clear), left_small, bound=1),
    "three warm": Scenario((warm, warm, warm), threads=True, bound=1),
}


# ---- what must hold -----------------------------------------------------------------------------------


def _judge(stage: Stage, scenario: Scenario, outcome: Outcome) -> list[str]:
    """What is wrong with an outcome, and with what a later start finds; the cache is empty behind it."""
    problems = []
    for number, answer in enumerate(outcome.answers):
        if number in outcome.killed:
            continue
        who = f"{scenario.actors[number].__name__} {number}"
        delayed = bool(outcome.stopped) and number not in outcome.stopped
        if answer is None or "error" in answer:
            text = f"{(answer or {}).get('error')}: {(answer or {}).get('text')}"
            if not (delayed and any(words in text for words in _BUSY)):
                problems.append(f"{who} failed: {text}")
        elif answer.get("none"):
            problems.append(f"{who} has no cache: {answer['none']}")
        elif answer.get("wrong"):
            problems.append(f"{who} got wrong records: {answer['wrong']}")
        elif answer.get("code"):
            if not (delayed and any(words in answer["said"] for words in _BUSY)):
                problems.append(f"{who}: exit code {answer['code']}: {answer['said']}")
        elif "whole" in answer:
            missing = len(stage.blobs) - answer["ready"]
            if missing > answer["claimed_records"] or (not answer["copy"] and not delayed):
                problems.append(f"{who} ended without {missing} records, copy {answer['copy']}")
            if answer["claimed_records"] and not delayed:
                problems.append(f"{who} did not wait: {answer}")
    return problems + _judge_later(stage, scenario)


def _judge_later(stage: Stage, scenario: Scenario) -> list[str]:
    """The next start finds or makes one file, and gets right records; ``cache clear`` leaves nothing."""
    problems = []
    is_disk = disk in scenario.actors
    try:
        told = disk(stage) if is_disk else rank(stage)
    except Exception as error:
        told = {"wrong": [], "none": f"{type(error).__name__}: {error}"}
    if "none" in told:
        problems.append(f"the next start has no cache: {told['none']}")
    elif told["wrong"]:
        problems.append(f"the next start got wrong records: {told['wrong']}")
    elif told["room"] != len(stage.blobs) or not told.get("copy", True):
        problems.append(f"the next start has a lesser cache: {told}")
    names = stage.names()
    whole = [name for name in names if name.endswith((".flc", ".flt"))]
    if len(whole) > 1 or any(not name.startswith(whole[0]) for name in names if whole):
        problems.append(f"left behind: {names}")
    told = clear(stage)
    if told["code"] or stage.names():
        problems.append(f"left after cache clear (exit code {told['code']}): {stage.names()}")
    return problems


# ---- the stage ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _memory(parent: Path, size: int) -> Iterator[Path]:
    """A folder in memory, of a file system of its own with so many bytes where that is not 0."""
    if size == 0:
        path = Path(tempfile.mkdtemp(prefix="fastload-schedules-", dir="/dev/shm"))
        try:
            yield path
        finally:
            shutil.rmtree(path)
        return
    path = Path(tempfile.mkdtemp(prefix="room-", dir=parent))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield Path()
        return
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def run_scenario(
    name: str, folder: Path, points: int, seed: int, bound: int = 9, most_bad: int = 20
) -> tuple[Counter[str], list[tuple[str, str]]]:
    """All schedules of a scenario up to its bound or this one, or some; as :func:`cache_scheduler.explore`.

    Returns:
        Counts without schedules where this machine lets nobody mount a small file system.
    """
    scenario, steps = SCENARIOS[name], Steps()
    layout = fastload.cache.layout
    striped = (1, 3000, 3072) if scenario.striped else (64 << 20, 16 << 20, 8 << 20)
    layout._STRIPED, layout._STRIPE_LEAST, layout._STRIPE_RUN = striped
    dataset = folder / "set"
    blobs = pack_set(dataset)
    size = file_bytes(PackedFiles(dataset), ENCODED)
    with _memory(folder, int(size * scenario.room) // 4096 * 4096) as root:
        if root == Path():
            return Counter(), []
        stage = Stage(dataset, blobs, root, steps, size)

        def run(schedule: Schedule) -> Outcome:
            shutil.rmtree(stage.folder, ignore_errors=True)
            stage.folder.mkdir()
            if scenario.before is not None:
                scenario.before(stage)
            actors: list[Actor] = [partial(work, stage) for work in scenario.actors]
            outcome = run_schedule(actors, schedule, steps, stage.folder, scenario.threads)
            outcome.problems += _judge(stage, scenario, outcome)
            return outcome

        gc.collect()
        gc.freeze()  # what forked processes would copy by looking at it
        try:
            return explore(run, min(bound, scenario.bound), points, seed, most_bad)
        finally:
            gc.unfreeze()


# ---- defects on purpose ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _no_lock(self: Any, seconds: float = 0.0) -> Iterator[None]:
    yield


def _attach_at_once(folder: Any, name: str, *, write: bool = True) -> Any:
    descriptor = fastload.cache.folder.open_private(folder, name, os.O_RDWR)
    while not fastload.cache.folder.lock(descriptor, fcntl.LOCK_SH):
        fastload.cache.files.time.sleep(0.01)
    return fastload.cache.files._attached(descriptor, folder.path / name)


def _nothing(*_: object) -> int:
    return 0


#: Defect: the scenario that finds it, and what is replaced: object, name, by what.
PLANTS: dict[str, tuple[str, list[tuple[Any, str, Any]]]] = {
    "files are made without the folder's lock": (
        "two make",
        [(fastload.cache.folder.PrivateFolder, "creating", _no_lock)],
    ),
    "who attaches does not look again": (
        "one attaches, one clears",
        [(fastload.cache.opening, "attach", _attach_at_once)],
    ),
    "room is judged without the lock": (
        "two make, room for one",
        [(fastload.cache.opening._Survey, "lacks_room", False)],
    ),
    "what a killed process left takes room": (
        "one makes stripes, room for one",
        [(fastload.cache.opening, "clean", _nothing), (fastload.cache.opening, "left_bytes", _nothing)],
    ),
    "a stopped warmer is waited for": ("two warm", [(fastload.cache.warming, "_PATIENCE", math.inf)]),
}


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(request: dict[str, Any]) -> int:
    """Do what the request says; 1: something was wrong."""
    points, seed = int(request.get("points", 0)), int(request.get("seed", 1))
    folder = Path(request.get("folder") or tempfile.mkdtemp(prefix="fastload-schedules-"))
    names, bound = request.get("scenarios") or list(SCENARIOS), int(request.get("bound", 9))
    most_bad = 1 if request.get("plant") else 20
    if request.get("plant"):
        scenario, replaced = PLANTS[request["plant"]]
        names = [scenario]
        for where, name, by in replaced:
            setattr(where, name, by)
    prepare(Steps())
    counts: Counter[str] = Counter()
    bad: list[list[str]] = []
    for number, name in enumerate(names):
        found, problems = run_scenario(name, folder, points, seed + number, bound, most_bad)
        _tell(f"{name}: {dict(found) or 'needs a small tmpfs, which cannot be mounted here'}")
        counts += found
        bad += [[f"{name}: {schedule}", what] for schedule, what in problems]
    told = {"instrument": "cache_schedules", "seed": seed, "points": dict(counts), "bad": bad}
    _tell(json.dumps(told))
    if not request.get("folder"):
        shutil.rmtree(folder)
    return 1 if bad else 0


def _preloaded(text: str) -> None:
    """Start anew with the library, if it is not there."""
    if "step_calls" in os.environ.get("LD_PRELOAD", ""):
        return
    with tempfile.TemporaryDirectory(prefix="fastload-steps-") as folder:
        library = build_steps(Path(folder))
        env = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, *sys.argv[:1], text], env=env, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    _preloaded(sys.argv[1] if len(sys.argv) > 1 else "{}")
    sys.exit(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
