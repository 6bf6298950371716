"""How many CPUs this process gets while it asks for all that it may use: the rest is somebody else's."""

from __future__ import annotations

import os
import threading
import time
import zlib

from fastload.diagnose.trial import Budget
from fastload.machine.cpu_budget import cgroup_quota

__all__ = ["cpus_here", "spare_cpus"]

_WORK = bytes(1 << 20)  # whose checksum is computed without Python's lock


def cpus_here(budget: Budget) -> tuple[float, int, float]:
    """CPUs that this process may use, those of its mask, and those that it gets."""
    mask, quota = len(os.sched_getaffinity(0)), cgroup_quota()
    cpus = float(mask) if quota is None else min(float(mask), quota)
    return cpus, mask, spare_cpus(cpus, budget.run / 2)


def spare_cpus(cpus: float, seconds: float) -> float:
    """CPUs that as many busy threads got, at most ``cpus``."""
    got: list[float] = []

    def work() -> None:
        began, cpu = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds:
            zlib.crc32(_WORK)
        got.append((time.thread_time() - cpu) / (time.perf_counter() - began))

    threads = [threading.Thread(target=work) for _ in range(max(1, round(cpus)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return min(cpus, sum(got))
