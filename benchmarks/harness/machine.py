"""What the machine is and does while something is measured: facts, memory of a process tree, CPU time.

Linux only: everything is read from /proc.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

__all__ = [
    "Memory",
    "MemorySampler",
    "busy_seconds",
    "facts",
    "pids_of_session",
    "process_memory",
    "session_cpu",
    "session_memory",
    "sizes_of",
    "warm_page_cache",
]

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Memory:
    """Proportional set size in MB (10^6 bytes): a page shared by n processes counts 1/n in each."""

    anonymous: float = 0.0  # heap, stacks and shared memory (tmpfs): what cannot be dropped
    file: float = 0.0  # mapped files: page cache that the kernel may drop
    processes: int = 0

    @property
    def total(self) -> float:
        """All of it, MB."""
        return self.anonymous + self.file

    def __add__(self, other: Memory) -> Memory:
        return Memory(
            self.anonymous + other.anonymous, self.file + other.file, self.processes + other.processes
        )


def sizes_of(pid: int | str) -> dict[str, float]:
    """A process's smaps_rollup, MB; empty if it is gone or belongs to someone else."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    return {line.split(":")[0]: float(line.split()[1]) * 1024e-6 for line in lines if line.endswith("kB")}


def process_memory(pid: int | str = "self") -> Memory:
    """Memory of one process; zero if it is gone or belongs to someone else."""
    sizes = sizes_of(pid)
    if not sizes:
        return Memory()
    if "Pss_Anon" not in sizes:  # Linux before 5.9
        return Memory(sizes.get("Pss", 0.0), 0.0, 1)
    return Memory(sizes["Pss_Anon"] + sizes["Pss_Shmem"], sizes["Pss_File"], 1)


def session_memory(session: int) -> Memory:
    """Memory of all processes of a session: a whole process tree, orphans too."""
    total = Memory()
    for pid in _processes(session):
        total += process_memory(pid)
    return total


def pids_of_session(session: int) -> list[int]:
    """The processes of a session."""
    return [int(pid) for pid in _processes(session)]


def session_cpu(session: int) -> float:
    """CPU seconds that the living processes of a session have used, and their ended children."""
    return sum(sum(int(value) for value in stat[11:15]) for stat in _processes(session).values()) / TICKS


def _processes(session: int) -> dict[str, list[str]]:
    """pid -> the fields of /proc/pid/stat from the state (field 3) on, for a session's processes."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry.name}/stat").read_text()
        except OSError:
            continue  # it has just ended
        fields = stat.rpartition(")")[2].split()  # the name in parentheses may hold spaces
        if int(fields[3]) == session:
            found[entry.name] = fields
    return found


class MemorySampler:
    """Samples a session's memory in a thread of its own and keeps the peak.

    Reading smaps_rollup walks page tables, which takes time and the process's memory lock: the
    pause grows with the cost of a sample, so that sampling stays below 2% of one core.
    """

    def __init__(self, session: int, interval: float = 0.2) -> None:
        self.peak = Memory()
        self._session, self._interval = session, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            begin = time.thread_time()
            now = session_memory(self._session)
            if now.total > self.peak.total:
                self.peak = now
            if self._stop.wait(max(self._interval, 50 * (time.thread_time() - begin))):
                return


def busy_seconds() -> float:
    """CPU seconds all processes of the machine have used since boot (not idle, not waiting)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(value) for value in fields[:7])
    return (user + nice + system + irq + softirq) / TICKS


def warm_page_cache(paths: Iterable[Path]) -> int:
    """Read files, and all files below folders, each inode once; the number of bytes."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            status = file.stat()
            if not file.is_file() or (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with open(file, "rb", buffering=0) as stream:
                while block := stream.read(1 << 20):
                    total += len(block)
    return total


def facts() -> dict[str, str | int | float]:
    """CPU model, cores this process may use, memory in MB, kernel, Python and load average."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
    }
