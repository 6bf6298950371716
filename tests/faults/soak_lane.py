"""A lane of a soak: one job after the other, each started again and again until it has had its epochs."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak_jobs import WORLDS, Start, new_ledger
from soak_sets import Truth

#: What happens to a start of several ranks, or of one; "nothing" lets it go on.
EVENTS = ("kill", "kill", "term", "term-all", "stop", "stop", "kill-all", "nothing", "nothing")


class Lane:
    """Runs jobs and disturbs them.

    Args:
        name: in messages.
        draw: gives the settings of the next job.
        seed: of what happens to it.
        pause: mean seconds between two events.
        excused: whether an error is what the job had to expect, by its text and its beginning.
    """

    def __init__(
        self,
        name: str,
        draw: Callable[[random.Random], dict[str, Any]],
        truth: Truth,
        folder: Path,
        seed: str,
        *,
        pause: float,
        pace: float,
        excused: Callable[[str, float], bool],
        worlds: tuple[int, ...] = WORLDS,
        fresh: float = 0.15,
    ) -> None:
        self.name, self.draw, self.truth, self.folder = name, draw, truth, folder
        self.chance = random.Random(seed)
        self.pause, self.pace, self.excused, self.worlds, self.fresh = pause, pace, excused, worlds, fresh
        self.counts: Counter[str] = Counter()
        self.bad: list[str] = []
        self.number = 0
        self.ending = 0.0  # when the rest of a disturbed start is ended
        self._next_job()

    def _next_job(self) -> None:
        self.job = self.draw(self.chance)
        self.ledger = new_ledger(self.job)
        self.counts["jobs"] += 1
        self._start()

    def _start(self) -> None:
        self.number += 1
        self.counts["starts"] += 1
        fresh = self.chance.random() < self.fresh
        self.counts["interpreters"] += fresh
        self.counts["resumed"] += self.ledger.state is not None
        self.counts["resumed in mid-epoch"] += self.ledger.at[1] > 0
        world = self.chance.choice(self.worlds)
        self.place = self.folder / f"start{self.number}"
        self.counts[f"ranks {world}"] += 1
        self.start = Start(
            self.job, world, self.ledger.state, self.place, self.truth, fresh=fresh, pace=self.pace
        )
        self.due = time.monotonic() + self.chance.expovariate(1 / self.pause)
        self.ending = 0.0

    def poll(self, stopping: bool = False) -> None:
        """Look after the job; start what is next unless the soak is at its end."""
        batches, bad = self.start.poll()
        self.counts["batches"] += batches
        self._say(bad)
        now = time.monotonic()
        if not self.start.living:
            self._finish(stopping)
        elif self.ending and now > self.ending:
            for rank in self.start.living:
                rank.send(signal.SIGKILL)
        elif not self.ending and any(rank.status for rank in self.start.ranks):
            self.ending = now + self.chance.uniform(0.0, 3.0)  # as an agent ends the others when one is gone
        elif stopping and not self.ending:
            self.ending = now + 5.0
            self._disturb("term-all")
        elif now > self.due and not self.ending:
            self.due = now + self.chance.expovariate(1 / self.pause)
            self._disturb(self.chance.choice(EVENTS))

    def _disturb(self, event: str) -> None:
        living = self.start.living
        victim = self.chance.choice(living)
        if event == "stop" and not victim.stopped_until:
            victim.stopped_until = time.monotonic() + self.chance.uniform(0.2, 4.0)
            self.counts["stopped"] += victim.send(signal.SIGSTOP)
        elif event in ("kill", "term", "kill-all", "term-all"):
            number = signal.SIGKILL if event.startswith("kill") else signal.SIGTERM
            for rank in living if event.endswith("all") else [victim]:
                if rank.stopped_until:
                    rank.send(signal.SIGCONT)
                    rank.stopped_until = 0.0
                self.counts["killed" if number == signal.SIGKILL else "terminated"] += rank.send(number)

    def _finish(self, stopping: bool) -> None:
        """All ranks have ended."""
        self._say(self.start.wrong(lambda error: self.excused(error, self.start.began)))
        for rank in self.start.ranks:
            for name, count in (rank.what("cache") or {}).items():
                self.counts[f"cache {name}"] += count
            self.counts["errors in words"] += rank.what("error") is not None
        before, epochs, samples = len(self.ledger.bad), self.ledger.epochs, self.ledger.samples
        self.ledger.take([rank.lines for rank in self.start.ranks])
        self._say(self.ledger.bad[before:])
        self.counts["epochs"] += self.ledger.epochs - epochs
        self.counts["samples"] += self.ledger.samples - samples
        shutil.rmtree(self.place)
        done = self.ledger.at[0] >= self.job["epochs"]
        self.counts["jobs ended"] += done
        if stopping:
            self.stopped = True
        elif done:
            self._next_job()
        else:
            self._start()

    stopped = False

    def _say(self, bad: list[str]) -> None:
        where = f"{self.name}, start {self.number}"
        self.bad += [f"{where}: {text}, of {self.job}" for text in bad]
