"""Python threads: pools, background threads, and a lock that is free in a forked child."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from fastload.machine.interrupts import interrupts_kept

# ---- Pools and background threads ----

_PATIENCE = 5.0  # seconds, for all threads together

_beside: dict[threading.Thread, Callable[[], None]] = {}  # running threads, with what stops them
_inside: set[threading.Thread] = set()  # daemon threads in may_be_abandoned()
_ending: set[threading.Thread] = set()  # those of them that were told to end
_has_stopped = threading.Event()  # the exit no longer waits for threads


def start_beside(work: Callable[[], None], name: str, stop: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread that is stopped and waited for when the interpreter exits.

    CPython up to 3.13 ends daemon threads by force. If that happens inside a call into C++, say of a process
    group's store, the process dies: "terminate called without an active exception".

    Args:
        stop: makes ``work`` return within a second; called by ``atexit``, when the program's own threads
            are done: threading's private counterpart runs earlier, while they need this one.

    Raises:
        RuntimeError: no more threads can start.
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
    """Guard work that a program's own daemon thread may be doing when the interpreter exits. Such a thread
    ends silently then: by a SystemExit from here, even in place of an error from closing. The exit waits for
    the thread, as in :func:`start_beside` and for the same reason: the frames that the SystemExit leaves hold
    tensors, and torch releases the GIL when it frees one. Other threads are unaffected.
    """
    thread = threading.current_thread()
    if not thread.daemon:
        yield
        return
    _inside.add(thread)  # before the check, so that the exit waits for a thread that has not seen it
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
    """Have the exit wait for this thread. If it no longer waits for any, never return: nothing is freed."""
    while _has_stopped.is_set():
        time.sleep(1)
    if not isinstance(thread, threading._DummyThread):  # nobody can wait for one of those
        _ending.add(thread)


def _is_exiting() -> bool:
    """Return whether the main thread has ended or waits for the others; pools are notified first."""
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
    """Return a pool whose ``threads`` threads already run.

    A ThreadPoolExecutor starts its threads when work is submitted. If a KeyboardInterrupt comes while it
    does, the new thread is not yet on the list of those that the interpreter ends when it exits, so the exit
    hangs. Here a Ctrl-C, and anything else that a handler may raise, waits until the threads run: a
    millisecond.

    Raises:
        MemoryError: the system provides no more threads.
    """
    with interrupts_kept():
        pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        everyone = threading.Barrier(threads)
        try:
            for _ in range(threads):
                pool.submit(everyone.wait)
        except RuntimeError as error:  # the threads already started would wait for the rest, also at exit
            everyone.abort()
            pool.shutdown(wait=False, cancel_futures=True)
            if "shutdown" in str(error):  # the interpreter is exiting and accepts no more threads
                raise
            raise MemoryError(
                f"Not all of {threads} Python threads could be started: {error}. Lower num_workers, or raise "
                f"the limits of memory (ulimit -v) and of threads (ulimit -u)."
            ) from error
    return pool


def run_at_once() -> bool:
    """Whether Python threads run at once: a free-threaded Python, whose GIL nothing has switched on."""
    has_gil = getattr(sys, "_is_gil_enabled", None)  # from Python 3.13 on
    return has_gil is not None and not has_gil()


# ---- A fork-safe lock ----


class ForkSafeLock:
    """A reentrant lock, free in a forked child. Ctrl-C interrupts waiting for it in the main thread.

    fork() copies a lock as it is: one that another thread held would never become free in the child, because
    that thread does not exist there. So each process makes its own lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait until no other thread holds the lock, and hold it in the block."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.RLock(), os.getpid()
        with self._lock:
            yield
