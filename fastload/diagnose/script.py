"""``fastload doctor SCRIPT``: runs a training script unchanged for a while, and watches its loop."""

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
from fastload.diagnose.peers import OtherRank, address
from fastload.diagnose.rank_facts import RankFacts
from fastload.diagnose.remains import Remains
from fastload.errors import ScriptError
from fastload.machine.paths import is_dir, is_file

# ---- The script's process, seen from outside --------------------------------------------------------

_START = 600.0  # seconds until the first batch is asked for; imports and downloads may take long
_GRACE = 30.0  # seconds for a script's end, and for a late message
_POLL = 0.25  # seconds
_TAIL = 4000  # bytes of the script's output in an error message
_CHILD = """\
import sys
sys.path.insert(0, sys.argv[2])
from fastload.diagnose.script_child import main
del sys.path[:2 if sys.path[1:2] == [""] else 1]
main(sys.argv[1])
"""


@dataclass(frozen=True)
class Watched:
    """The result of watching a script.

    Args:
        loop: its loop; None on all ranks but the first.
        step: the step alone, on a batch that is already loaded; None if the script ended before that.
        verdict: of the experiments on its loader; None if they could not be run.
        ranks: the facts of this node's ranks, as far as they have told them; none without other ranks.
        words: what happened to the script, in a sentence or two, for the user.
    """

    loop: Loop | None
    step: Stage | None
    verdict: Verdict | None
    words: str
    ranks: tuple[RankFacts, ...] = ()


def announcement(path: str, seconds: float = 60.0) -> str:
    """Return what the user should know before :func:`watch_script` runs."""
    return (
        f"{path} is run as it is, for about {seconds:g} s from its first batch on, and then ended: it gets "
        f"its own batches, then the last one again and again; then its loop is left. It writes its logs and "
        f"checkpoints as usual."
    )


def require_script(path: str) -> None:
    """Raise FileNotFoundError if there is no such script."""
    if not is_file(path):
        what = "a folder, not a script" if is_dir(path) else "not there"
        raise FileNotFoundError(f"{path} is {what}. Give the path of a Python file, as for 'python'.")


def watch_script(
    path: str,
    argv: list[str] | None = None,
    seconds: float = 60.0,
    *,
    module: bool = False,
    quiet: bool = False,
) -> Watched:
    """Run a training script, watch its loop, end it, and examine its loader in the script's process.

    The first loader that trains is watched for 20 batches and 5 s, or for as many as come. Then its loop gets
    the same batch again and again, which shows what the step can do. Then ``next()`` raises an exception that
    is not an ``Exception``, so that ``finally`` blocks run, and the experiments follow.

    Under torchrun each rank calls this and watches its loop. The other ranks of the first one's node send it
    what they have found, and their scripts run until its loop has been left.

    Args:
        path: the script; with ``module`` the module's name, as for ``python -m``.
        argv: its arguments.
        seconds: approximate time limit, from its first batch on.
        module: whether ``path`` is a module's name.
        quiet: keep its output, and show the last lines in error messages; else it is passed through.

    Raises:
        FileNotFoundError: no such script.
        ScriptError: it failed before its loop ran, ended by itself, or never asked a loader for batches.
    """
    if not module:
        require_script(path)
    rank = int(os.environ.get("RANK", "0"))
    peers = address(os.environ, os.getppid())
    order = {
        "path": path,
        "argv": argv or [],
        "seconds": seconds,
        "module": module,
        "follow": rank != 0,
        "peers": peers,
    }
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile()) if quiet else None
        remains = stack.enter_context(Remains())
        run = stack.enter_context(_Run(order, output, remains))
        other = stack.enter_context(OtherRank(peers)) if rank != 0 else None
        return _Talk(run, path, seconds, other).hold()


class _Run:
    """The script's process, in its own session, which ends with the context or soon after, by ``remains``."""

    def __init__(self, order: dict[str, Any], output: IO[bytes] | None, remains: Remains) -> None:
        order = {**order, "folder": str(remains.folder), "memory": str(remains.memory)}
        reading, writing = os.pipe()
        self.output = output
        self.is_done = False  # it only has to exit
        self.is_over = False  # it sends no more messages
        self.pipe = Connection(reading, writable=False)
        root = str(Path(__file__).resolve().parents[2])
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, json.dumps({**order, "pipe": writing}), root],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=remains.environment,
                pass_fds=[writing],
                start_new_session=True,
            )
            remains.adopt(self.process)
        finally:
            os.close(writing)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *exception: object) -> None:
        self.pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.is_done and not any(exception):
                self.process.wait(10)  # for its atexit handlers

    def receive(self, seconds: float) -> tuple[str, Any] | None:
        """Return the next message; None if none comes in time, or the process has ended."""
        try:
            if self.pipe.poll(seconds):
                message: tuple[str, Any] = self.pipe.recv()
                return message
            self.is_over = self.process.poll() is not None  # its workers may still have the pipe open
        except (EOFError, ConnectionError):
            self.is_over = True
        return None

    def tail(self) -> str:
        """Return the last lines of the output."""
        if self.output is None:
            return ""
        size = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, size - _TAIL))
        lines = self.output.read().decode(errors="replace").strip().splitlines()
        return "".join(f"\n    {line}" for line in lines[-12:])


class _Talk:
    """The receiver of the process's messages, until there is nothing more to wait for."""

    def __init__(self, run: _Run, path: str, seconds: float, other: OtherRank | None) -> None:
        self._run = run
        self._path = path
        self._seconds = seconds
        self._other = other
        self._said: dict[str, Any] = {}

    def hold(self) -> Watched:
        """Receive messages until the end."""
        end = time.monotonic() + _START
        while time.monotonic() < end:
            message = self._run.receive(_POLL)
            if message is None:
                if self._run.is_over:
                    break
                if "began" in self._said and self._other is not None and self._other.is_over():
                    break
                continue
            name, value = message
            self._said[name] = value
            if name == "facts" and self._other is not None:
                self._other.tell(value)
            if name in ("verdict", "unexamined"):
                self._run.is_done = True
                break
            # After the first batch: the loop, then its end, then the experiments.
            left = {"began": self._seconds + _GRACE, "watched": _GRACE, "left": self._seconds + _GRACE}
            end = time.monotonic() + left.get(name, _GRACE)
        return self._outcome()

    def _outcome(self) -> Watched:
        messages = self._said
        if self._other is not None and "began" in messages:
            return Watched(None, None, None, "This rank ran along; the first one says what limits.")
        if self._run.is_over:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._run.process.wait(_GRACE)
        if "watched" not in messages:
            raise ScriptError(self._nothing_watched() + self._run.tail())
        loop, step, ranks, missing = messages["watched"]
        words = messages.get("left", "")
        if "left" not in messages:
            words = (
                f"{self._path} went on when its loop was to end (it catches BaseException, or its finally "
                f"blocks take long) and was ended, so nothing could be tried on its loader."
            )
        elif "unexamined" in messages:
            words += f" Nothing could be tried on its loader: {messages['unexamined']}"
        elif "verdict" not in messages:
            words += " The experiments on its loader did not finish in time, and were ended."
        return Watched(loop, step, messages.get("verdict"), words + missing, ranks)

    def _nothing_watched(self) -> str:
        messages, path = self._said, self._path
        if "failed" in messages:
            failed = str(messages["failed"]).rstrip(".")
            return (
                f"{path} failed before its loop could be watched: {failed}. Run it alone first, with the "
                f"same arguments: 'python {path}'."
            )
        code = self._run.process.poll()
        if code is None and "began" not in messages:
            return f"{path} asked no DataLoader for a batch within {_START:g} s, and was ended."
        if code is None:
            return (
                f"{path} was ended: in the {self._seconds + _GRACE:g} s after its first batch, its loop had "
                f"too few batches to be watched. Give it shorter steps, or raise --seconds."
            )
        if code < 0:
            return f"{path} was ended by signal {signal.Signals(-code).name} before its loop was watched."
        return messages.get("nothing") or f"{path} ended (exit status {code}) before its loop was watched."
