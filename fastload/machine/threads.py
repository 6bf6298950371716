"""Python threads: pools, threads beside the program, and a lock that a forked child finds free."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from fastload.machine.interrupts import interrupts_kept

# ---- Python threads ---------------------------------------------------------------------------------
# Pools, and threads beside the program.

_PATIENCE = 5.0  # seconds, for all threads together

_beside: dict[threading.Thread, Callable[[], None]] = {}  # that run, with what stops them
_inside: set[threading.Thread] = set()  # daemon threads in may_be_abandoned()
_ending: set[threading.Thread] = set()  # those that it has told to end
_has_stopped = threading.Event()  # the exit waits for no thread any more


def start_beside(work: Callable[[], None], name: str, stop: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread that is told to stop, and waited for, when the interpreter exits.

    CPython up to 3.13 ends daemon threads by force. Where that happens in the middle of a call into C++, say
    of a process group's store, it ends the process: "terminate called without an active exception".

    Args:
        stop: makes ``work`` return within a second; called by ``atexit``. That is when the program's own
            threads are done: threading's private counterpart is called before, while they need this one.

    Raises:
        RuntimeError: no more threads.
    """

    def run() -> None:
        try:
            work()
        finally:
            _beside.pop(thread, None)

    thread = threading.Thread(target=run, name=name, daemon=True)
    _beside[thread] = stop
    try:
        thread.start()
    except BaseException:
        _beside.pop(thread, None)
        raise
    return thread


@contextmanager
def may_be_abandoned() -> Iterator[None]:
    """For work that a program's own daemon thread may be in when the interpreter exits. Such a thread ends
    then, without a word: by a SystemExit from here, also in place of an error that closing has made. The exit
    waits until the thread has ended, as for threads of :func:`start_beside`, and for the same reason: the
    frames that the SystemExit leaves hold tensors, and torch lets go of the GIL where it frees one. Other
    threads meet nothing here.
    """
    thread = threading.current_thread()
    if not thread.daemon:
        yield
        return
    _inside.add(thread)  # before looking, so that the exit waits for whoever has seen no exit
    try:
        if _is_exiting():
            raise SystemExit
        yield
        if _is_exiting():
            raise SystemExit
    except BaseException:
        if _is_exiting():
            _end(thread)
            raise SystemExit from None
        raise
    finally:
        _inside.discard(thread)


def _end(thread: threading.Thread) -> None:
    """Have the exit wait for this thread. When it waits for none any more, never return: nothing is freed."""
    while _has_stopped.is_set():
        time.sleep(1)
    if not isinstance(thread, threading._DummyThread):  # which nobody can wait for
        _ending.add(thread)


def _is_exiting() -> bool:
    """Whether the main thread has ended, or waits for the others, of which pools are told first."""
    return not threading.main_thread().is_alive() or getattr(threading, "_SHUTTING_DOWN", False)


def _stop_all() -> None:
    running, until = dict(_beside), time.monotonic() + _PATIENCE
    for stop in running.values():
        stop()
    for thread in running:
        thread.join(max(0.0, until - time.monotonic()))
    while _inside and time.monotonic() < until:
        time.sleep(0.001)
    for thread in tuple(_ending):
        thread.join(max(0.0, until - time.monotonic()))
    _has_stopped.set()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_beside.clear)  # a child has none of them
os.register_at_fork(after_in_child=_inside.clear)
os.register_at_fork(after_in_child=_ending.clear)


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool whose ``threads`` threads run already.

    A ThreadPoolExecutor starts its threads when work is submitted. If a KeyboardInterrupt comes while it
    does, the new thread is not yet on the list of those that the interpreter ends when it exits, which
    then waits for it for ever. Here a Ctrl-C, and what else a handler may raise, waits until they run: a
    millisecond.

    Raises:
        MemoryError: the system gives no more threads.
    """
    with interrupts_kept():
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


# ---- A lock that a forked child finds free, whoever held it in the parent ---------------------------


class ForkSafeLock:
    """A reentrant lock. Waiting for it in the main thread can be interrupted by Ctrl-C.

    fork() copies a lock as it is: one that another thread held would never become free in the child, because
    that thread does not exist there. So each process makes one of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits until no other thread holds the lock, and holds it inside."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.RLock(), os.getpid()
        with self._lock:
            yield
