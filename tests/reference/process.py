"""What this process holds."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

_EXITING = 0x4  # of a task's flags, the kernel's PF_EXITING


def threads() -> int:
    """Threads of this process, C++ ones too."""
    return len(thread_names())


def thread_names() -> list[str]:
    """Their names, but for those of threads that have been joined: the kernel lists these a moment longer."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
            if not int(fields.split()[6]) & _EXITING:
                names.append(name)
    return names


def decoding_threads() -> int:
    """Threads but for those that read ahead: each loader has at least one."""
    return sum(name != "fastload-read" for name in thread_names())


def resident() -> int:
    """Bytes of anonymous memory of this process (shares of libraries change with other processes)."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))


def in_child(action: Any, seconds: float = 10.0) -> int:
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
    for _ in range(int(10 * seconds)):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")
