"""Writing the shards of a job: in this process, or in several."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

from fastload.errors import FastloadError, PackError
from fastload.machine.threads import started_pool
from fastload.packing.part import ShardPart
from fastload.packing.shard_job import Advance, BadFiles, Closes, Work

__all__ = ["die_with", "interrupts_blocked", "write_shards"]

_PR_SET_PDEATHSIG = 1


def write_shards(job: Work, numbers: list[int], processes: int, advance: Advance) -> list[int]:
    """Write and publish the shards ``numbers``; returns those that other packs had claimed.

    Raises:
        BadFiles: with the bad files of all shards that were in work.
        FastloadError: as ``job`` does. PackError: anything else that stops a process.
    """
    if processes == 1 or len(numbers) <= 1:
        runner = _Runner(job, advance)
        try:
            left = [number for number in numbers if not runner.write(number)]
            runner.drain()
        finally:
            runner.close()
        return left
    pool = _Pool(job, min(processes, len(numbers)), advance)
    pool.run(numbers)
    return sorted(pool.left)


class _Runner:
    """Writes shards one after another; each is synced and published while the next is written."""

    def __init__(self, job: Work, advance: Advance) -> None:
        self._job, self._advance = job, advance
        self._thread = started_pool(1, "publish")
        self._pending: Future[None] | None = None

    def write(self, number: int) -> bool:
        """Write one, whose predecessor is published when this returns; False: it is another pack's."""
        claim = self._job.claim(number)
        if claim is None:
            return False
        try:
            self._write(number, claim)
        except BaseException:
            claim.close()
            raise
        return True

    def _write(self, number: int, claim: Closes) -> None:
        part: ShardPart = self._job.write(number, self._advance)
        try:
            self.drain()
        except BaseException:
            self._job.discard(number)
            raise
        self._pending = self._thread.submit(self._publish, number, part, claim)

    def _publish(self, number: int, part: ShardPart, claim: Closes) -> None:
        try:
            self._job.publish(number, part)
        finally:
            claim.close()

    def drain(self) -> None:
        """Wait until all that was written is published."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _serve(job: Work, pipe: Connection, parent: int) -> None:
    """A process's main loop: shard numbers come in, progress and results go out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    die_with(parent)
    runner = _Runner(job, lambda files, size: pipe.send(("advance", (files, size))))
    last: tuple[str, Any]
    try:
        try:
            while (number := pipe.recv()) is not None:
                pipe.send(("ready", None if runner.write(number) else number))
            runner.drain()
        finally:
            runner.close()  # before the last word: it may be the parent's cue to end this process
        last = ("end", None)
    except BadFiles as error:
        last = ("bad", error.failures)
    except (EOFError, BrokenPipeError):
        return  # the parent is gone
    except Exception as error:
        ours = isinstance(error, FastloadError)
        last = (
            "error",
            (type(error), str(error)) if ours else (PackError, f"{type(error).__name__}: {error}"),
        )
    with contextlib.suppress(BrokenPipeError):
        pipe.send(last)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """What this thread starts meanwhile never sees SIGINT: a new process inherits what is blocked."""
    resource_tracker.ensure_running()  # now: its start unblocks SIGINT, whoever blocked it
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def die_with(parent: int) -> None:
    """Be killed when the parent dies, however it dies."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@dataclass
class _Pool:
    """Processes that take shard numbers from this one. They are spawned, so that nothing of a program
    with threads (torch, a notebook) is forked."""

    job: Work
    size: int
    advance: Advance
    failures: list[tuple[str, str]] = field(default_factory=list)
    error: FastloadError | None = None
    left: list[int] = field(default_factory=list)  # claimed by other packs

    def run(self, numbers: list[int]) -> None:
        """Write all shards.

        Raises:
            BadFiles, PackError: see :func:`write_shards`.
        """
        context = multiprocessing.get_context("spawn")
        workers: dict[Connection, BaseProcess] = {}
        try:
            for _ in range(self.size):
                here, there = context.Pipe()
                process: BaseProcess = context.Process(
                    target=_serve, args=(self.job, there, os.getpid()), daemon=True
                )
                with interrupts_blocked():  # or a Ctrl-C while it imports would be a traceback
                    process.start()
                there.close()
                workers[here] = process
            self._distribute(workers, numbers)
        finally:
            for pipe, process in workers.items():
                process.terminate()
                process.join()
                pipe.close()
        if self.error is not None:
            raise self.error
        if self.failures:
            raise BadFiles(sorted(self.failures))

    def _distribute(self, workers: dict[Connection, BaseProcess], numbers: list[int]) -> None:
        waiting = list(reversed(numbers))
        running = dict(workers)
        for pipe in running:
            self._give(pipe, waiting)
        while running:
            for ready in wait(list(running)):
                pipe = cast("Connection", ready)
                if not self._handle(pipe, waiting, running[pipe]):
                    del running[pipe]

    def _give(self, pipe: Connection, waiting: list[int]) -> None:
        stop = self.error is not None or self.failures or not waiting
        with contextlib.suppress(BrokenPipeError):
            pipe.send(None if stop else waiting.pop())

    def _handle(self, pipe: Connection, waiting: list[int], process: BaseProcess) -> bool:
        """One message; False when its process has no more to say."""
        try:
            kind, value = pipe.recv()
        except EOFError:
            process.join()
            self.error = self.error or PackError(
                f"a packing process ended with code {process.exitcode} (killed? out of memory?). "
                f"Run the same command again: finished shards are kept."
            )
            return False
        handlers: dict[str, Callable[[Any], None]] = {
            "advance": lambda found: self.advance(*found),
            "ready": lambda number: self._ready(pipe, waiting, number),
            "bad": self.failures.extend,
            "error": self._fail,
        }
        if kind in handlers:
            handlers[kind](value)
        return kind in ("advance", "ready")

    def _ready(self, pipe: Connection, waiting: list[int], number: int | None) -> None:
        self.left += [] if number is None else [number]
        self._give(pipe, waiting)

    def _fail(self, found: tuple[type[FastloadError], str]) -> None:
        kind, text = found
        self.error = self.error or kind(text)
