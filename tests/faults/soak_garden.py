"""Who works on the node cache while jobs use it: fills, lists and clears it, and takes its room away."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from soak_sets import FIELDS, forked

from fastload.cli import main as command_line

DEADLINE = 120.0  # seconds for a command, on a crowded machine
NO_ROOM = (1, 3, 4)  # exit codes of warm: an error (no room), a part is warm, some records could not be put
PARTLY = 3
FIRST = 5.0  # seconds until the first work


class Command:
    """``fastload ...`` in a process of its own."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self.words, self.log, self.began = list(words), log, time.monotonic()
        self.killed = self.hangs = False
        log.unlink(missing_ok=True)
        self.pid = forked(lambda: command_line(self.words), log)
        self.code: int | None = None

    def poll(self) -> bool:
        """Whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        if self.code is None and time.monotonic() - self.began > DEADLINE:
            self.hangs = True
            os.kill(self.pid, signal.SIGKILL)
        return self.code is not None

    def wrong(self, codes: Sequence[int]) -> str:
        """What is wrong with its end, or nothing."""
        if self.hangs:
            return f"fastload {' '.join(self.words)} hangs: no end in {DEADLINE:.0f} s"
        if self.code in codes or self.killed:
            return ""
        return f"fastload {' '.join(self.words)}: exit code {self.code}: {self.log.read_text()[-2000:]}"


class Gardener:
    """Works on the cache in ``memory``, one thing at a time.

    Args:
        limited: whether ``memory`` is a file system of its own, which may be filled.
    """

    def __init__(
        self,
        sets: dict[str, Path],
        memory: Path,
        disk: Path,
        log: Path,
        seed: str,
        *,
        pause: float,
        limited: bool,
    ) -> None:
        self.sets, self.memory, self.disk, self.log = sets, memory, disk, log
        self.chance, self.pause, self.limited = random.Random(seed), pause, limited
        self.counts: Counter[str] = Counter()
        self.bad: list[str] = []
        self.command: Command | None = None
        self.codes: Sequence[int] = (0,)
        self.kill_at = 0.0
        self.foreign: Path | None = None  # what takes all the room
        self.freed = -1.0  # when it went away the last time
        self.due = time.monotonic() + FIRST  # when what starts with it has its cache
        self.until = 0.0

    def was_full(self, since: float) -> bool:
        """Whether the memory was full at any time since then."""
        return self.foreign is not None or self.freed >= since

    def poll(self, stopping: bool = False) -> None:
        now = time.monotonic()
        if self.foreign is not None and (now > self.until or stopping):
            self.foreign.unlink(missing_ok=True)
            self.foreign, self.freed = None, now
        if self.command is not None:
            if self.kill_at and now > self.kill_at:
                self.kill_at, self.command.killed = 0.0, True
                os.kill(self.command.pid, signal.SIGKILL)
                self.counts["commands killed"] += 1
            if self.command.poll():
                codes = self.codes
                if self.command.words[0] == "warm" and self.was_full(self.command.began):
                    codes = (*codes, *NO_ROOM)
                if wrong := self.command.wrong(codes):
                    self.bad.append(wrong)
                self.command, self.kill_at = None, 0.0
        elif now > self.due and not stopping:
            self.due = now + self.chance.expovariate(1 / self.pause)
            self.chance.choice(self._works())()

    def _works(self) -> list[Callable[[], None]]:
        works = [self._list, self._clear, self._clear, self._clear, self._warm, self._warm, self._warm]
        return [*works, self._fill] if self.limited and self.foreign is None else works

    def _run(self, name: str, words: Sequence[str], codes: Sequence[int] = (0,)) -> None:
        self.counts[name] += 1
        self.command, self.codes = Command(words, self.log), codes

    def _list(self) -> None:
        where = ["--dir", str(self.disk)] if self.chance.random() < 0.3 else []
        self._run("cache ls", ["cache", "ls", "--json", *where])

    def _clear(self) -> None:
        if self.chance.random() < 0.4:
            self._run("cache clear", ["cache", "clear", "--json", "--dir", str(self.disk)])
        elif self.chance.random() < 0.3:  # one that is in use is told by exit code 1
            self._run("cache clear", ["cache", "clear", "--json", str(self._set())], (0, 1))
        else:
            self._run("cache clear", ["cache", "clear", "--json"])

    def _warm(self) -> None:
        name = self.chance.choice(list(self.sets))
        words = ["warm", str(self.sets[name]), "--to", str(self.memory), "--threads", "2", "--json"]
        if self.chance.random() < 0.3:
            words += ["--limit", "200KB"]
        if name in ("arrow", "lmdb", "hdf5") and self.chance.random() < 0.4:
            words += ["--coefficients"]
        elif name != FIELDS and self.chance.random() < 0.2:
            words += ["--decoded", "full"]
        self._run("warm", words, (0, PARTLY))
        if self.chance.random() < 0.2:
            self.kill_at = time.monotonic() + self.chance.uniform(0.0, 0.4)

    def _fill(self) -> None:
        """A foreign file takes all the room that is left."""
        self.counts["memory made full"] += 1
        self.foreign = self.memory / "foreign"
        self.until = time.monotonic() + self.chance.uniform(0.5, 4.0)
        with contextlib.suppress(OSError), self.foreign.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass

    def _set(self) -> Path:
        return self.chance.choice(list(self.sets.values()))
