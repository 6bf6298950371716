"""Kills a pack into a store before and after every change in the store, and goes on each time.

Run as a program: ``store_driver.py SOURCE FOLDER``. It forks a child for each kill point, compares the result
with a pack into a folder byte for byte, and prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from killer import Killer
from pack_trees import snapshot

from fastload.packing import PackOptions, pack
from fastload.packing.cut import WORK_NAME
from fastload.remote.local import LocalStore
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, MANIFEST_NAME

OPTIONS = PackOptions(shard_size=8192, num_proc=1, runs="/")


def packed(source: Path, output: Path, at: int) -> bool:
    """Pack in a child that is killed at point ``at``; True if it came to its end."""
    child = os.fork()
    if child == 0:
        code = 4
        try:
            killer = Killer(at)
            for name in ("put", "upload", "delete"):
                setattr(LocalStore, name, killer.around(getattr(LocalStore, name)))
            pack(source, f"file://{output}", OPTIONS)  # type: ignore[arg-type]
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return status == 0


def main(source: Path, folder: Path) -> None:
    tempfile.tempdir = str(folder / "tmp")
    os.mkdir(tempfile.tempdir)
    pack(source, folder / "whole" / "set", OPTIONS)
    expected = snapshot(folder / "whole" / "set")
    gc.freeze()  # else each child writes to, and so copies, all objects' pages when it collects garbage
    at, early, failures, again = 0, 0, [], 0
    while True:
        output = folder / "killed" / "set"
        if packed(source, output, at):
            break
        if (output / MANIFEST_NAME).exists():
            early += any(not (output / name).exists() for name in expected)
        early += (
            (output / INDEX_NAME).exists()
            and not (output / WORK_NAME / "plan.json").exists()
            and not (output / MANIFEST_NAME).exists()
        )
        shards = {path: path.stat().st_ino for path in output.glob("*.arrow")}
        parts = {path.stem for path in output.glob(f"{WORK_NAME}/*/*.part")}
        pack(source, f"file://{output}", OPTIONS)  # type: ignore[arg-type]
        again += sum(path.stat().st_ino != node for path, node in shards.items() if path.name in parts)
        if snapshot(output) != expected or os.listdir(tempfile.gettempdir()):
            failures.append(at)
        shutil.rmtree(output.parent)
        at += 1
    assert ENTRIES_NAME in expected
    print(json.dumps({"points": at, "early": early, "failures": failures, "again": again}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
