"""Stops packs of annotated sets by a kill or by Ctrl-C, and runs them again.

Run as a program: ``annotated_kill_driver.py FOLDER``: packs each set in FOLDER/sets (as the layout that it is
named for) whole, and then stopped at calls that publish something, in a forked child each time. Prints one
JSON object: how often each set was stopped, and what was wrong.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from pack_trees import snapshot

import fastload
from fastload.shard.manifest import MANIFEST_NAME

SHARD_BYTES = 4096


def run_pack(source: Path, output: Path) -> None:
    result = fastload.pack(source, output, as_=source.name, shard_size=SHARD_BYTES, entries=None)
    assert isinstance(result, list)


class Counted:
    """``os.replace``, which sends this process a signal before the k-th call."""

    def __init__(self, at: int | None = None, number: signal.Signals = signal.SIGKILL) -> None:
        self.at, self.number, self.calls, self.replace = at, number, 0, os.replace

    def __call__(self, *arguments: Any) -> None:
        if self.calls == self.at:
            os.kill(os.getpid(), self.number)
        self.calls += 1
        self.replace(*arguments)


def stopped(source: Path, output: Path, at: int, number: signal.Signals) -> bool:
    """Pack in a child that gets a signal; whether it ended by it."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.replace = Counted(at, number)  # type: ignore[assignment]
        try:
            run_pack(source, output)
        except KeyboardInterrupt:
            os._exit(130)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 130


def checked(source: Path, folder: Path) -> tuple[int, list[str]]:
    """How often a set's pack was stopped, and what was wrong then."""
    counted = Counted()
    os.replace = counted  # type: ignore[assignment]
    run_pack(source, folder / "whole" / "out")
    os.replace = counted.replace
    wanted = snapshot(folder / "whole" / "out")
    datasets = len([name for name in wanted if name.endswith(MANIFEST_NAME)])
    stops, wrong = 0, []
    for number in (signal.SIGKILL, signal.SIGINT):
        for at in sorted({1, counted.calls // 3, counted.calls // 2, counted.calls - 1}):
            output = folder / "stopped" / "out"
            shutil.rmtree(output, ignore_errors=True)
            where = f"{source.name}, call {at} of {counted.calls}, {number.name}"
            stops += stopped(source, output, at, number)
            if len(list(output.rglob(MANIFEST_NAME))) >= datasets:  # of several splits the first may be whole
                wrong.append(f"{where}: it is a dataset")
            run_pack(source, output)
            if snapshot(output) != wanted:
                wrong.append(f"{where}: other files")
    return stops, wrong


def main(folder: Path) -> None:
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    gc.freeze()  # children copy no pages of what is imported
    found = {}
    for source in sorted((folder / "sets").iterdir()):
        stops, wrong = checked(source, folder / f"packs-{source.name}")
        found[source.name] = {"stops": stops, "wrong": wrong}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
