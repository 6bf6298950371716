"""Loaders in processes that get little memory; started by test_memory_limits.py.

    memory_limits.py FOLDER SECONDS

Each case runs in a forked process of its own: a limit of address space (RLIMIT_AS), some MiB above what the
process has, set before the loader is made or after its second batch. On stdout: {case: [status, outcome]},
the status as of ``os.waitstatus_to_exitcode``, or "hangs".
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch

from fastload import DataLoader
from fastload import transforms as T

MEBIBYTES = (0, 1, 3, 6, 10, 18, 30, 45, 60, 75, 90, 120, 160, 220, 300, 500)
# Here the threads start and nothing is left for what they take later: which thread lacks it varies.
NARROW = (20, 21, 22, 23, 24, 25)


def limit_memory(mebibytes: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (mebibytes << 20), resource.RLIM_INFINITY))


def run(folder: str, mebibytes: int, in_epoch: bool) -> str:
    """What became of it: "works", or the MemoryError's text."""
    loader = None
    try:
        if not in_epoch:
            limit_memory(mebibytes)
        loader = DataLoader(
            folder,
            4,
            shuffle=True,
            seed=1,
            num_workers=2,
            transform=T.RandomResizedCrop(300),
            prefetch_factor=6,
        )
        kept = []
        for step, (images, _) in enumerate(loader):
            if in_epoch and step == 1:
                limit_memory(mebibytes)
            kept.append(images)
        return "works" if len(kept) == len(loader) else "batches are lost"
    except MemoryError as error:
        return f"MemoryError: {error}"
    finally:
        if loader is not None:
            loader.close()


def ended(pid: int, until: float) -> int | str:
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


def main(folder: str, seconds: float) -> None:
    torch.set_num_threads(1)
    found = {}
    cases = [(mebibytes, in_epoch, 0) for in_epoch in (False, True) for mebibytes in MEBIBYTES]
    cases += [(mebibytes, False, again) for again in range(10) for mebibytes in NARROW]
    for mebibytes, in_epoch, again in cases:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writing, run(folder, mebibytes, in_epoch).encode())
            os._exit(0)
        os.close(writing)
        status = ended(pid, time.monotonic() + seconds)
        with os.fdopen(reading, "rb") as pipe:
            found[f"{mebibytes} MiB {'in the epoch' if in_epoch else 'from the start'}, {again}"] = (
                status,
                pipe.read().decode(),
            )
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
