"""The jobs of a soak: what each is, and a start of its ranks, from the first process to the last."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soak_ledger import Ledger, Line
from soak_rank import FAILED, run
from soak_sets import COUNT, FIELDS, Truth, forked

RANK = Path(__file__).with_name("soak_rank.py")
SILENCE = 120.0  # seconds without a batch, on a crowded machine: it hangs
WORLDS = (1, 2, 3, 4)
SIZES = (12, 24)  # of a global batch: every number of ranks divides them
TORN = ("distributed", "gloo", "Connection", "Broken pipe", "Timed out", "timed out", "peer", "store")


def cache_options(chance: random.Random, name: str, disk: Path) -> dict[str, Any]:
    """How a job keeps records: not, in memory (all or a part, in three forms), on disk. A dict is for
    ``fastload.Cache``: jobs are written down."""
    jpegs = name in ("arrow", "lmdb", "hdf5")
    choices: list[dict[str, Any]] = [
        {"cache": "off"},
        {"cache": "auto"},
        {"cache": "4MB"},
        {"cache": "300KB"},
        {"cache": ["off", f"{disk}:2MB"]},
        {"cache": ["200KB", f"{disk}:1MB"]},
    ]
    if name != FIELDS:
        choices += [{"cache": {"size": "8MB", "decoded": "full"}}]
    if jpegs:
        choices += [{"cache": {"size": "4MB", "format": "coefficients"}}] * 2
        choices += [{"cache": {"size": "4MB", "format": "auto"}}]
    return chance.choice(choices)


def draw(
    chance: random.Random, sets: dict[str, Path], disk: Path, group: bool, url: str = ""
) -> dict[str, Any]:
    """The settings of a job, which all its starts have in common."""
    name = chance.choice(["arrow", "lmdb", "raw"] if url else [*sets, FIELDS])
    kinds = ("crop", "crop", "crop-float", "fixed", "fixed-float", "callable")
    kind = FIELDS if name == FIELDS else chance.choice(kinds)
    shuffle = chance.choice([True, True, True, False, "block"])
    options = {"num_workers": chance.choice([1, 2]), **cache_options(chance, name, disk)}
    if kind == "callable" and isinstance(options["cache"], dict) and "decoded" in options["cache"]:
        options["cache"] = options["cache"]["size"]
    if chance.random() < 0.3:
        options["prefetch_factor"] = chance.choice([2, 5])
    ending = chance.choice([{}, {}, {"drop_last": True}, {"padding": "mark"}, {"padding": "end"}])
    if chance.random() < 0.15 and not ending:
        ending = {"padding": "drop"}
    return {
        "set": name,
        "data": f"{url}/{name}" if url else str(sets[name]),
        "kind": kind,
        "shuffle": shuffle,
        "seed": chance.randrange(1 << 40),
        "size": chance.choice(SIZES),
        "epochs": chance.choice([2, 3, 4]),
        "group": group,
        "options": {**options, **ending},
    }


def no_room(error: str) -> bool:
    """Whether an error says that a cache of an explicit size has no room: under a limit, or, when it is made,
    in the file system, which another process may have filled since the limits were looked at."""
    says = "leaves" in error or ("does not fit into" in error and "are free there" in error)
    return error.startswith("fastload.errors.CacheError") and says


def damaged_by_store(error: str) -> bool:
    """Whether an error says that a store gave other bytes than those that were packed."""
    return error.startswith("fastload.errors.SampleError") and "http://" in error and "CRC-32C" in error


def away(error: str) -> bool:
    """Whether an error says that a store did not listen when it was opened, which is an error at once."""
    return error.startswith("fastload.errors.RemoteError") and "cannot be reached" in error


def new_ledger(job: dict[str, Any]) -> Ledger:
    options = job["options"]
    repeat = bool(job["shuffle"]) and not options.keys() & {"padding", "drop_last"}
    return Ledger(COUNT, job["size"], bool(options.get("drop_last")), repeat)


@dataclass
class Rank:
    """One process of a start."""

    pid: int
    log: Path
    errors: Path
    process: subprocess.Popen[bytes] | None
    since: float  # of the last batch
    lines: list[Line] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)  # other lines
    status: int | None = None  # exit status; negative: of which signal
    sent: set[int] = field(default_factory=set)  # signals
    stopped_until: float = 0.0
    read: int = 0

    def listen(self, now: float) -> int:
        """Take in what it has noted; how many batches that are."""
        if not self.log.exists():
            return 0
        with self.log.open("rb") as file:
            file.seek(self.read)
            whole = file.read().rpartition(b"\n")
        self.read += len(whole[0]) + len(whole[1])
        found = [json.loads(line) for line in whole[0].splitlines()]
        batches = [line for line in found if "ids" in line]
        self.lines += batches
        self.told += [line for line in found if "ids" not in line]
        if found:
            self.since = now
        return len(batches)

    def reap(self) -> None:
        if self.status is None:
            if self.process is not None:
                self.status = self.process.poll()
            else:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.status = os.waitstatus_to_exitcode(status) if pid else None

    def send(self, number: int) -> bool:
        """Whether it was still there."""
        if self.status is not None:
            return False
        os.kill(self.pid, number)
        self.sent.add(number)
        return True

    def what(self, name: str) -> Any:
        """What it told by this name; None: nothing."""
        return next((line[name] for line in self.told if name in line), None)

    def tail(self) -> str:
        """The end of what it wrote to standard error."""
        return self.errors.read_text(errors="replace")[-3000:] if self.errors.exists() else ""

    def stacks(self) -> str:
        """Where its threads are: Python's by faulthandler, the others as the kernel tells."""
        tasks = []
        for task in sorted(Path(f"/proc/{self.pid}/task").glob("*")):
            try:
                names = [(task / name).read_text().strip() for name in ("comm", "wchan", "syscall")]
            except OSError:
                continue
            tasks.append(" ".join(names))
        os.kill(self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGABRT)
        time.sleep(1.0)
        return "; ".join(tasks) + "\n" + self.tail()


class Start:
    """All ranks of a job, from one state on."""

    def __init__(
        self,
        job: dict[str, Any],
        world: int,
        state: dict[str, Any] | None,
        folder: Path,
        truth: Truth,
        *,
        fresh: bool = False,
        pace: float = 0.05,
    ) -> None:
        """Start them: forked from this process, or (``fresh``) as interpreters of their own."""
        folder.mkdir(parents=True)
        self.job, self.world, self.began = job, world, time.monotonic()
        self.ranks = []
        for rank in range(world):
            start = {"rank": rank, "world": world, "state": state, "pace": pace}
            start |= {"log": str(folder / f"log{rank}"), "errors": str(folder / f"errors{rank}")}
            start["store"] = str(folder / "store")
            process = None
            if fresh:
                given = json.dumps({"job": job, "start": start})
                process = subprocess.Popen([sys.executable, str(RANK), given])
                pid = process.pid
            else:
                pid = forked(_rank(job, start, truth))
            self.ranks.append(Rank(pid, Path(start["log"]), Path(start["errors"]), process, time.monotonic()))

    @property
    def living(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.status is None]

    def poll(self) -> tuple[int, list[str]]:
        """Look after the ranks: (batches since the last time, what went wrong)."""
        now, batches, bad = time.monotonic(), 0, []
        for rank in self.living:
            rank.reap()
            batches += rank.listen(now)
            if rank.status is None and rank.stopped_until and now > rank.stopped_until:
                rank.send(signal.SIGCONT)
                rank.stopped_until = 0.0
            if rank.status is None and now - rank.since > SILENCE:
                bad.append(f"hangs: nothing for {SILENCE:.0f} s, {rank.stacks()}")
                rank.send(signal.SIGKILL)
                rank.since = now
        return batches, bad

    def wrong(self, excused: Callable[[str], bool]) -> list[str]:
        """When all have ended: what went wrong, and was not to be expected."""
        bad = [line["bad"] for rank in self.ranks for line in rank.told if "bad" in line]
        disturbed = any(rank.sent & {signal.SIGKILL, signal.SIGTERM, signal.SIGABRT} for rank in self.ranks)
        for number, rank in enumerate(self.ranks):
            error, status = rank.what("error"), rank.status
            assert status is not None
            if -status in rank.sent - {signal.SIGTERM} or (status == 0 and rank.what("ended")):
                continue
            if status == -signal.SIGTERM and signal.SIGTERM in rank.sent:
                left = rank.what("preempted")
                if left is not None and rank.lines and left != rank.lines[-1]["state"]:
                    bad.append(f"rank {number} was preempted at {left}, behind {rank.lines[-1]['state']}")
                continue
            if status == FAILED and error is not None:
                torn = self.job["group"] and disturbed and any(word in error for word in TORN)
                if torn or excused(error):
                    continue
            bad.append(f"rank {number} of {self.world}: exit status {status}, {error or rank.tail()}")
        return bad


def _rank(job: dict[str, Any], start: dict[str, Any], truth: Truth) -> Callable[[], int]:
    return lambda: run(job, start, truth)
