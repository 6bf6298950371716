"""fork(), signals and exit at every step of an epoch.

    epoch_steps.py '{"points": 0, "seed": 1, "folder": "/tmp/steps", "each": 40}'

A point is a small job (:mod:`step_jobs`), an event (:mod:`step_events`) and a step: the n-th moment at
which CPython may handle a signal in the library's code, or a time, at which the main thread may be in C++.
Each runs in a process of its own, forked from this one, which knows torch and fastload but has no threads. It
has to end in time, with the right status, having delivered each batch once, and to leave nothing behind.

"points": 0 stands for ``each`` points for every event of every job; the last line is their count.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

# Torch imports it late, and swallows what a handler of a signal raises meanwhile.
with contextlib.suppress(ImportError):
    import torch.profiler._cupti_monitor

# Each of the many processes would go through all of torch's objects when it ends: most of the time.
# What is ours is imported behind this, and ends as usual.
gc.collect()
gc.freeze()

from cache_folder import MEMORY  # noqa: E402
from process import HANG  # noqa: E402
from step_events import EVENTS, Scene, Steps, by_timer  # noqa: E402
from step_jobs import KINDS, WITH_WORKERS, Holdings, Job, expected, pack  # noqa: E402

__all__ = ["Point", "choose", "main", "run_points"]

USES = ("fresh", "inherited", "close")  # of a forked child
RECOVERIES = ("state", "iterator", "again")
LEFT = 30.0  # seconds; torch's workers look for their parent every five
DUMP = signal.SIGUSR2  # makes a process say where it is
FATAL = ("Fatal Python error", "terminate called", "Segmentation fault", "core dumped", "Exception in thread")
SWALLOWED = "Exception ignored in"
# Up to 3.13 Python ends a thread that wants the GIL at its end by unwinding it, which torch's C++ does not
# survive: a daemon thread in Tensor.permute, say. That is rare; as often as this, it is ours.
UNWOUND = "terminate called without an active exception"
TOO_OFTEN = 20  # one in so many


@dataclass
class Point:
    """One of the many; ``at`` is a share of all steps, or of the job's time."""

    number: int
    kind: str
    event: str
    trigger: str  # "step" or "time"
    at: float
    use: str
    recovery: str
    seed: int
    full_exit: bool

    def __str__(self) -> str:
        detail = {"fork": self.use}.get(self.event, self.recovery)
        return f"{self.kind}/{self.event}/{self.trigger} {self.at:.4f} ({detail}, seed {self.seed})"


@dataclass
class Measured:
    """A job that nobody disturbs."""

    wanted: list[int]
    steps: int
    seconds: float
    modules: list[str]


@dataclass
class Running:
    """A point's process."""

    point: Point
    pid: int
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    status: int | None = None
    killed: bool = False


def choose(count: int, seed: int, kinds: list[str], events: list[str], each: int) -> list[Point]:
    """``count`` points; 0: ``each`` for every event of every kind."""
    draws = random.Random(seed)
    cases = [(k, e) for k in kinds for e in events if not EVENTS[e].kinds or k in EVENTS[e].kinds]
    chosen = cases * each if count == 0 else [draws.choice(cases) for _ in range(count)]
    if count == 0:
        draws.shuffle(chosen)
    return [
        Point(
            number,
            *case,
            trigger="time" if draws.random() < 0.3 else "step",
            at=draws.random(),
            use=draws.choice(USES),
            recovery=draws.choice(RECOVERIES),
            seed=draws.randrange(1 << 20),
            full_exit=draws.random() < 0.25,
        )
        for number, case in enumerate(chosen)
    ]


# ---- in the point's process ------------------------------------------------------------------


def measure(kind: str, folder: Path) -> Measured:
    """Batches, steps and time of an undisturbed job."""
    wanted = expected(kind, folder)
    steps = Steps(-1, lambda: None)
    began = time.perf_counter()
    Job(kind, folder, wanted).run()
    seconds = time.perf_counter() - began
    job = Job(kind, folder, wanted)
    steps.watch()
    job.run()
    sys.setprofile(None)
    assert not job.verdict(), job.verdict()
    return Measured(wanted, steps.count, seconds, sorted(sys.modules))


def in_a_process(call: Callable[[], Any]) -> Any:
    """What a call gives (as JSON) in a child: this process has to stay without threads."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with os.fdopen(writing, "w") as file:
                json.dump(call(), file)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("what nobody disturbs fails")
    return json.loads(text)


def undisturbed(kinds: list[str], folder: Path) -> dict[str, Measured]:
    """Of each kind."""
    found = {}
    for kind in kinds:
        measured = in_a_process(lambda kind=kind: vars(measure(kind, folder)))  # type: ignore[misc]
        found[kind] = Measured(**measured)
    for name in sorted({name for one in found.values() for name in one.modules} - {"__main__"}):
        # A handler that comes in the middle of an import finds half a module, or Cython drops what it raises.
        with contextlib.suppress(ImportError):  # some an extension has put there itself
            import_module(name)
    return found


def perform(point: Point, measured: Measured, folder: Path) -> list[str]:
    """The job with its event; what is wrong. Leaves by an exception, or not at all, where that is its end."""
    event = EVENTS[point.event]
    before = Holdings()
    scene = Scene(Job(point.kind, folder, measured.wanted, point.recovery, point.seed), point.use)

    def act() -> None:
        scene.happened += 1
        event.act(scene)

    event.prepare(scene)
    steps = Steps(1 + int(point.at * measured.steps), act)
    if point.trigger == "time":
        by_timer(max(1e-4, point.at * measured.seconds), act)
    else:
        steps.watch()
    try:
        scene.job.run(event.survived)
    except event.survived:  # behind the job's last line
        scene.job.finish()
    except Exception as error:
        if event.status is not None:
            raise
        words = traceback.format_exc()
        scene.bad.append(f"at {steps.where}: the job failed: {error!r}\n{words}")
    finally:
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if event.status is not None and not scene.happened:  # it came too late for this one
        raise SystemExit(event.status if event.status >= 0 else 0)
    scene.bad += [f"at {steps.where}: {word}" for word in scene.job.verdict()]
    for child in scene.children:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            scene.bad.append(f"at {steps.where}: a child ended with status {status}")
    until = time.monotonic() + LEFT
    left = before.left(scene.job, lambda: time.monotonic() > until)
    scene.bad += [f"at {steps.where}: {word}" for word in left]
    return scene.bad


def live(point: Point, measured: Measured, folder: Path) -> None:
    """All of the point's process, until its end."""
    os.setsid()
    errors = os.open(folder / f"{point.number}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 2)
    os.close(errors)
    faulthandler.register(DUMP, file=2, all_threads=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    bad = perform(point, measured, folder)
    (folder / f"{point.number}.json").write_text(json.dumps(bad))
    if not point.full_exit:
        os._exit(0)
    raise SystemExit(0)


# ---- in the driver ---------------------------------------------------------------------------


def of_session(session: int) -> list[int]:
    """The processes of a point."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(name))
    return found


def judged(run: Running, folder: Path) -> list[str]:
    """What is wrong with a point whose process has ended."""
    point, event = run.point, EVENTS[run.point.event]
    said = (folder / f"{point.number}.err").read_text(errors="replace")
    report = folder / f"{point.number}.json"
    bad = json.loads(report.read_text()) if report.exists() else []
    if run.killed:
        return [f"hangs; it said: {said[:8000]}"]
    wanted = 0 if event.status is None else event.status
    if point.trigger == "time" and SWALLOWED in said:  # Python drops what a handler raises in a finalizer
        if run.status == 0 and event.status is not None:
            return bad
        if point.kind in WITH_WORKERS:  # torch's, which then leaves a queue's thread and pipes
            bad = [word for word in bad if " are left: " not in word]
    if run.status != wanted and not (wanted < 0 and run.status == 0):
        bad.append(f"exit status {run.status}, not {wanted}")
    bad += [f"it said {word!r}" for word in FATAL if word in said]
    # torch's workers, and the threads that serve them memory, say so when the other side has gone.
    quiet = event.quiet and not (event.status is not None and point.kind in WITH_WORKERS)
    if said and (quiet or bad):
        bad.append(f"it said: {said[-3000:]}")
    for path in Path("/dev/shm").glob(f"*_{run.pid}_*"):
        bad.append(f"left {path}")
        path.unlink(missing_ok=True)
    return bad


class Driver:
    """Runs points, a few at a time."""

    def __init__(self, folder: Path, measured: dict[str, Measured], patience: float) -> None:
        self.folder, self.measured, self.patience = folder, measured, patience
        self.running: list[Running] = []
        self.counts: Counter[str] = Counter()
        self.bad: list[list[str]] = []
        self.unwound: list[list[str]] = []

    def start(self, point: Point) -> None:
        """Returns in the driver only."""
        pid = os.fork()
        if pid == 0:
            live(point, self.measured[point.kind], self.folder)
        self.running.append(Running(point, pid))

    def look(self) -> None:
        """Who has ended, who hangs."""
        for run in list(self.running):
            if run.status is None:
                done, status = os.waitpid(run.pid, os.WNOHANG)
                if done:
                    run.status, run.ended = os.waitstatus_to_exitcode(status), time.monotonic()
                elif time.monotonic() - run.began > self.patience:
                    self.end(run, dump=True)
                    run.killed = True
                    run.status = os.waitstatus_to_exitcode(os.waitpid(run.pid, 0)[1])
                    run.ended = time.monotonic()
                continue
            left = of_session(run.pid)
            if left and time.monotonic() - run.ended < LEFT:
                continue
            found = judged(run, self.folder)
            if left:
                names = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:3] for pid in left]
                found.append(f"processes are left: {left} {names}")
                self.end(run, dump=False)
            self.note(run, found)

    def end(self, run: Running, dump: bool) -> None:
        """Kill all of the point's, after each has said where it is."""
        if dump:
            for pid in of_session(run.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, DUMP)
                time.sleep(0.5)
        for pid in of_session(run.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def note(self, run: Running, found: list[str]) -> None:
        self.running.remove(run)
        point = run.point
        self.counts[f"{point.event}/{point.kind}"] += 1
        unwound = point.event == "daemon_thread" and any(UNWOUND in word for word in found)
        kept = self.unwound if unwound and sys.version_info < (3, 14) else self.bad
        kept += [[str(point), word] for word in found]
        for word in found:
            sys.stderr.write(f"{point}: {word}\n")
        for suffix in ("json", "err"):
            (self.folder / f"{point.number}.{suffix}").unlink(missing_ok=True)


def run_points(points: list[Point], folder: Path, at_once: int = 2, patience: float = HANG) -> Driver:
    """All of them. A point's process leaves by SystemExit, to its interpreter's end."""
    in_a_process(lambda: pack(folder))
    (folder / "cache").mkdir()
    driver = Driver(folder, undisturbed(sorted({point.kind for point in points}), folder), patience)
    waiting = points[::-1]
    while waiting or driver.running:
        while waiting and sum(run.status is None for run in driver.running) < at_once:
            driver.start(waiting.pop())
        driver.look()
        time.sleep(0.002)
    threads = sum(count for name, count in driver.counts.items() if name.startswith("daemon_thread/"))
    if len({where for where, _ in driver.unwound}) > max(1, threads // TOO_OFTEN):
        driver.bad += driver.unwound
    return driver


def main(asked: dict[str, Any]) -> int:
    """See the module."""
    seed = int(asked.get("seed", 1))
    kinds, events = asked.get("kinds", list(KINDS)), asked.get("events", list(EVENTS))
    points = choose(int(asked.get("points", 0)), seed, kinds, events, int(asked.get("each", 14)))
    if "only" in asked:
        points = [point for point in points if point.number in asked["only"]]
    otherwise, mine = Path(asked["folder"]), os.getpid()
    otherwise.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fastload-test-", dir=MEMORY if MEMORY.is_dir() else otherwise))
    try:
        driver = run_points(points, folder, int(asked.get("at_once", 2)), float(asked.get("patience", HANG)))
    finally:
        if os.getpid() == mine:
            shutil.rmtree(folder)
    found = {"instrument": "epoch_steps", "seed": seed, "points": driver.counts, "bad": driver.bad}
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if driver.bad else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
