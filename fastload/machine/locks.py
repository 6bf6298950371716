"""A lock that a forked child finds free, whoever held it in the parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ForkSafeLock"]


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
