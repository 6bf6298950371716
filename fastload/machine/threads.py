"""Pools of Python threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

__all__ = ["started_pool"]


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool whose ``threads`` threads run already.

    A ThreadPoolExecutor starts its threads when work is submitted. If a KeyboardInterrupt comes while it
    does, the new thread is not yet on the list of those that the interpreter ends when it exits, which
    then waits for it for ever. Here a Ctrl-C waits until they run: a millisecond.

    Raises:
        MemoryError: the system gives no more threads.
    """
    with _interrupts_wait():
        pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        everyone = threading.Barrier(threads)
        try:
            for _ in range(threads):
                pool.submit(everyone.wait)
        except RuntimeError as error:  # those that there are would wait for the rest, also at exit
            everyone.abort()
            pool.shutdown(wait=False, cancel_futures=True)
            if "shutdown" in str(error):  # the interpreter's, which takes no more threads
                raise
            raise MemoryError(
                f"Not all of {threads} Python threads could be started: {error}. Lower num_workers, or raise "
                f"the limits of memory (ulimit -v) and of threads (ulimit -u)."
            ) from error
    return pool


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """SIGINT is handled at the end. Only the main thread handles signals."""
    former = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return
    noted: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *arguments: noted.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        if noted:
            former(*noted[0])
