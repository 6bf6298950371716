"""Failing and killing at the k-th call of libc: builds ``failing_calls.c``, and arms it.

A process that runs with the library preloaded arms it by :class:`Calls` (say in a child that it forks for
each ``k``), or is armed from its start by the variable that :func:`environment` sets.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = [
    "CHANGES",
    "COUNT",
    "FAIL",
    "FAIL_FROM",
    "KILL_BEFORE",
    "KILL_BEHIND",
    "SHORT",
    "TORN",
    "Calls",
    "build",
    "environment",
]

# As in failing_calls.c. TORN: half of it is done, and the process is killed; SHORT: half of it is done.
COUNT, FAIL, FAIL_FROM, KILL_BEFORE, KILL_BEHIND, TORN, SHORT = 1, 2, 3, 4, 5, 6, 7
#: What changes something on disk.
CHANGES = (
    "write,pwrite,writev,pwritev,sendfile,copy_file_range,fsync,ftruncate,fallocate,rename,link,symlink,unlink,"
    "rmdir,mkdir"
)


def build(folder: Path) -> Path:
    """The library, compiled into ``folder``; skips the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / "failing_calls.so"
    source = Path(__file__).with_name("failing_calls.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def environment(library: Path, *armed: object) -> dict[str, str]:
    """Variables for a process with the library preloaded; ``armed``: calls, pattern, at, what, errno."""
    variables = {**os.environ, "LD_PRELOAD": str(library)}
    return variables | ({"FAILING_CALLS": "|".join(map(str, armed))} if armed else {})


class Calls:
    """The library that this process has been started with."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.failing_calls_seen.restype = ctypes.c_long
        self._library.failing_calls_last.restype = ctypes.c_char_p

    def arm(self, calls: str, pattern: str, at: int, what: int, error: int = 0) -> None:
        """From now on the ``at``-th call (from 0) of ``calls`` (names, or ``*``) whose path fits ``pattern``
        fails with ``error``, or kills; with COUNT calls are counted only."""
        self.disarm()
        self.also(calls, pattern, at, what, error)

    def disarm(self) -> None:
        """No rule holds any more."""
        self._library.failing_calls_disarm()

    def also(self, calls: str, pattern: str, at: int, what: int, error: int = 0) -> None:
        """A further rule, which begins to count when the one before it has struck."""
        names = calls.encode(), pattern.encode()
        self._library.failing_calls_also(*names, ctypes.c_long(at), what, error)

    def log(self, file: Path | None) -> None:
        """From now on append the names of calls that are counted (COUNT) to ``file``, a line each."""
        self._library.failing_calls_log(os.fsencode(file) if file else None)

    def trace(self, file: Path | None, pattern: str = "") -> None:
        """From now on append changes of what fits ``pattern`` to ``file``, as power_loss.py reads them."""
        self._library.failing_calls_trace(os.fsencode(file) if file else None, pattern.encode())

    @property
    def struck(self) -> int:
        """How many rules have struck."""
        return int(self._library.failing_calls_struck())

    @property
    def seen(self) -> int:
        """How many calls of the first rule there have been."""
        return int(self._library.failing_calls_seen())

    @property
    def last(self) -> str:
        """The last call that counted, and its path."""
        return os.fsdecode(self._library.failing_calls_last())
