"""Stops packs of each source of row_sources.py by a kill, and runs them again.

Run as a program, it packs each source whole, and then kills packs of it before and after calls that change
what is in a folder, in a forked child each time. It prints one JSON object: how often each was stopped, and
what was wrong.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from killer import Killer
from pack_trees import snapshot
from row_sources import SOURCES
from row_ways import Case

from fastload.errors import PackError
from fastload.machine import temporary
from fastload.shard.manifest import MANIFEST_NAME

CALLS = ("replace", "unlink", "rmdir", "mkdir")
POINTS = 6  # for each source


def stopped(case: Case, output: Path, killer: Killer) -> bool:
    """Pack in a child; whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            around(killer)
            case.pack(output, entries=None)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, f"{case.name}: {status}"
    return os.WIFSIGNALED(status)


def around(killer: Killer) -> None:
    """Put a killer around what changes a folder."""
    for name in CALLS:
        setattr(os, name, killer.around(getattr(os, name)))


def checked(case: Case) -> dict[str, Any]:
    """How often a source's pack was stopped, and what was wrong then."""
    counting, calls = Killer(-1), {name: getattr(os, name) for name in CALLS}
    given = case.given  # written before calls are counted
    around(counting)
    whole = case.packed(given, entries=None)
    vars(os).update(calls)
    wanted, datasets = snapshot(whole), len(list(whole.rglob(MANIFEST_NAME)))
    stops, wrong = 0, []
    for at in np.linspace(1, 0.95 * counting.count, POINTS).astype(int).tolist():
        output = case.place()
        stops += stopped(case, output, Killer(at))
        complete = len(list(output.rglob(MANIFEST_NAME))) >= datasets
        if complete and not {*wanted} <= {*snapshot(output)}:
            wrong.append(f"point {at} of {counting.count}: a dataset lacks files")
        if complete and case.source.comes_once:
            continue  # the samples cannot be compared with it
        case.pack(output, entries=None)
        if snapshot(output) != wanted:
            wrong.append(f"point {at} of {counting.count}: other files")
        wrong += [f"point {at} of {counting.count}: {name} stays" for name in left_by_the_killed()]
    return {"stops": stops, "wrong": wrong}


def left_by_the_killed() -> list[str]:
    """Names of temporary folders that nobody has locked."""
    place, found = tempfile.gettempdir(), []
    for name in os.listdir(place):
        lock = temporary._locked(os.path.join(place, name))
        if lock is not None:  # the source that is still here has some
            os.close(lock)
            found.append(name)
    return found


def main() -> None:
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    gc.freeze()  # children copy no pages of what is imported
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fastload-test-", dir=memory if memory.is_dir() else None))
    tempfile.tempdir = str(folder / "tmp")
    os.mkdir(tempfile.tempdir)
    try:
        found = {}
        for name, source in SOURCES.items():
            case = Case(name, source, folder / name.replace(" ", "-"))
            try:
                found[name] = checked(case)
            except PackError as error:
                found[name] = {"stops": 0, "wrong": [str(error)]}
    finally:
        shutil.rmtree(folder)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
