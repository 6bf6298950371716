"""Fails or kills a pack (or an index, or a recode) at the k-th call of libc, and runs the same again.

Run as a program with ``failing_calls.so`` preloaded: ``call_driver.py JSON``. It forks a child for each point
(cheaper than a new interpreter), and prints one JSON object: how many points there were, at which of them the
same command did not go on (``stuck``: point, reason), gave something else (``different``), or a failing call
became anything but an error in words (``wrong``).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from failing_calls import CHANGES, COUNT, FAIL, KILL_BEFORE, KILL_BEHIND, Calls
from pack_trees import snapshot

from fastload.errors import FastloadError
from fastload.packing import PackOptions, pack
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.recode.run import recode
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import format_of

CALLS = Calls()
Outcome = dict[str, Any]


def in_child(run: Callable[[], None], arm: Callable[[], None] = lambda: None) -> Outcome:
    """``run`` in a child: how it ended, how many calls there were, and the last of them."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        outcome: Outcome = {"error": None, "words": ""}
        # The threads of a pool would end with a message of their own.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        try:
            arm()
            run()
        except BaseException as error:
            outcome["error"], outcome["words"] = type(error).__name__, str(error)
            outcome["ours"] = isinstance(error, FastloadError)
        outcome["seen"], outcome["last"] = CALLS.seen, CALLS.last
        CALLS.arm("none", "none", -1, COUNT)
        os.write(there, json.dumps(outcome).encode())
        os._exit(0)
    os.close(there)
    with open(here, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return dict(json.loads(text))


class Task:
    """One command over one source: how to begin, to run and to run again."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.source, self.folder = Path(given["source"]), Path(given["folder"])
        self.output = self.folder / "killed" / "set"

    def begin(self, output: Path) -> None:
        """What is there before the command."""
        shutil.rmtree(output.parent, ignore_errors=True)
        output.parent.mkdir(parents=True)
        if self.given["command"] == "recode":
            shutil.copytree(self.source, output)
        if self.given.get("again"):  # over an index that is there
            self.run(output, restart=False)
        if "begun" in self.given:  # over what a kill has left
            killed = in_child(
                lambda: self.run(output), arming(self, self.given["begun"], KILL_BEFORE, CHANGES)
            )
            assert "signal" in killed, killed

    def run(self, output: Path, restart: bool | None = None) -> None:
        """The command."""
        restart = bool(self.given.get("again")) if restart is None else restart
        if self.given["command"] == "index":
            index_files([self.source], output, IndexOptions(restart=restart))
            PackedFiles(output)
            return
        if self.given["command"] == "recode":
            recode(output, self.given["form"], 1)
            return
        options: dict[str, Any] = self.given.get("options", {})
        pack(self.source, output, PackOptions(num_proc=1, restart=restart, **options))

    def lost(self) -> str:
        """Of a set that is recoded: why it is not whole, whatever has happened."""
        if self.given["command"] != "recode":
            return ""
        try:
            before, now = PackedFiles(self.source), PackedFiles(self.output)
            for sample in range(len(before)):
                for name in before.schema.names:
                    if before.value_bytes(name, sample) != now.value_bytes(name, sample):
                        return f"sample {sample} has another {name!r}"
        except FastloadError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def again(self) -> Outcome:
        """The same command, and, where it says that the set is there already, nothing more. Not in a child:
        nothing fails in it, and forks are what takes most of the time."""
        try:
            self.run(self.output, self.given.get("restart_again"))
        except Exception as error:
            return {"error": type(error).__name__, "words": str(error)}
        return {"error": None, "words": ""}


def kills(task: Task, expected: dict[str, bytes], points: range) -> Outcome:
    """Kill around the calls ``points``: even points before a call, odd ones behind it."""
    found: Outcome = {"stuck": [], "different": [], "wrong": []}
    for point in points:
        task.begin(task.output)
        how = KILL_BEHIND if point % 2 else KILL_BEFORE
        killed = in_child(lambda: task.run(task.output), arming(task, point // 2, how, CHANGES))
        if killed.get("signal") != signal.SIGKILL:
            found["wrong"].append([point, str(killed)])
        if task.lost():
            found["wrong"].append([point, task.lost()])
        after = task.again()
        judge(task, point, after, expected, found)
    return found


def failures(task: Task, expected: dict[str, bytes], points: range) -> Outcome:
    """Let the calls ``points`` fail."""
    found: Outcome = {"stuck": [], "different": [], "wrong": [], "words": []}
    errno, what, calls = task.given["errno"], task.given.get("what", FAIL), task.given.get("calls", CHANGES)
    for point in points:
        task.begin(task.output)
        failed = in_child(lambda: task.run(task.output), arming(task, point, what, calls, errno))
        if "signal" in failed or (failed["error"] is not None and not failed["ours"]):
            found["wrong"].append([point, failed.get("last"), failed.get("error"), str(failed)[:300]])
        elif failed["error"] is not None:
            found["words"].append(failed["words"])
        if task.lost():
            found["wrong"].append([point, task.lost()])
        after = task.again()
        judge(task, point, after, expected, found)
    return found


def arming(task: Task, at: int, what: int, calls: str, errno: int = 0) -> Callable[[], None]:
    return lambda: CALLS.arm(calls, f"{task.output.parent}/*", at, what, errno)


def judge(task: Task, point: int, after: Outcome, expected: dict[str, bytes], found: Outcome) -> None:
    if "signal" in after or after["error"] is not None:
        found["stuck"].append([point, str(after)])
    elif snapshot(task.output) != expected:
        names = sorted(set(snapshot(task.output)) ^ set(expected))
        found["different"].append([point, names])


def main(given: dict[str, Any]) -> None:
    format_of(given.get("format", "arrow"))  # its library is imported before the first fork
    task = Task(given)
    task.begin(task.output)
    whole = in_child(lambda: task.run(task.output), arming(task, -1, COUNT, given.get("calls", CHANGES)))
    assert whole.get("error", 1) is None, whole
    expected = snapshot(task.output)
    count = whole["seen"] * (1 if given.get("errno") else 2)
    step = max(1, count // given["points"]) if given.get("points") else 1
    points = range(given.get("first", 0), count, step | 1)  # an odd step: both kinds of kill
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(task.output.parent)
    gc.freeze()  # else each child writes to, and so copies, all objects' pages when it collects garbage
    found = (failures if given.get("errno") else kills)(task, expected, points)
    print(json.dumps({"calls": whole["seen"], "points": len(points), **found}))  # noqa: T201


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
