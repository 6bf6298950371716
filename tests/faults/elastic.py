"""A run of weeks in an hour: eight gloo processes whose world, mixture and sets change count every sample.

    python elastic.py '{"seconds": 3600, "seed": 1, "folder": "build/elastic"}'

The coordinator forms one world of some of the processes after another, gives each a few steps, and kills some
of them meanwhile. The sets are read from a web server that fails. Between worlds the mixture gets other
weights, loses or gains a source, or a source has grown. A step counts if its all-reduce ended in any rank
that lives: as in torchft, what was not committed comes again. In the end each pass of each source must have
every row once. The last line of the output is JSON: ``{"points": {...}, "bad": [...]}``.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist
from elastic_rank import PATIENCE, mix_options
from elastic_sets import MORE, make_sources, serve

import fastload

HERE = Path(__file__).resolve().parent
RANKS = 8
ANSWER_SECONDS = 240.0
Seen = tuple[int, int, int]  # source, row, checksum of the pixels


class Member:
    """One process, and what it has been told."""

    def __init__(self, folder: Path, number: int, port: int) -> None:
        self.log = folder / f"rank{number}.log"
        self._errors = open(folder / f"rank{number}.err", "w", encoding="utf-8")  # noqa: SIM115
        command = [sys.executable, str(HERE / "elastic_rank.py"), str(port), str(self.log)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, bufsize=1
        )
        self._read = 0

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def tell(self, given: dict[str, Any]) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(given) + "\n")
        self.process.stdin.flush()

    def answer(self, until: float) -> dict[str, Any] | None:
        """Its answer; None: it died. TimeoutError: it hangs."""
        assert self.process.stdout is not None
        while time.monotonic() < until:
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                line = self.process.stdout.readline()
                return json.loads(line) if line.endswith("\n") else None
        raise TimeoutError(f"{self.log.stem} did not answer")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def noted(self, world: int) -> list[list[Any]]:
        """What it noted in a world, in order. A last line may be cut off by a kill."""
        if not self.log.exists():
            return []
        lines = self.log.read_text().splitlines(keepends=True)
        whole = [json.loads(line) for line in lines[self._read :] if line.endswith("\n")]
        return [line for line in whole if line[0] == world]

    def forget(self) -> None:
        """Leave out what was noted until now from later reads."""
        if self.log.exists():
            self._read = len(self.log.read_text().splitlines())


@dataclass
class Ledger:
    """The committed samples, in order, and what is wrong with them."""

    samples: list[Seen] = field(default_factory=list)
    points: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    #: For each source the walks that it has begun: a walk begins with the source, or when it has grown.
    walks: dict[int, list[tuple[int, list[int]]]] = field(default_factory=dict)

    def begin(self, source: int, rows: int) -> None:
        """A source begins a walk over ``rows`` rows."""
        self.walks.setdefault(source, []).append((rows, []))

    def add(self, seen: Seen, truth: dict[tuple[int, int], int]) -> None:
        """Count a sample."""
        source, row, checksum = seen
        if truth.get((source, row)) != checksum:
            self.bad.append(f"source {source}, row {row}: other pixels, or no such row")
        self.points["samples"] += 1
        if source not in self.walks:
            self.bad.append(f"source {source} gave row {row} and is not in the mix")
            return
        self.walks[source][-1][1].append(row)

    def judge(self) -> None:
        """Each pass of each walk has every row once."""
        for source, walks in self.walks.items():
            for rows, given in walks:
                for first in range(0, len(given), rows):
                    one = given[first : first + rows]
                    if len(set(one)) != len(one) or not set(one) <= set(range(rows)):
                        self.bad.append(
                            f"source {source}: pass {first // rows} over {rows} rows repeats some"
                        )
                    self.points["passes"] += len(one) == rows


class Soak:
    """See the module."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.ledger = Ledger()
        self.sources, self.truth = make_sources(folder / "sets")
        self.proxy, self.url = serve(folder / "sets", seed)
        self._server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        self.members: list[Member] = []
        self._started = self.world = 0
        self.names = ["a", "b", "c"]
        self.job = self._job({"weights": [3, 2, 1], "num_samples": 600})
        self.state: dict[str, Any] | None = None
        for name in self.names:
            self._begin(name)

    def _begin(self, name: str) -> None:
        source = self.sources[name]
        self.ledger.begin(source.number, source.rows)

    def _job(self, options: dict[str, Any]) -> dict[str, Any]:
        sets = [f"{self.url}/{name}" for name in self.names]
        return {"sets": sets, "options": options, "storage": {}, "number": self.ledger.points["mixtures"]}

    def fill(self) -> None:
        """Start processes in place of those that died."""
        self.members, new = [member for member in self.members if member.is_alive], []
        while len(self.members) < RANKS:
            self.members.append(Member(self.folder, self._started, self._server.port))
            self._started += 1
            self.ledger.points["processes"] += 1
            new.append(self.members[-1])
        for member in new:
            if member.answer(time.monotonic() + ANSWER_SECONDS) is None:
                self.ledger.bad.append(f"{member.log.stem} does not start: see its .err file")

    def run_a_world(self) -> None:
        """Form a world of some of the processes, let it make steps, perhaps kill some of them; count."""
        self.fill()
        size = self.chance.randint(1, RANKS)
        chosen, steps = self.chance.sample(self.members, size), self.chance.randint(1, 40)
        self.world += 1
        given = {"world": self.world, "size": size, "steps": steps, "job": self.job, "state": self.state}
        for rank, member in enumerate(chosen):
            member.tell({**given, "rank": rank})
        dying = []
        if size > 1 and self.chance.random() < 0.25:
            dying = self.chance.sample(chosen, self.chance.randint(1, min(2, size - 1)))
            time.sleep(self.chance.random() * 2.0)
            for member in dying:
                member.kill()
                self.ledger.points["kills"] += 1
        until = time.monotonic() + ANSWER_SECONDS
        answers = {member: member.answer(until) for member in chosen if member not in dying}
        found = [answer for answer in answers.values() if answer is not None]
        for member, answer in answers.items():
            if answer is None:
                self.ledger.bad.append(f"{member.log.stem} ended by itself: see its .err file")
            elif answer["failure"] and not dying:
                self.ledger.bad.append(f"world {self.world}, {member.log.stem}: {answer['failure']}")
        done = max((answer["done"] for answer in found), default=0)
        self._commit(chosen, done, found)

    def _commit(self, chosen: list[Member], done: int, found: list[dict[str, Any]]) -> None:
        notes: dict[tuple[int, int], dict[int, list[list[int]]]] = {}
        for member in chosen:
            for _, rank, epoch, position, seen in member.noted(self.world):
                notes.setdefault((epoch, position), {})[rank] = seen
            member.forget()
        places = sorted(notes)[:done]
        if len(places) < done:
            self.ledger.bad.append(f"world {self.world}: {done} steps, {len(places)} noted")
        for place in places:
            if sorted(notes[place]) != list(range(len(chosen))):
                self.ledger.bad.append(f"world {self.world}, {place}: noted by {sorted(notes[place])} only")
            for _, seen in sorted(notes[place].items()):
                for label, checksum in seen:
                    self.ledger.add((label // MORE, label % MORE, checksum), self.truth)
        ahead = [answer for answer in found if answer["done"] == done]
        if done:
            states = {json.dumps(answer["state"], sort_keys=True) for answer in ahead}
            if len(states) != 1:
                self.ledger.bad.append(f"world {self.world}: ranks that made {done} steps have other states")
            self.state = ahead[0]["state"]
            self._compare(ahead[0]["stats"])
        self.ledger.points["worlds"] += 1
        self.ledger.points["steps"] += done

    def _compare(self, stats: dict[str, Any]) -> None:
        """What the loader says of its mixture is what was counted."""
        for name, told in zip(self.names, stats["mixture"], strict=True):
            counted = len(self.ledger.walks[self.sources[name].number][-1][1])
            if told["samples"] != counted:
                self.ledger.bad.append(f"stats() says {told['samples']} of {name}, counted: {counted}")

    def change_the_mixture(self) -> None:
        """Other weights, a source more or fewer, a schedule; or a source that has grown."""
        if self.state is None:
            return
        old = self._mix()
        kind = self.chance.choice(["weights", "schedule", "fewer", "more", "grown"])
        grown = ""
        absent = [name for name in self.sources if name not in self.names]
        if kind == "fewer" and len(self.names) > 1:
            gone = self.chance.choice(self.names)
            self.names.remove(gone)
        elif kind == "more" and absent:
            self.names.insert(self.chance.randint(0, len(self.names)), self.chance.choice(absent))
            grown = next(name for name in self.names if name in absent)
        elif kind == "grown":
            grown = self.chance.choice(self.names)
            self.sources[grown].append(self.chance.randint(1, 9), self.truth)
        weights = [self.chance.randint(1, 9) for _ in self.names]
        options: dict[str, Any] = {"weights": weights, "num_samples": self.chance.randint(300, 900)}
        if kind == "schedule":
            later = [self.chance.randint(0, 9) for _ in self.names[:-1]] + [1]
            count = self.ledger.points["samples"] + self.chance.randint(0, 2000)
            options["weights"] = {"at": [[0, weights], [count, later]], "ramp": self.chance.choice([0, 500])}
        self.ledger.points["mixtures"] += 1
        self.ledger.points[kind] += 1
        self.job = self._job(options)
        self.state = fastload.migrate(self.state, self._mix(), old=old).state
        if grown:
            self._begin(grown)

    def _mix(self) -> Any:
        return fastload.mix(self.job["sets"], **mix_options(self.job))

    def close(self) -> None:
        for member in self.members:
            member.kill()
        self.proxy.kill()
        self.proxy.wait()


def main() -> int:
    """Run for the given time; 1 if anything was bad."""
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    soak = Soak(folder, given["seed"])
    end = time.monotonic() + given["seconds"]
    try:
        while time.monotonic() < end and not soak.ledger.bad:
            soak.run_a_world()
            if soak.chance.random() < 0.2:
                soak.change_the_mixture()
    finally:
        soak.close()
    soak.ledger.judge()
    sys.stdout.write(json.dumps({"points": soak.ledger.points, "bad": soak.ledger.bad}) + "\n")
    if not soak.ledger.bad:
        shutil.rmtree(folder)
    return int(bool(soak.ledger.bad))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
