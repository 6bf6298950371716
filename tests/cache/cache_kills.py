"""Kills ranks and fillers of a cached set at random, and starts the next one each time.

Run as a program, with DATASET by ``cache_sets.raw_set`` and MEMORY a folder in tmpfs:

    cache_kills.py DATASET MEMORY random SEED KILLS    so many, at random moments
    cache_kills.py DATASET MEMORY calls                one before and after each call by which a cache is made

Everything is imported once, and each process is forked from here, so that a kill costs milliseconds. Prints a
JSON object for each cache folder: what was killed, and what went wrong.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cache_sets import in_use, pixels, whole_file
from killer import Killer

import fastload.cache.files
from fastload import DataLoader, PackedDataset
from fastload.cache import layout
from fastload.cache.layout import ENTRY, HEADER
from fastload.cli import main as command_line

SILENCE = 100.0  # seconds without a sign of life: it hangs
BATCH = 16
PARTLY = 3  # exit code of fastload warm: not all has room
LANES = 2  # at once
ROLES = (("rank",), ("rank", "rank"), ("filler",), ("filler", "filler"), ("rank", "filler"))
ANSWERS = 3  # standard output is what the commands print to
CALLS = [(os, name) for name in ("open", "mkdir", "posix_fallocate", "pwrite", "link", "unlink")]
CALLS.append((fcntl, "flock"))

Sign = Callable[[], None]


def rank(dataset: Path, cache: str, sign: Sign) -> dict[str, Any]:
    """One epoch, every picture compared with the source's."""
    truth, seen = pixels(len(PackedDataset(dataset))), []
    with DataLoader(dataset, BATCH, shuffle=True, num_workers=1, cache=cache, seed=0) as loader:
        for images, labels in loader:
            sign()
            wrong = (images.permute(0, 2, 3, 1).numpy() != truth[labels.numpy()]).any(axis=(1, 2, 3))
            assert not wrong.any(), f"wrong records: {labels[wrong].tolist()}"
            seen += labels.tolist()
        assert sorted(seen) == list(range(len(truth))), f"{len(set(seen))} records of {len(truth)}"
        return dict(loader.stats()["cache"])


def filler(dataset: Path, cache: str, sign: Sign) -> dict[str, Any]:
    """``fastload warm``."""
    code = command_line(["warm", str(dataset), "--limit", cache, "--threads", "2", "--json"])
    assert code in (0, PARTLY), f"fastload warm: exit status {code}"
    return {}


class Child:
    """A forked process of one role: writes a dot at each sign of life, at its end an answer or an error."""

    def __init__(self, role: str, dataset: Path, cache: str, killer: Killer | None = None) -> None:
        self.role, self.told = role, b""
        self.pipe, end = os.pipe()
        self.since = self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            for module, name in CALLS if killer else ():
                setattr(module, name, killer.around(getattr(module, name)))
            self._run(end, dataset, cache)
        os.close(end)

    def _run(self, end: int, dataset: Path, cache: str) -> None:
        faulthandler.enable()
        answer = b"!"
        try:
            work = {"rank": rank, "filler": filler}[self.role]
            answer = b"=" + json.dumps(work(dataset, cache, lambda: os.write(end, b"."))).encode()  # type: ignore[func-returns-value]
        except BaseException:
            answer = b"!" + traceback.format_exc().encode()
        finally:
            os.write(end, answer)
            os._exit(0)

    def listen(self) -> bool:
        """Take in what it wrote; False at its end."""
        block = os.read(self.pipe, 1 << 16)
        self.since = time.monotonic()
        self.told += block
        return bool(block)

    def end(self) -> bytes:
        """Reap it; its answer: ``=JSON``, ``!text``, or nothing where it was killed."""
        os.waitpid(self.pid, 0)
        os.close(self.pipe)
        return self.told.lstrip(b".")


def cache_files(memory: Path) -> list[Path]:
    return list(memory.glob("fastload-*/*.flc"))


def entries(path: Path) -> npt.NDArray[np.void]:
    """The table of a cache file as it lies in memory (FORMAT.md)."""
    with path.open("rb") as file:
        header = np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]
        file.seek(int(header["table_offset"]))
        return np.frombuffer(file.read(int(header["num_records"]) * ENTRY.itemsize), ENTRY)


def ready_records(memory: Path) -> int:
    """How many records processes have put into the cache; -1: there is none."""
    return (
        sum(int(entries(path)["state"].sum()) for path in cache_files(memory)) if cache_files(memory) else -1
    )


def wrong_records(memory: Path, truth: npt.NDArray[np.uint8]) -> list[int]:
    """Records that are marked as ready, and differ from the source's."""
    wrong = []
    for path in cache_files(memory):
        table, data = entries(path), whole_file(path)
        for number in np.flatnonzero(table["state"]).tolist():
            begin, length = int(table["offset"][number]), int(table["length"][number])
            if not np.array_equal(data[begin : begin + length], truth[number].reshape(-1)):
                wrong.append(number)
    return wrong


def together(children: list[Child], victim: Child | None, due: Callable[[], bool]) -> list[str]:
    """Wait for all; kill the victim as soon as it is due.

    Returns:
        What went wrong.
    """
    problems, living, killed = [], list(children), victim is None
    while living:
        pipes = [child.pipe for child in living]
        ready, _, _ = select.select(pipes, [], [], 0.2 if killed else 0.0005)
        if not killed and victim in living and due():
            os.kill(victim.pid, signal.SIGKILL)
            killed = True
        for child in list(living):
            if child.pipe in ready and not child.listen():
                living.remove(child)
                answer = child.end()
                if answer[:1] != b"=" and not (child is victim and killed):
                    problems.append(f"{child.role}: {answer.decode() or 'ended without a word'}")
            elif child.pipe not in ready and time.monotonic() - child.since > SILENCE:
                problems.append(f"{child.role}: nothing for {SILENCE:.0f} s")
                os.kill(child.pid, signal.SIGABRT)  # faulthandler tells where
                child.since = time.monotonic()
    return problems


class Lane:
    """A cache folder, and the processes that use it."""

    def __init__(self, dataset: Path, memory: Path, seed: int) -> None:
        memory.mkdir()
        self.dataset, self.memory, self.random = dataset, memory, random.Random(seed)
        os.environ["FASTLOAD_CACHE_DIR"] = str(memory)
        self.count = len(PackedDataset(dataset))
        size = pixels(self.count).nbytes
        self.whole, self.part = f"{2 * size}B", f"{size * 6 // 10}B"  # room for all, and for less
        self.problems: list[str] = []
        self.found: Counter[str] = Counter()
        self.sizes: dict[str, dict[str, int]] = {}
        sizes = {}
        self.rooms: list[int] = []
        self.seconds: dict[str, float] = {}
        for cache in (
            self.part,
            self.whole,
        ):  # what an undisturbed start leaves; the second replaces the first
            self.next_start(cache)
            sizes[cache] = self.state()
            self.rooms.append(ready_records(memory))
        self.sizes = sizes
        for role in ("rank", "filler"):
            self.clear()
            begin = time.monotonic()
            self.problems += together([Child(role, dataset, self.whole)], None, bool)
            self.seconds[role] = time.monotonic() - begin

    def state(self) -> dict[str, int]:
        return {name: size for name, size in in_use(self.memory).items() if size}

    def clear(self) -> None:
        """``fastload cache clear``: nothing is left."""
        assert command_line(["cache", "clear", "--json"]) == 0
        if self.state():
            self.problems.append(f"left after cache clear: {self.state()}")

    def next_start(self, cache: str) -> None:
        """A rank as the user starts it next: right records, all that have room ready, nothing else there."""
        child = Child("rank", self.dataset, cache)
        self.problems += together([child], None, bool)
        if child.told.lstrip(b".")[:1] == b"=":
            stats = json.loads(child.told.lstrip(b".="))
            if ready_records(self.memory) != stats["room_records"] or stats["damaged"] or stats["failed"]:
                self.problems.append(f"after an epoch {ready_records(self.memory)} are ready: {stats}")
        if self.sizes and self.state() not in self.sizes.values():
            self.problems.append(
                f"left in memory: {self.state()}, expected one of {list(self.sizes.values())}"
            )

    def kill(self) -> None:
        """One kill, and the next start."""
        roles, cache = self.random.choice(ROLES), self.random.choice((self.part, self.whole))
        by_time = self.random.random() < 0.5
        if not by_time or self.random.random() < 0.5:
            self.clear()
        children = [Child(role, self.dataset, cache) for role in roles]
        victim = self.random.choice(children)
        moment = victim.began + self.random.uniform(0, 1.1 * self.seconds[victim.role])
        enough = self.random.randrange(self.count // 2)

        def due() -> bool:
            if time.monotonic() < moment if by_time else ready_records(self.memory) < enough:
                return False
            self.note(victim)
            return True

        self.problems += together(children, victim, due)
        self.check()
        self.next_start(self.random.choice((self.part, self.whole)))

    def note(self, victim: Child) -> None:
        """What there is when the victim is killed."""
        ready = ready_records(self.memory)
        state = "no file" if ready < 0 else "all" if ready in self.rooms else "some" if ready else "none"
        self.found[f"{victim.role}: {state}"] += 1

    def check(self) -> None:
        """What is marked as ready is right."""
        if wrong := wrong_records(self.memory, pixels(self.count)):
            self.problems.append(f"wrong records in memory: {wrong}")

    def finish(self) -> None:
        """Clear, and tell what was found."""
        self.clear()
        told = {"killed": self.found.total(), "found": self.found, "problems": self.problems}
        os.write(ANSWERS, json.dumps(told).encode() + b"\n")


def at_random(dataset: Path, memory: Path, seed: int, kills: int) -> None:
    """So many kills in one cache folder."""
    lane, tries = Lane(dataset, memory, seed), 0
    while lane.found.total() < kills and not lane.problems and tries < 5 * kills:
        lane.kill()
        tries += 1
    lane.finish()


def at_calls(dataset: Path, memory: Path, replaces: bool) -> None:
    """A rank is killed around every call that makes, or replaces, a cache; each time followed by a start."""
    lane, at, ended = Lane(dataset, memory, 0), 0, False
    while not ended and not lane.problems:
        lane.clear()
        if replaces:
            lane.next_start(lane.part)  # too small, and not in use
        child = Child("rank", dataset, lane.whole, Killer(at))
        problems = together([child], None, bool)
        ended = b"=" in child.told
        if not ended:
            lane.note(child)
            problems = [] if child.told.strip(b".") == b"" else problems
        lane.problems += problems
        lane.check()
        lane.next_start(lane.whole)
        at += 1
    lane.finish()


def main(dataset: Path, memory: Path, how: str, seed: int = 0, kills: int = 0) -> None:
    pixels(len(PackedDataset(dataset)))  # once
    fastload.cache.files._FIRST = 0  # the set is small: all of it is left to the thread that reserves memory
    gc.freeze()  # else each child writes to, and so copies, all objects' pages when it collects garbage
    children = []
    for number in range(LANES):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                folder = memory / str(number)
                if number:
                    layout._STRIPED, layout._STRIPE_LEAST, layout._STRIPE_RUN = 0, 1 << 20, 1 << 16
                if how == "calls":
                    at_calls(dataset, folder, bool(number))
                else:
                    at_random(dataset, folder, seed + number, kills // LANES)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    os.dup2(1, ANSWERS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))
