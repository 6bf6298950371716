"""Work shared out by number: shards to write or files to index, in this process or several."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, cast

from fastload.errors import FastloadError, PackError
from fastload.machine.sizes import counted
from fastload.machine.threads import started_pool
from fastload.packing.rows import Rows
from fastload.packing.shard_writer import ShardPart

# ---- Work by number -----------------------------------------------------------------------------------

Advance = Callable[[int, int], None]  # files, bytes


class BadFiles(PackError):
    """An error about files of a shard, or their annotations, that cannot be packed."""

    def __init__(self, failures: list[tuple[str, str]], annotations: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(f"{counted(len(failures), 'file')} cannot be packed")
        self.failures, self.annotations = failures, annotations


class Claim(Protocol):
    """The right to do a piece of work, for as long as it is held."""

    def close(self) -> None:
        """Release it."""


class NoClaim:
    """A claim for a process that has all shards to itself."""

    def close(self) -> None:
        """Do nothing, as nothing is held."""


class Job(Protocol):
    """Work that processes share out by number: shards to write, files to index. It pickles."""

    def claim(self, number: int) -> Claim | None:
        """Claim the right to do one; None: another process does it, or has just done so."""

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Do it."""

    def publish(self, number: int, part: ShardPart) -> None:
        """Make it durable; from now on it counts as finished."""

    def discard(self, number: int) -> None:
        """Remove what was written and not published."""


# ---- Processes ----------------------------------------------------------------------------------------

_PR_SET_PDEATHSIG = 1


def fitting_processes(size: int, process_bytes: int = Rows.process_bytes) -> int:
    """Return one process per CPU, but only as many as have more work than their start takes.

    Args:
        size: the bytes to pack.
        process_bytes: those that are worth a process.
    """
    return max(1, min(len(os.sched_getaffinity(0)), size // process_bytes))


def write_shards(job: Job, numbers: list[int], processes: int, advance: Advance) -> list[int]:
    """Write and publish the shards ``numbers``; return those that other packs had claimed.

    Raises:
        BadFiles: with the bad files of all shards in work.
        FastloadError: as ``job`` raises it; PackError: anything else that stops a process.
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

    def __init__(self, job: Job, advance: Advance) -> None:
        self._job, self._advance = job, advance
        self._thread = started_pool(1, "publish")
        self._pending: Future[None] | None = None

    def write(self, number: int) -> bool:
        """Write one shard, with its predecessor published on return; False: it is another pack's."""
        claim = self._job.claim(number)
        if claim is None:
            return False
        try:
            self._write(number, claim)
        except BaseException:
            claim.close()
            raise
        return True

    def _write(self, number: int, claim: Claim) -> None:
        part: ShardPart = self._job.write(number, self._advance)
        try:
            self.drain()
        except BaseException:
            part.close()
            self._job.discard(number)
            raise
        self._pending = self._thread.submit(self._publish, number, part, claim)

    def _publish(self, number: int, part: ShardPart, claim: Claim) -> None:
        try:
            self._job.publish(number, part)
        finally:
            part.close()
            claim.close()

    def drain(self) -> None:
        """Wait until all that was written is published."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _serve(job: Job, pipe: Connection, parent: int) -> None:
    """Run a process's main loop: shard numbers come in, progress and results go out."""
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
            runner.close()  # before the last message, at which the parent may end this process
        last = ("end", None)
    except BadFiles as error:
        last = ("bad", (error.failures, error.annotations))
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
    """Hide SIGINT from what this thread starts meanwhile: a new process inherits blocked signals."""
    resource_tracker.ensure_running()  # now: its start unblocks SIGINT, whoever blocked it
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def die_with(parent: int) -> None:
    """Ask to be killed when the parent dies, however it dies."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@dataclass
class _Pool:
    """Processes that take shard numbers from this one. They are spawned, so that nothing of a program
    with threads (torch, a notebook) is forked."""

    job: Job
    size: int
    advance: Advance
    failures: list[tuple[str, str]] = field(default_factory=list)
    annotations: list[tuple[str, str]] = field(default_factory=list)
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
                here, theirs = context.Pipe()
                process: BaseProcess = context.Process(
                    target=_serve, args=(self.job, theirs, os.getpid()), daemon=True
                )
                with interrupts_blocked():  # otherwise Ctrl-C during its imports would be a traceback
                    process.start()
                theirs.close()
                workers[here] = process
            self._distribute(workers, numbers)
        finally:
            for pipe, process in workers.items():
                process.terminate()
                process.join()
                pipe.close()
        if self.error is not None:
            raise self.error
        if self.failures or self.annotations:
            raise BadFiles(sorted(self.failures), sorted(self.annotations))

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
        stop = self.error is not None or self.failures or self.annotations or not waiting
        with contextlib.suppress(BrokenPipeError):
            pipe.send(None if stop else waiting.pop())

    def _handle(self, pipe: Connection, waiting: list[int], process: BaseProcess) -> bool:
        """Handle one message; return False when its process has no more to say."""
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
            "advance": lambda counts: self.advance(*counts),
            "ready": lambda number: self._ready(pipe, waiting, number),
            "bad": self._bad,
            "error": self._fail,
        }
        if kind in handlers:
            handlers[kind](value)
        return kind in ("advance", "ready")

    def _ready(self, pipe: Connection, waiting: list[int], number: int | None) -> None:
        self.left += [] if number is None else [number]
        self._give(pipe, waiting)

    def _bad(self, lists: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]) -> None:
        self.failures += lists[0]
        self.annotations += lists[1]

    def _fail(self, failure: tuple[type[FastloadError], str]) -> None:
        kind, text = failure
        self.error = self.error or kind(text)
