"""What this process holds."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
SLOWER = float(os.environ.get("FASTLOAD_SLOWER") or 1)  # how many times: an emulated machine
HANG = 200.0 * SLOWER  # seconds; what needs as many hangs, also on a busy machine
_EXITING = 0x4  # PF_EXITING of the kernel's sched.h


def tasks() -> dict[int, str]:
    """Ids and names of this process's threads, C++ ones too.

    One that has been joined may be listed for a while, as one that ends; it is left out.
    """
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
            if not int(fields.split()[6]) & _EXITING:
                found[int(task.name)] = name
    return found


def threads() -> int:
    """How many there are."""
    return len(tasks())


def thread_names() -> list[str]:
    """Their names."""
    return list(tasks().values())


def settled(count: Callable[[], T], wanted: T) -> T:
    """What ``count`` gives once that is ``wanted``, or after a minute (of a machine that is not ``SLOWER``).

    A thread of Python's that was joined, or a child that was killed, is gone a moment later only.
    """
    until = time.monotonic() + 60 * SLOWER
    while (found := count()) != wanted and time.monotonic() < until:
        time.sleep(0.01)
    return found


def left_over(before: Iterable[int]) -> set[int]:
    """Threads that were not among those ``before``, and do not end."""
    return settled(lambda: tasks().keys() - before, set())


def decoding_threads() -> int:
    """Threads but for those that read ahead: each loader has at least one."""
    return sum(name != "fastload-read" for name in thread_names())


def resident() -> int:
    """Bytes of anonymous memory of this process (shares of libraries change with other processes)."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))


def in_child(action: Any, seconds: float = HANG) -> int:
    """Run ``action`` in a forked child that must end within so many seconds; its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            # OpenMP's threads are the parent's: an operation that waits for them here would wait for ever.
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")
