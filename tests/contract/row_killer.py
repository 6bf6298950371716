"""Stops packs of each source of row_sources.py by a kill, and runs them again.

Run as a program, it packs each source whole, and then stopped before calls that give a file its name, in a
forked child each time. It prints one JSON object: how often each was stopped, and what was wrong.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from pack_trees import snapshot
from row_sources import NOT_YET, SOURCES
from row_ways import Case

from fastload.shard.manifest import MANIFEST_NAME


class Counted:
    """``os.replace``, which kills this process before the k-th call."""

    def __init__(self, at: int | None = None) -> None:
        self.at, self.calls, self.replace = at, 0, os.replace

    def __call__(self, *arguments: Any) -> None:
        if self.calls == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1
        self.replace(*arguments)


def stopped(case: Case, output: Path, at: int) -> bool:
    """Pack in a child that is killed; whether it ended by that."""
    child = os.fork()
    if child == 0:
        os.replace = Counted(at)  # type: ignore[assignment]
        try:
            case.pack(output, entries=None)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def checked(case: Case) -> dict[str, Any]:
    """How often a source's pack was stopped, and what was wrong then."""
    counted = Counted()
    os.replace = counted  # type: ignore[assignment]
    whole = case.packed(entries=None)
    os.replace = counted.replace
    wanted, datasets = snapshot(whole), len(list(whole.rglob(MANIFEST_NAME)))
    stops, wrong = 0, []
    for at in sorted({1, counted.calls // 3, counted.calls // 2, counted.calls - 1}):
        output = case.place()
        stops += stopped(case, output, at)
        if len(list(output.rglob(MANIFEST_NAME))) >= datasets:  # of several splits the first may be whole
            wrong.append(f"call {at} of {counted.calls}: it is a dataset")
        case.pack(output, entries=None)
        if snapshot(output) != wanted:
            wrong.append(f"call {at} of {counted.calls}: other files")
    return {"stops": stops, "wrong": wrong}


def main() -> None:
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    gc.freeze()  # children copy no pages of what is imported
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fastload-test-", dir=memory if memory.is_dir() else None))
    try:
        found = {}
        for name, source in SOURCES.items():
            if name not in NOT_YET:
                found[name] = checked(Case(name, source, folder / name.replace(" ", "-")))
    finally:
        shutil.rmtree(folder)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
