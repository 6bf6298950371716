"""``fastload doctor SCRIPT``: somebody's training script, run unchanged for a while and watched.

The script runs in a process of its own (:mod:`fastload.diagnose.script_child`), which says over a pipe how
far it is. What is read from the pipe is pickled, by a process that we have started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from fastload.diagnose.facts import Loop, Stage, Verdict
from fastload.errors import ScriptError
from fastload.machine.there import is_dir, is_file

__all__ = ["Watched", "announcement", "require_script", "watch_script"]

_START = 600.0  # seconds until the first batch is asked for; imports and downloads may take long
_GRACE = 30.0  # seconds: for a script's end, and for a message that is late
_POLL = 0.25  # seconds
_TAIL = 4000  # bytes of its output in an error's message
_CHILD = """\
import sys
sys.path.insert(0, sys.argv[2])
from fastload.diagnose.script_child import main
del sys.path[:2 if sys.path[1:2] == [""] else 1]
main(sys.argv[1])
"""


@dataclass(frozen=True)
class Watched:
    """What came of a script that was watched.

    Args:
        loop: its loop; None on ranks but the first, which says it.
        step: the step alone, on a batch that was there already; None where the script ended before.
        verdict: of the experiments on its loader; None where they could not be run.
        words: what happened to the script, in a sentence or two, for the user.
    """

    loop: Loop | None
    step: Stage | None
    verdict: Verdict | None
    words: str


def announcement(path: str, seconds: float = 60.0) -> str:
    """What the user is to be told before :func:`watch_script`."""
    return (
        f"{path} is run as it is, for about {seconds:g} s from its first batch on, and then ended: it gets "
        f"its own batches, then the last one again and again, then its loop is left. What it writes by "
        f"itself (logs, checkpoints) is written."
    )


def require_script(path: str) -> None:
    """Raise FileNotFoundError where there is no such script."""
    if not is_file(path):
        what = "a folder, no script" if is_dir(path) else "not there"
        raise FileNotFoundError(
            f"{path} is {what}. Give the path of a Python file, as 'python' would have it."
        )


def watch_script(
    path: str,
    argv: list[str] | None = None,
    seconds: float = 60.0,
    *,
    module: bool = False,
    quiet: bool = False,
) -> Watched:
    """Run a training script, watch its loop, end it, and examine its loader where it was.

    The first loader that trains is watched: for 20 batches and 5 s, or as many as come; then its loop is fed
    with a batch that is there already, which shows what the step can do; then the loop is left by an
    exception that is no ``Exception``, so that ``finally`` blocks run. Experiments follow in that process.

    Under torchrun each rank calls this: the first one of all watches and says; the others run along with it.

    Args:
        path: the script; or with ``module`` its module's name, as after ``python -m``.
        argv: its arguments.
        seconds: from its first batch on, about.
        module: see ``path``.
        quiet: its output is kept, and its last lines are in an error's message; else it is passed through.

    Raises:
        FileNotFoundError: no such script.
        ScriptError: it failed before its loop ran, ended by itself, or never asked a loader for batches.
    """
    if not module:
        require_script(path)
    rank = int(os.environ.get("RANK", "0"))
    order = {"path": path, "argv": argv or [], "seconds": seconds, "module": module, "follow": rank != 0}
    with contextlib.ExitStack() as stack:
        # Of multiprocessing, in it and its workers: who is killed leaves what it had there. A short name, as
        # those of sockets may have 107 bytes.
        sockets = tempfile.TemporaryDirectory(prefix="fl-", ignore_cleanup_errors=True)
        order["sockets"] = stack.enter_context(sockets)
        output = stack.enter_context(tempfile.TemporaryFile()) if quiet else None
        run = stack.enter_context(_Run(order, output))
        mark = stack.enter_context(_Mark(rank))
        return _Talk(run, path, seconds, mark).hold()


class _Run:
    """The script's process, in a session of its own, which ends with the context."""

    def __init__(self, order: dict[str, Any], output: IO[bytes] | None) -> None:
        reading, writing = os.pipe()
        self.output = output
        self.is_done = False  # it has only to leave
        self.is_over = False  # it says no more
        self.pipe = Connection(reading, writable=False)
        root = str(Path(__file__).resolve().parents[2])
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, json.dumps({**order, "pipe": writing}), root],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
                start_new_session=True,
            )
        finally:
            os.close(writing)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *exception: object) -> None:
        self.pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.is_done and not any(exception):
                self.process.wait(10)  # its atexit handlers
        for number in (signal.SIGTERM, signal.SIGKILL):  # and what it has started
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)

    def receive(self, seconds: float) -> tuple[str, Any] | None:
        """The next message; None if none comes in time, or the process has ended."""
        try:
            if self.pipe.poll(seconds):
                message: tuple[str, Any] = self.pipe.recv()
                return message
            self.is_over = self.process.poll() is not None  # workers that it has left may have the pipe
        except (EOFError, ConnectionError):
            self.is_over = True
        return None

    def tail(self) -> str:
        """Its output's last lines."""
        if self.output is None:
            return ""
        size = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, size - _TAIL))
        lines = self.output.read().decode(errors="replace").strip().splitlines()
        return "".join(f"\n    {line}" for line in lines[-12:])


class _Mark:
    """A file by which a node's first rank tells the others of the same torchrun that its loop was left."""

    def __init__(self, rank: int) -> None:
        self._is_first = rank == 0
        self._is_put = False
        self._path = Path(tempfile.gettempdir(), f"fastload-doctor-{os.geteuid()}-{os.getppid()}")

    def __enter__(self) -> _Mark:
        if self._is_first:
            self._path.unlink(missing_ok=True)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_put:
            time.sleep(4 * _POLL)  # the others have seen it
            self._path.unlink(missing_ok=True)

    def put(self) -> None:
        """The loop was left."""
        if self._is_first and "RANK" in os.environ:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            self._is_put = True

    @property
    def is_there(self) -> bool:
        """Whether the first rank's loop was left."""
        return not self._is_first and self._path.exists()


class _Talk:
    """What the process says, in its order, until there is nothing more to wait for."""

    def __init__(self, run: _Run, path: str, seconds: float, mark: _Mark) -> None:
        self._run = run
        self._path = path
        self._seconds = seconds
        self._mark = mark
        self._said: dict[str, Any] = {}

    def hold(self) -> Watched:
        """Listen until the end."""
        end = time.monotonic() + _START
        while time.monotonic() < end:
            message = self._run.receive(_POLL)
            if message is None:
                if self._run.is_over:
                    break
                if "began" in self._said and self._mark.is_there:
                    return Watched(None, None, None, "The loop of the first rank was watched.")
                continue
            name, value = message
            self._said[name] = value
            if name == "watched":
                self._mark.put()
            if name in ("verdict", "unexamined"):
                self._run.is_done = True
                break
            # After the first batch: the loop, then its end, then the experiments.
            left = {"began": self._seconds + _GRACE, "watched": _GRACE, "left": self._seconds + _GRACE}
            end = time.monotonic() + left.get(name, _GRACE)
        return self._outcome()

    def _outcome(self) -> Watched:
        if self._run.is_over:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._run.process.wait(_GRACE)
        said = self._said
        if "watched" not in said:
            if said.get("follow"):
                return Watched(None, None, None, "This rank ran along; the first one says what limits.")
            raise ScriptError(self._nothing_watched() + self._run.tail())
        loop, step = said["watched"]
        words = said.get("left", "")
        if "left" not in said:
            words = (
                f"{self._path} went on after its loop was to be left (it catches BaseException, or its "
                f"finally blocks take long) and was ended; so nothing could be tried on its loader."
            )
        elif "unexamined" in said:
            words += f" Nothing could be tried on its loader: {said['unexamined']}"
        elif "verdict" not in said:
            words += " The experiments on its loader did not come to an end, and were ended."
        return Watched(loop, step, said.get("verdict"), words)

    def _nothing_watched(self) -> str:
        said, path = self._said, self._path
        if "failed" in said:
            return f"{path} failed before its loop could be watched: {said['failed']}"
        code = self._run.process.poll()
        if code is None and "began" not in said:
            return f"{path} asked no DataLoader for a batch within {_START:g} s, and was ended."
        if code is None:
            return (
                f"{path} was ended: in {self._seconds + _GRACE:g} s since its first batch its loop had too "
                f"few batches to be watched. Give it smaller steps, or --seconds more."
            )
        if code < 0:
            return f"{path} was ended by signal {signal.Signals(-code).name} before its loop was watched."
        return said.get("nothing") or f"{path} ended (exit status {code}) before its loop was watched."
