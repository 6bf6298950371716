"""What happens at a step: fork, signals, exits; and how steps are found."""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from step_jobs import WITH_WORKERS, Interrupted, Job, after_fork

import fastload

__all__ = ["EVENTS", "Event", "Steps", "by_timer"]

PACKAGE = str(Path(fastload.__file__).parent) + os.sep
EXIT_CODE = 7
_STARTS = 8  # a generator's first instructions, in bytes
_SYS_TGKILL = 234 if os.uname().machine == "x86_64" else 131
kept: list[Any] = []  # what the interpreter's own end finds alive


class Late:
    """Makes the interpreter's end long, and leaves the GIL to whoever asks for it then."""

    sleep = time.sleep  # the module's name is gone by then

    def __del__(self) -> None:
        self.sleep(0.1)


class Steps:
    """Counts the moments at which a handler of a signal may run in the library's Python code.

    CPython looks for signals when a function of Python's begins and when one of C's returns: where a profile
    function is called. ``act`` is called at the ``at``-th of them; an exception of its comes out there.
    """

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.count, self._at, self._act = 0, at, act
        self._pid = os.getpid()  # worker processes inherit this
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        if event == "call" and frame.f_code.co_flags & inspect.CO_GENERATOR and frame.f_lasti > _STARTS:
            return  # perhaps it is being closed, which is no such moment
        self.count += 1
        if self.count == self._at and os.getpid() == self._pid:
            sys.setprofile(None)
            self.where = f"{frame.f_code.co_filename[len(PACKAGE) :]}:{frame.f_lineno} ({event})"
            self._act()

    def watch(self) -> None:
        """From now on, in this thread."""
        sys.setprofile(self)


def by_timer(seconds: float, act: Callable[[], None]) -> None:
    """``act`` is called once, so much later, wherever the main thread is: also in C++."""
    signal.signal(signal.SIGALRM, lambda number, frame: act())
    signal.setitimer(signal.ITIMER_REAL, seconds)


class Scene:
    """One point: its job, and what it has found."""

    def __init__(self, job: Job, use: str) -> None:
        self.job, self.use = job, use
        self.children: list[int] = []
        self.bad: list[str] = []
        self.happened = 0


class Event(NamedTuple):
    """An event.

    Args:
        act: called at the step.
        prepare: called before the job begins.
        survived: what the job's consumer catches, and goes on.
        status: the process's exit status; None: the job is completed, and it ends well.
        quiet: nothing may be said on stderr.
        kinds: of jobs; empty: all.
    """

    act: Callable[[Scene], None]
    prepare: Callable[[Scene], None] = lambda scene: None
    survived: tuple[type[BaseException], ...] = ()
    status: int | None = None
    quiet: bool = True
    kinds: tuple[str, ...] = ()


def fork(scene: Scene) -> None:
    """A child, which does ``scene.use``; the parent goes on meanwhile."""
    pid = os.fork()
    if pid:
        scene.children.append(pid)
        return
    sys.setprofile(None)
    signal.setitimer(signal.ITIMER_REAL, 0)
    torch.set_num_threads(1)  # OpenMP's are the parent's
    status = 1
    try:
        found = after_fork(scene.job.kind, scene.job, scene.use)
        for word in found:
            sys.stderr.write(word + "\n")
        sys.stderr.flush()
        status = 3 if found else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def storm(number: int) -> Callable[[Scene], None]:
    """The signal, to each thread of the process: those of the core have it blocked."""

    def act(scene: Scene) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        for task in os.listdir("/proc/self/task"):
            libc.syscall(_SYS_TGKILL, os.getpid(), int(task), number)

    return act


def ends_children(scene: Scene) -> None:
    """Children of the program's that end: each is a SIGCHLD."""
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def stop(scene: Scene) -> None:
    """SIGSTOP, and SIGCONT a little later, from another process."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.kill(parent, signal.SIGSTOP)
        time.sleep(0.01)
        os.kill(parent, signal.SIGCONT)
        os._exit(0)
    scene.children.append(pid)


def garbage(scene: Scene) -> None:
    """A garbage collection, which finds another loader of the kind in the middle of its epoch."""
    other = Job(scene.job.kind, scene.job.folder, scene.job.wanted, seed=scene.job.seed)

    def leave(count: int) -> None:
        raise Interrupted

    other.on_batch = leave
    with suppress(Interrupted):
        other.run()
    kept_by_itself = [other]
    kept_by_itself.append(kept_by_itself)  # type: ignore[arg-type]
    del other, kept_by_itself
    gc.collect()


def returns(number: int) -> Callable[[Scene], None]:
    """A handler that returns."""

    def prepare(scene: Scene) -> None:
        signal.signal(number, lambda number, frame: None)

    return prepare


def ticks(scene: Scene) -> None:
    """SIGALRM a thousand times a second from now on, whose handler returns: waiting calls are interrupted."""
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def raises(number: int, error: Callable[[], BaseException]) -> Callable[[Scene], None]:
    """A handler that raises."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise error()

    def prepare(scene: Scene) -> None:
        signal.signal(number, handler)

    return prepare


def sends(number: int) -> Callable[[Scene], None]:
    return lambda scene: signal.raise_signal(number)


def leaves(error: Callable[[], BaseException]) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        kept.extend([scene, Late()])
        raise error()

    return act


def goes_on_at_exit(scene: Scene) -> None:
    """atexit's function iterates further; it runs before ours if the loader was made before, as here."""
    atexit.register(_rest, scene.job)
    leaves(lambda: SystemExit(EXIT_CODE))(scene)


def _rest(job: Job) -> None:
    try:
        for _ in job.iterator or ():
            pass
    except RuntimeError as error:  # the words of ours, and of torch's workers
        if not any(word in str(error) for word in ("exiting", "closed", "shutdown", "exit", "killed")):
            raise


def beside(scene: Scene) -> None:
    """A daemon thread that iterates, also in the interpreter's last moments."""
    began = threading.Event()

    def iterate() -> None:
        began.set()
        while True:
            Job(scene.job.kind, scene.job.folder, scene.job.wanted, seed=scene.job.seed).run()

    threading.excepthook = lambda arguments: None  # the words that a loader says then
    kept.append(Late())
    threading.Thread(target=iterate, daemon=True).start()
    began.wait()
    time.sleep(0.002 * (scene.job.seed % 50))
    raise SystemExit(EXIT_CODE)


def kills_worker(scene: Scene) -> None:
    """One of the worker processes, if there are any now."""
    for child in multiprocessing.active_children():
        if child.pid:
            os.kill(child.pid, signal.SIGKILL)
            return


def _kill(scene: Scene) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


EVENTS: dict[str, Event] = {
    "fork": Event(fork),
    "gc": Event(garbage),
    "sigint": Event(sends(signal.SIGINT), survived=(KeyboardInterrupt,), quiet=False),
    "sigterm_raises": Event(
        sends(signal.SIGTERM), raises(signal.SIGTERM, Interrupted), (Interrupted,), quiet=False
    ),
    "sigterm_returns": Event(storm(signal.SIGTERM), returns(signal.SIGTERM)),
    "sigusr1_to_threads": Event(storm(signal.SIGUSR1), returns(signal.SIGUSR1)),
    "sigchld": Event(ends_children, returns(signal.SIGCHLD)),
    "sigalrm_ticks": Event(ticks),
    "sigstop": Event(stop),
    "worker_killed": Event(kills_worker, survived=(RuntimeError,), quiet=False, kinds=WITH_WORKERS),
    "exit": Event(leaves(lambda: SystemExit(EXIT_CODE)), status=EXIT_CODE),
    "exit_by_sigterm": Event(
        sends(signal.SIGTERM), raises(signal.SIGTERM, lambda: SystemExit(EXIT_CODE)), status=EXIT_CODE
    ),
    "error": Event(leaves(lambda: Interrupted("the step failed")), status=1, quiet=False),
    "at_once": Event(lambda scene: os._exit(EXIT_CODE), status=EXIT_CODE),
    "at_exit": Event(goes_on_at_exit, status=EXIT_CODE),
    # Not quiet: nanobind names what the frames of a thread hold that the interpreter ends.
    # Of loaders whose batches the core makes: others are in torch's functions most of the time (UNWOUND).
    "daemon_thread": Event(
        beside,
        status=EXIT_CODE,
        quiet=False,
        kinds=("plain", "cached"),
    ),
    "killed": Event(_kill, status=-signal.SIGKILL, quiet=False),  # torch's workers may miss a pipe
}
