"""Encoded samples in the order of their source, made by this process or by several."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from fastload.errors import PackError
from fastload.packing.pool import die_with, interrupts_blocked
from fastload.packing.samples.encode import MOST_SAMPLES, Encoded, Encoder
from fastload.packing.samples.given import Given

__all__ = ["encoded"]


def encoded(source: Given, encoder: Encoder, start: int, processes: int) -> Iterator[Encoded]:
    """All samples from position ``start`` on. The pieces' borders depend on ``processes``, their order not.

    Raises:
        PackError: the samples cannot be sent to other processes, or one of those has ended.
    """
    if processes <= 1:
        yield from encoder.encode(start, source.samples(start, None))
    else:
        yield from _by_several(source, encoder, start, processes)


def _runs(start: int, count: int) -> range:
    return range(start, count, MOST_SAMPLES)


def _by_several(source: Given, encoder: Encoder, start: int, processes: int) -> Iterator[Encoded]:
    """Process k makes every ``processes``-th run of samples, and waits until its turn to hand it over."""
    runs = _runs(start, len(source))
    context = multiprocessing.get_context("spawn")  # nothing of a program with threads is forked
    workers: list[tuple[Connection, BaseProcess]] = []
    try:
        for number in range(min(processes, len(runs))):
            here, there = context.Pipe()
            share = runs[number::processes]
            process: BaseProcess = context.Process(
                target=_serve, args=(source, encoder, share, there, os.getpid()), daemon=True
            )
            try:
                with interrupts_blocked():
                    process.start()
            except Exception as error:  # pickle's own, TypeError, AttributeError, what users' classes raise
                raise PackError(
                    f"the samples cannot be sent to other processes ({type(error).__name__}: {error}). "
                    "Use num_proc=1."
                ) from None
            there.close()
            workers.append((here, process))
        for turn in range(len(runs)):
            yield from _run_of(*workers[turn % processes])
    finally:
        for pipe, process in workers:
            process.terminate()
            process.join()
            pipe.close()


def _run_of(pipe: Connection, process: BaseProcess) -> Iterator[Encoded]:
    """One run of a process: its pieces, up to the mark behind them."""
    while True:
        try:
            piece = pipe.recv()
        except EOFError:
            process.join()
            raise PackError(
                f"a packing process ended with code {process.exitcode} (killed? out of memory? a "
                "script without 'if __name__ == \"__main__\":'?). Run it again: finished shards are kept."
            ) from None
        if piece is None:
            return
        if isinstance(piece, str):
            raise PackError(piece)
        yield piece


def _serve(source: Given, encoder: Encoder, starts: range, pipe: Connection, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    die_with(parent)
    try:
        for start in starts:
            for piece in encoder.encode(start, source.samples(start, start + MOST_SAMPLES)):
                pipe.send(piece)
            pipe.send(None)
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(f"{type(error).__name__}: {error}")
