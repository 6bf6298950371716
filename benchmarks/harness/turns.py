"""Candidates that stay alive and take turns: what measure.py does, without starting each process anew.

Training needs seconds to start (imports, a CUDA context, cuDNN's search for algorithms, worker processes). So
each candidate is one process for all its rounds. All import their libraries and open the GPU at once; then
one after the other gets ready, because cuDNN's search measures, too; then they answer each line on their
standard input with a JSON object. Between its rounds a candidate waits there. Candidates take turns as in
measure.py: A B C, then C B A. rounds.py is the other side.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from harness.machine import busy_seconds
from harness.measure import ERROR_CHARACTERS, Candidate, Run, check_repeats

__all__ = ["Server", "take_turns"]


class Failed(Exception):
    """A candidate's process ended, was silent for too long, or said that it cannot."""


class Server:
    """One candidate's process, in a session of its own. A context manager that ends the whole session."""

    def __init__(self, candidate: Candidate) -> None:
        self.name = candidate.name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by __exit__)
        self._process = subprocess.Popen(
            list(candidate.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **candidate.env},
            start_new_session=True,
        )
        self._pending = b""

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def ask(self, line: str) -> None:
        """Write one line to its standard input."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: answer() tells why
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, timeout: float) -> dict[str, Any]:
        """Its next JSON object; raises Failed with the end of what it wrote to standard error."""
        deadline = time.monotonic() + timeout
        while True:
            line = self._line(deadline, timeout)
            try:
                value = json.loads(line)
            except ValueError:
                continue  # a library's chatter
            if isinstance(value, dict):
                return value

    def _line(self, deadline: float, timeout: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Failed(f"no answer in {timeout:.0f} s: {self._complaint()}")
            block = os.read(self._process.stdout.fileno(), 1 << 16)
            if not block:
                raise Failed(f"exit status {self._process.wait()}: {self._complaint()}")
            self._pending += block
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip()[-ERROR_CHARACTERS:]


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def take_turns(
    candidates: Sequence[Candidate],
    repeats: int,
    *,
    timeout: float = 300.0,
    until: float = float("inf"),
    report: Callable[[str], object] = _to_stderr,
) -> list[Run]:
    """``repeats`` rounds of every candidate, in turns.

    Args:
        candidates: all alive until the end.
        repeats: at least measure.MINIMUM_REPEATS.
        timeout: seconds for the start, and for each round.
        until: ``time.monotonic()`` after which no further round begins; what is missing then fails.
        report: told about each round.

    Returns:
        A Run a round. One that failed has its error; its candidate is not asked again.
    """
    check_repeats(repeats)
    runs: list[Run] = []
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(candidate)) for candidate in candidates]
        for server in list(servers):
            begin = time.monotonic()
            try:
                server.answer(min(timeout, max(1.0, until - begin)))
                server.ask("start")
                server.answer(min(timeout, max(1.0, until - begin)))
                report(f"{server.name}: ready after {time.monotonic() - begin:.1f} s")
            except Failed as error:
                servers.remove(server)
                runs.append(Run(server.name, 0, {}, str(error)))
                report(f"{server.name}: {error}")
        for number in range(repeats):
            for server in list(servers if number % 2 == 0 else servers[::-1]):
                run = _round(server, number, timeout, until)
                runs.append(run)
                report(f"round {number + 1}/{repeats} {run.name}: {run.error or f'{run.wall:.1f} s'}")
                if run.error:
                    servers.remove(server)
    return runs


def _round(server: Server, number: int, timeout: float, until: float) -> Run:
    begin, busy = time.monotonic(), busy_seconds()
    if begin > until:
        return Run(server.name, number, {}, "the time for all rounds was over before this one")
    server.ask("round")
    try:
        values = server.answer(timeout)
    except Failed as error:
        return Run(server.name, number, {}, str(error), time.monotonic() - begin)
    wall = time.monotonic() - begin
    outside = max(0.0, busy_seconds() - busy - float(values.get("cpu_seconds", 0.0))) / wall
    return Run(server.name, number, values, "", wall, outside_cores=outside)
