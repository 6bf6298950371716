"""Attacks verbs, each in a process, so many at a time as there are CPUs, and tells what came of it."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from verbs import FORMATS

from fastload.shard.formats import format_of

__all__ = ["tell"]

Found = tuple[dict[str, int], list[Any]]  # points of each kind, and what was bad
Attack = Callable[[str, Path], Found]  # of a verb, in a folder that is not there yet


def tell(program: str, names: Sequence[str], attack: Attack, given: dict[str, Any]) -> NoReturn:
    """Attack all of them in ``given["folder"]``, print one JSON object and exit."""
    for name in FORMATS:
        format_of(name)  # its library is imported before the first fork
    gc.freeze()  # else each child writes to, and so copies, all objects' pages when it collects garbage
    points: dict[str, int] = {}
    bad: list[Any] = []
    for done, found in _in_processes(names, attack, Path(given["folder"])):
        points |= done
        bad += found
    told = {"instrument": program, "seed": given["seed"], "points": points, "bad": bad}
    _say(sys.__stdout__, json.dumps(told))
    sys.exit(1 if bad else 0)


def _in_processes(names: Sequence[str], attack: Attack, folder: Path) -> Iterator[Found]:
    left, running = list(names), {}
    while left or running:
        while left and len(running) < len(os.sched_getaffinity(0)):
            name = left.pop(0)
            root = folder / name.replace(" ", "-")
            pid = os.fork()
            if pid == 0:
                _be_one(name, attack, root)
            running[pid] = name, root.with_suffix(".json")
        pid, status = os.wait()
        name, answer = running.pop(pid)
        points, bad = {}, [[name, f"ended with {os.waitstatus_to_exitcode(status)} and no result"]]
        if answer.exists():
            points, bad = json.loads(answer.read_text())
            answer.unlink()
        _say(sys.__stderr__, f"{name}: {sum(points.values()):,} points, {len(bad)} bad")
        yield points, bad


def _be_one(name: str, attack: Attack, root: Path) -> NoReturn:
    status = 1
    try:
        try:
            found = attack(name, root)
        except AssertionError as error:
            found = {}, [[f"{name}: undisturbed", str(error)]]
        root.with_suffix(".json").write_text(json.dumps(found))
        shutil.rmtree(root, ignore_errors=True)
        status = 0
    except BaseException as error:
        _say(sys.__stderr__, f"{name}: {error!r}")
    finally:
        os._exit(status)


def _say(stream: Any, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()
