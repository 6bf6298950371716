"""Processes that end in the middle of an epoch, in every way; started by test_exit.py.

    exits.py DATA FOLDER SECONDS CASE...     all cases at once, each in a forked process of its own

A case is ``LOADER-END-REFERENCE``. It writes FOLDER/CASE.json (the process ids of torch's workers) and
FOLDER/CASE.err; the exit status of each, or "hangs", goes to FOLDER/statuses.json.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

# Each of the many processes would go through all of torch's objects when it ends: most of the test's time.
# What is ours is imported behind this, and ends as usual.
gc.freeze()

from fastload import DataLoader  # noqa: E402
from fastload import transforms as T  # noqa: E402

kept: list[Any] = []  # what the interpreter's own exit finds alive


class Numbers(Dataset[torch.Tensor]):
    """Tensors, which travel through shared memory; ``bad`` raises."""

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, i: int) -> torch.Tensor:
        if i == self.bad:
            raise OSError(f"sample {i} is bad")
        return torch.full((100,), float(i))


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.full((100,), float(i)) for i in range(10_000))


def fail(image: torch.Tensor) -> torch.Tensor:
    raise OSError("a picture is bad")


def make(kind: str, end: str, data: str) -> DataLoader:
    if kind == "packed":
        steps = [T.RandomResizedCrop(16), *([fail] if end == "worker_error" else [])]
        return DataLoader(data, 4, shuffle=True, num_workers=2, transform=T.Compose(steps), seed=0)
    if kind == "stream":
        return DataLoader(Stream(), 4, num_workers=2)
    return DataLoader(Numbers(50 if end == "worker_error" else -1), 4, num_workers=2)


def run(kind: str, end: str, reference: str, data: str, note: Path) -> None:
    """Take some batches, then end by ``end``, with the iterator alive in a global or not."""
    loader = make(kind, end, data)
    iterator = iter(loader)
    if reference == "held":
        kept.extend([loader, iterator])
    step = 0
    for step, _ in enumerate(iterator):
        if step < 3:
            continue
        workers = [child.pid for child in multiprocessing.active_children() if child.pid]
        if not note.exists():  # torch's signal handler may raise in the middle of a later one
            note.write_text(json.dumps(workers))
        if end == "break":
            break
        if end == "error":
            raise RuntimeError("the training step failed")
        if end == "exit":
            sys.exit(7)
        if end == "loader_kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if end == "worker_kill":
            os.kill(workers[0], signal.SIGKILL)
            end = "was killed"


def ended(pid: int, until: float) -> int | str:
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


def main(data: str, folder: Path, seconds: float, cases: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born deaf to it
    pids = {}
    for case in cases:
        pid = os.fork()
        if pid == 0:
            errors = os.open(folder / f"{case}.err", os.O_WRONLY | os.O_CREAT)
            os.dup2(errors, 2)
            run(*case.split("-"), data, folder / f"{case}.json")  # type: ignore[misc,call-arg]
            return
        pids[case] = pid
    until = time.monotonic() + seconds
    statuses = {case: ended(pid, until) for case, pid in pids.items()}
    (folder / "statuses.json").write_text(json.dumps(statuses))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
