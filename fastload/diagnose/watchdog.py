"""The program that ends a run's processes and removes its folders once the doctor has ended or was killed.

:class:`fastload.diagnose.remains.Remains` starts it, as a file of its own; it imports only the standard
library, so that it is small and starts at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time

MARK = "FASTLOAD_DOCTOR"  # the variable by which the run's processes are known
SHARED_MEMORY = "/dev/shm"
_GRACE = 3.0  # seconds between SIGTERM and SIGKILL
_LOOK = 0.05  # seconds

# They end by themselves after all others, and then remove what those have left in shared memory.
_CLEANERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")


def main(token: str, folders: list[str]) -> None:
    """Wait until standard input, a pipe from the doctor, ends; its first line is the script's process id."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    script = int(os.read(0, 32) or 0)
    began = _began(script)
    while os.read(0, 32):
        pass
    is_other = _began(script) not in ("", began)  # the script has ended, and its number was given again
    pids = _end(f"{MARK}={token}".encode(), 0 if is_other else script)
    _remove_tensors(pids | {script})
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)  # follows no links


# ---- Processes --------------------------------------------------------------------------------------


def processes_of(mark: bytes, script: int = 0) -> set[int]:
    """Return a run's living processes: with its mark, in their sessions, and all that descend from them.

    A program may overwrite its environment, and the mark with it, so the script's session is known by itself.
    """
    table = {int(name): _stat(name) for name in os.listdir("/proc") if name.isdigit()}
    alive = {pid: stat for pid, stat in table.items() if stat and stat[0] not in "ZX"}
    found = {pid for pid, stat in alive.items() if script and int(stat[3]) == script}
    found |= {pid for pid in alive if mark in _read(pid, "environ").split(b"\0")}
    size = -1
    while size != len(found):
        size = len(found)
        sessions = {alive[pid][3] for pid in found} - {"0"}  # of leaders outside this container
        found |= {pid for pid, stat in alive.items() if int(stat[1]) in found or stat[3] in sessions}
    return found - {os.getpid()}


def _end(mark: bytes, script: int) -> set[int]:
    """End a run's processes, and return which they were."""
    ended: set[int] = set()
    began = time.monotonic()
    while found := processes_of(mark, script):
        late = time.monotonic() - began
        if late > 3 * _GRACE:  # the system does not let them go
            break
        for pid in found:
            is_cleaner = any(name in _read(pid, "cmdline") for name in _CLEANERS)
            if late > _GRACE * (1.5 if is_cleaner else 1):
                _kill(pid, signal.SIGKILL)
            elif pid not in ended and not is_cleaner:
                _kill(pid, signal.SIGTERM)
        ended |= found
        time.sleep(_LOOK)
    return ended


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _read(pid: int | str, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it has ended, or is somebody else's
        return b""


def _stat(pid: int | str) -> list[str]:
    """Return a process's state, parent, group, session and so on; nothing if it has ended."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _began(pid: int) -> str:
    """Return when a process began; "" if there is none."""
    stat = _stat(pid) if pid else []
    return stat[19] if stat and stat[0] not in "ZX" else ""


# ---- Shared memory ----------------------------------------------------------------------------------


def _remove_tensors(pids: set[int]) -> None:
    """Remove torch's files in shared memory that have one of these process ids in their name."""
    with contextlib.suppress(OSError):
        for name in os.listdir(SHARED_MEMORY):
            found = re.match(r"torch_(\d+)_", name)
            if found and int(found[1]) in pids:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(SHARED_MEMORY, name))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
