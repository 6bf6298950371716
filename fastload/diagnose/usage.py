"""The kernel's counters of what a process, its workers and the machine have used so far.

Everything is read below ``root``, so that tests can use their own tree. A counter that cannot be read
(another kernel, no permission) is None, never 0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fastload.machine.cpu import cgroup_folders

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BUSY = (0, 1, 2, 5, 6)  # of /proc/stat: user, nice, system, irq, softirq
_STOLEN = 7
OUR_THREADS = "fastload-"  # the names of the core's threads begin with this


@dataclass(frozen=True)
class Usage:
    """The counters at one moment; only differences between two moments mean anything.

    Args:
        when: ``time.perf_counter()``.
        process_cpu: CPU seconds of all threads of this process.
        our_cpu: CPU seconds of the core's threads among them.
        workers_cpu: CPU seconds of worker processes, including those that have ended.
        waited: seconds for which threads of the process and its workers were ready to run but had no CPU.
        read_bytes: bytes that the process and its workers read from storage, including mapped files.
        asked_bytes: bytes that they got by read(), from memory or storage.
        major_faults: pages of mapped files for which a thread waited.
        throttled: seconds for which the cgroup's CPU quota was used up.
        busy: CPU seconds of all processes on the CPUs that this process may use.
        stolen: seconds of these CPUs that the hypervisor gave to other guests.
        pressure: seconds for which something on the machine waited for a CPU (PSI).
        hot: times that a core was slowed down because of its temperature.
        shm_free: free bytes of /dev/shm.
        swapped: bytes that the machine has read back from swap.
    """

    when: float
    process_cpu: float
    our_cpu: float
    workers_cpu: float
    waited: float | None = None
    read_bytes: int | None = None
    asked_bytes: int | None = None
    major_faults: int | None = None
    throttled: float | None = None
    busy: float | None = None
    stolen: float | None = None
    pressure: float | None = None
    hot: int | None = None
    shm_free: int | None = None
    swapped: int | None = None


@dataclass(frozen=True)
class _Process:
    """One process's counters."""

    parent: int
    cpu: float
    children_cpu: float  # of those that ended and were waited for
    faults: int


class Meter:
    """A reader of a process's :class:`Usage`.

    Args:
        root: the folder that has ``proc``, ``sys`` and ``dev/shm``.
        pid: the process; None: this one.
    """

    def __init__(self, root: str = "/", pid: int | None = None) -> None:
        self._root = Path(root)
        self._proc = self._root / "proc"
        self._self = pid is None
        self._pid = os.getpid() if pid is None else pid
        self._core: set[str] = set()  # ids of the core's threads
        self._delays: dict[str, float] = {}  # of threads and workers, also of those that have ended
        self._foreign: dict[int, tuple[float, tuple[int, int] | None]] = {}  # workers of a fork server
        self._cpus = {f"cpu{n}" for n in os.sched_getaffinity(0)}
        self._stat = [
            file for folder in cgroup_folders("cpu", root) if (file := folder / "cpu.stat").is_file()
        ]
        self._hot = sorted(
            self._root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
        )

    def read(self, workers: Iterable[int] = ()) -> Usage:
        """Read the counters now; ``workers`` are the process ids of the present workers."""
        now = time.perf_counter()
        own = self._process(self._pid)
        ours = self._threads()
        workers_cpu, read = own.children_cpu if own else 0.0, self._io(self._pid)
        for pid in workers:
            process = self._process(pid)
            if process is None:
                continue
            self._note_delay(f"{pid}", self._proc / str(pid) / "schedstat")
            if process.parent == self._pid:  # when it has ended, children_cpu has its time
                workers_cpu += process.cpu
                read = _sum(read, self._io(pid))
            else:
                self._foreign[pid] = process.cpu, self._io(pid)
        for cpu, io in self._foreign.values():
            workers_cpu += cpu
            read = _sum(read, io)
        busy, stolen = self._machine()
        return Usage(
            when=now,
            process_cpu=time.process_time() if self._self else (own.cpu if own else 0.0),
            our_cpu=ours,
            workers_cpu=workers_cpu,
            waited=sum(self._delays.values()),
            asked_bytes=read[0] if read else None,
            read_bytes=read[1] if read else None,
            major_faults=own.faults if own else None,
            throttled=self._throttled(),
            busy=busy,
            stolen=stolen,
            pressure=self._pressure(),
            hot=sum(int(_text(path) or 0) for path in self._hot) if self._hot else None,
            shm_free=self._shm_free(),
            swapped=self._swapped(),
        )

    def memory(self, pids: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return the bytes of memory that each process has written: its own, and those it still shares."""
        found = {}
        for pid in pids:
            rows = _rows((_text(self._proc / str(pid) / "smaps_rollup") or "").replace(" kB", ""))
            if "Private_Dirty" in rows and "Shared_Dirty" in rows:
                found[pid] = (rows["Private_Dirty"] << 10, rows["Shared_Dirty"] << 10)
        return found

    def _swapped(self) -> int | None:
        pages = _rows(_text(self._proc / "vmstat")).get("pswpin")
        return None if pages is None else pages * _PAGE

    def _process(self, pid: int) -> _Process | None:
        text = _text(self._proc / str(pid) / "stat")
        if text is None or ")" not in text:
            return None
        words = text[text.rindex(")") + 2 :].split()  # the name before it may have blanks and brackets
        numbers = [int(word) for word in words[1:15]]
        parent, faults, of_children = numbers[0], numbers[8], numbers[9]
        user, system, children_user, children_system = numbers[10:14]
        return _Process(
            parent, (user + system) / _TICK, (children_user + children_system) / _TICK, faults + of_children
        )

    def _threads(self) -> float:
        """Return the CPU seconds of the core's threads; note how long each thread waited for a CPU."""
        tasks = self._proc / str(self._pid) / "task"
        ours = 0.0
        try:
            threads = os.listdir(tasks)
        except OSError:
            return 0.0
        for thread in threads:
            cpu = self._note_delay(thread, tasks / thread / "schedstat")
            if thread in self._core or (_text(tasks / thread / "comm") or "").startswith(OUR_THREADS):
                self._core.add(thread)
                ours += cpu
        return ours

    def _note_delay(self, name: str, path: Path) -> float:
        """Note how long a thread waited for a CPU; return the seconds for which it had one."""
        words = (_text(path) or "").split()
        if len(words) < 2:
            return 0.0
        self._delays[name] = int(words[1]) / 1e9
        return int(words[0]) / 1e9

    def _io(self, pid: int) -> tuple[int, int] | None:
        """Return the bytes got by read(), and those read from storage."""
        rows = _rows(_text(self._proc / str(pid) / "io"))
        return (rows["rchar"], rows["read_bytes"]) if {"rchar", "read_bytes"} <= set(rows) else None

    def _throttled(self) -> float | None:
        """Return the most that any of the process's cgroups was throttled."""
        times = []
        for path in self._stat:
            rows = _rows(_text(path))
            times += [rows[name] / unit for name, unit in _THROTTLED.items() if name in rows]
        return max(times, default=None)

    def _machine(self) -> tuple[float | None, float | None]:
        text = _text(self._proc / "stat")
        rows = [line.split() for line in (text or "").splitlines() if line.startswith("cpu")]
        rows = [row for row in rows if row[0] in self._cpus and len(row) > _STOLEN + 1]
        if not rows:
            return None, None
        busy = sum(int(row[1 + at]) for row in rows for at in _BUSY)
        return busy / _TICK, sum(int(row[1 + _STOLEN]) for row in rows) / _TICK

    def _pressure(self) -> float | None:
        text = _text(self._proc / "pressure/cpu")
        words = (text or "").split("\n")[0].split()
        return int(words[-1].removeprefix("total=")) / 1e6 if words and words[0] == "some" else None

    def _shm_free(self) -> int | None:
        try:
            status = os.statvfs(self._root / "dev/shm")
        except OSError:
            return None
        return status.f_bavail * status.f_frsize


_THROTTLED = {"throttled_usec": 1e6, "throttled_time": 1e9}  # cgroup v2, v1


def cpu_delay() -> float:
    """Return the seconds for which this thread was ready to run but had no CPU; 0 if not known."""
    words = (_text(Path("/proc/thread-self/schedstat")) or "").split()
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


def _text(path: Path) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (OSError, ProcessLookupError):
        return None


def _rows(text: str | None) -> dict[str, int]:
    """Parse lines of a name and a number."""
    rows = {}
    for line in (text or "").splitlines():
        name, _, value = line.replace(":", " ").partition(" ")
        if value.strip().isdigit():
            rows[name] = int(value)
    return rows


def _sum(first: tuple[int, int] | None, second: tuple[int, int] | None) -> tuple[int, int] | None:
    return (first[0] + second[0], first[1] + second[1]) if first and second else None
