"""A soak: jobs over the same data for an hour, disturbed in every way that happens to jobs, and watched.

    PYTHONPATH=.:tests/reference:tests/faults python tests/faults/soak.py \\
        '{"seconds": 3600, "seed": 1, "folder": "/tmp/x"}'

- **Jobs** (``soak_lane``, ``soak_jobs``): three lanes of jobs of 1 to 4 ranks, one of them with process
  groups and one over HTTP from a store with bad days (``soak_store``). Ranks are killed, terminated, stopped
  for seconds; each start goes on from the state of the one before, by another number of ranks.
- **A gardener** (``soak_garden``) warms, lists and clears the node cache, and takes its room away.
- **A vandal** (``soak_vandal``) damages copies of sets, and caches, and mends them.
- **What is checked**: each batch of each rank against the slow reference (``soak_check``), each epoch of each
  job that every sample came once (``soak_ledger``), two processes that live as long as the soak
  (``soak_steady``) for memory, descriptors and threads (``soak_watch``), and at the end that nothing is left:
  processes, cache, temporary files.

Once a minute it prints how far it is, at the end a JSON object; exit status 1 if anything was wrong.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from soak_garden import Command, Gardener
from soak_jobs import Rank, away, damaged_by_store, draw, no_room
from soak_lane import Lane
from soak_sets import Truth, make_sets
from soak_store import Store
from soak_vandal import Vandal
from soak_watch import judge

HERE = Path(__file__).resolve().parent
MEMORY = "64m"
SILENCE = 120.0
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
MINUTE = 60.0
LONG = 600.0  # seconds from which on memory is judged, and events come at their full distance


class Soak:
    """All that runs.

    Args:
        seconds: how long.
        seed: of everything random.
        folder: for all files; made, and removed at the end.
        defect: planted, for tests: of ``soak_rank.Planted`` or ``soak_steady``.
    """

    def __init__(self, seconds: float, seed: int, folder: str, defect: str = "") -> None:
        self.seconds, self.seed, self.defect = seconds, seed, defect
        self.folder = Path(folder).absolute() / f"soak-{os.getpid()}"
        self.folder.mkdir(parents=True)
        self.bad: list[str] = []
        self.told: set[str] = set()
        self.asked_to_stop = False
        self.began = time.monotonic()
        self.quick = min(1.0, seconds / LONG)  # a short soak has its events sooner
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)  # whom a killed rank leaves behind is ours
        self.memory = self._make_memory()
        self.disk = self._made("disk")
        os.environ.update(
            FASTLOAD_CACHE_DIR=str(self.memory),
            FASTLOAD_SETS_DIR=str(self._made("node-sets")),
            TMPDIR=str(self._made("temporary")),
            OMP_NUM_THREADS="1",
            PYTHONPATH=os.pathsep.join(map(str, (*filter(None, sys.path), HERE.parent / "reference", HERE))),
        )

    def _made(self, name: str) -> Path:
        (self.folder / name).mkdir()
        return self.folder / name

    def _make_memory(self) -> Path:
        """A small tmpfs of its own where root may mount one, else a folder in /dev/shm."""
        place = self._made("memory")
        options = ["-t", "tmpfs", "-o", f"size={MEMORY},mode=700", "tmpfs", str(place)]
        self.limited = os.geteuid() == 0 and not subprocess.run(["mount", *options], check=False).returncode
        if not self.limited:
            place = Path("/dev/shm") / self.folder.name
            place.mkdir()
        return place

    def run(self) -> dict[str, Any]:
        """The whole soak; what it found."""
        try:
            self.begin()
            self.began = time.monotonic()
            end, minute = self.began + self.seconds, self.began + MINUTE
            while time.monotonic() < end:
                self.poll()
                if self.asked_to_stop:
                    raise KeyboardInterrupt
                if time.monotonic() > minute:
                    minute += MINUTE
                    self.tell()
                time.sleep(0.05)
            self.finish()
            return self.report()
        finally:
            self.clean()
            gc.unfreeze()

    def stop(self, *_: object) -> None:
        """SIGTERM, Ctrl-C: it ends between two looks, and all files and processes go."""
        self.asked_to_stop = True

    def begin(self) -> None:
        log = self.folder / "log"
        self.sets = make_sets(self.folder / "sets", log)
        self.truth = Truth.make()
        torch.set_num_threads(1)
        gc.freeze()  # children need not copy all objects' pages
        seed, pause = self.seed, 12 * self.quick
        self.store = Store(
            self.folder / "sets", self.folder / "store.json", log, f"{seed} store", 10 * self.quick
        )
        self.steady = [self._steady(role) for role in ("trains", "opens")]
        self._wait_for_steady()
        self.gardener = Gardener(
            self.sets,
            self.memory,
            self.disk,
            self.folder / "command",
            f"{seed} gardener",
            pause=4 * self.quick,
            limited=self.limited,
        )
        self.vandal = Vandal(
            self.sets,
            self._made_in_memory("victims"),
            self.truth,
            self._made("victims"),
            f"{seed} vandal",
            pace=0.03,
            excused=self._excused,
        )
        urls = {"store": self.store.url}
        self.lanes = [
            Lane(
                name,
                self._drawer(name == "groups", urls.get(name, "")),
                self.truth,
                self._made(name),
                f"{seed} {name}",
                pause=pause,
                pace=0.1,
                excused=self._excused,
                fresh=0.05 if self.quick == 1 else 0.0,
            )
            for name in ("groups", "ranks", "store")
        ]

    def _wait_for_steady(self) -> None:
        """Until both have begun: a crowded machine takes its time to start interpreters."""
        end = time.monotonic() + SILENCE
        while not all(rank.listen(time.monotonic()) or rank.told for rank in self.steady):
            if time.monotonic() > end:
                raise RuntimeError(f"They do not begin: {[rank.tail() for rank in self.steady]}")
            time.sleep(0.05)

    def _made_in_memory(self, name: str) -> Path:
        (self.memory / name).mkdir()
        return self.memory / name

    def _drawer(self, group: bool, url: str) -> Any:
        def drawn(chance: random.Random) -> dict[str, Any]:
            job = draw(chance, self.sets, self.disk, group, url)
            return {**job, "defect": self.defect}

        return drawn

    def _excused(self, error: str, since: float) -> bool:
        """No room for a cache of an explicit size, while a foreign file took all of it; a store that gave
        other bytes, or was away when it was opened."""
        full = no_room(error) and self.gardener.was_full(since)
        return full or damaged_by_store(error) or away(error)

    def _steady(self, role: str) -> Rank:
        given = {"role": role, "sets": {name: str(path) for name, path in self.sets.items()}}
        given |= {"seed": self.seed, "disk": str(self._made(f"disk-{role}")), "url": self.store.url}
        given |= {"log": str(self.folder / f"log-{role}"), "defect": self.defect}
        given |= {"pace": 0.05 if role == "trains" else 0.1}
        if self.quick < 1:
            given["pace"] /= 10
        errors = self.folder / f"errors-{role}"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "soak_steady.py"), json.dumps(given)], stderr=file
            )
        return Rank(process.pid, Path(given["log"]), errors, process, time.monotonic())

    def poll(self, stopping: bool = False) -> None:
        for lane in self.lanes:
            if not lane.stopped:
                lane.poll(stopping)
        if not self.vandal.stopped:
            self.vandal.poll(stopping)
        self.gardener.poll(stopping)
        now = time.monotonic()
        for rank in self.steady:
            if rank.status is None:
                rank.reap()
                rank.listen(now)
                if rank.status is not None:
                    self.bad.append(f"steady: ended, {rank.what('error')}, {rank.tail()}")
                if now - rank.since > SILENCE:
                    self.bad.append(f"steady: hangs, nothing for {SILENCE:.0f} s, {rank.stacks()}")
                    rank.send(signal.SIGKILL)
                    rank.since = now

    def counts(self) -> Counter[str]:
        """What happened, all together."""
        found: Counter[str] = Counter()
        for part in (*self.lanes, self.gardener):
            found += part.counts
        found.update({f"vandal: {name}": count for name, count in self.vandal.counts.items()})
        for rank in self.steady:
            batches = [line["batch"] for line in rank.told if "batch" in line]
            found.update({"batches": len(batches), "steady batches": len(batches)})
        return found

    def found(self) -> list[str]:
        """All that is wrong so far."""
        parts = [self.bad, *(lane.bad for lane in self.lanes), self.gardener.bad, self.vandal.bad]
        parts += [[f"steady: {line['bad']}" for line in rank.told if line.get("bad")] for rank in self.steady]
        return [text for part in parts for text in part]

    def tell(self) -> None:
        counts = self.counts()
        names = ("batches", "samples", "epochs", "jobs", "starts", "killed", "terminated", "stopped", "warm")
        names += ("cache clear", "memory made full", "vandal: victims", "vandal: mended")
        told = ", ".join(f"{counts[name]} {name}" for name in names)
        minutes = (time.monotonic() - self.began) / MINUTE
        sys.stdout.write(f"{minutes:.0f} min: {told}; {len(self.found())} bad\n")
        for text in self.found():
            if text not in self.told:
                self.told.add(text)
                sys.stdout.write(f"BAD after {minutes:.1f} min: {text}\n")
        sys.stdout.flush()

    def finish(self) -> None:
        """End everything, and look what is left."""
        end = time.monotonic() + SILENCE
        while not (self.vandal.stopped and all(lane.stopped for lane in self.lanes)):
            self.poll(stopping=True)
            if time.monotonic() > end:
                self.bad.append(f"end: not reached in {SILENCE:.0f} s")
                break
            time.sleep(0.02)
        self.watched = {}
        for role, rank in zip(("trains", "opens"), self.steady, strict=True):
            assert rank.process is not None
            if rank.send(signal.SIGTERM) and rank.process.wait(SILENCE):
                self.bad.append(f"{role}: exit status {rank.process.returncode}, {rank.tail()}")
            rank.listen(time.monotonic())
            notes = [line["note"] for line in rank.told if "note" in line]
            self.watched[role], bad = judge(role, notes, self.seconds >= LONG)
            self.bad += bad
        self.weather = self.store.counts()
        self.store.stop()
        self._look_what_is_left()

    def _look_what_is_left(self) -> None:
        end = time.monotonic() + 60  # torch's workers look every few seconds whether their parent lives
        while (left := _children()) and time.monotonic() < end:
            time.sleep(0.1)
        if left:
            self.bad.append(f"end: processes are left, {left}")
        for place in ([], ["--dir", str(self.disk)], ["--dir", str(self.folder / "disk-opens")]):
            command = Command(["cache", "clear", "--json", *place], self.folder / "command")
            while not command.poll():
                time.sleep(0.02)
            if wrong := command.wrong([0]):
                self.bad.append(wrong)
        for folder in (self.memory, self.disk, self.folder / "disk-opens", self.folder / "temporary"):
            files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
            if files:
                self.bad.append(f"end: left in {folder.name}, {[str(p.relative_to(folder)) for p in files]}")

    def report(self) -> dict[str, Any]:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return {
            "instrument": "soak",
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.began),
            "cpu_seconds": round(sum(one.ru_utime + one.ru_stime for one in used)),
            "points": dict(sorted(self.counts().items())),
            "store": self.weather,
            "watched": self.watched,
            "bad": [list(text.partition(": ")[::2]) for text in self.found()],
        }

    def clean(self) -> None:
        """No process and no file stays, whatever happened."""
        while left := _children():
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            for _ in left:
                os.waitpid(-1, 0)
        if self.limited:
            subprocess.run(["umount", "-l", str(self.memory)], check=True)
        else:
            shutil.rmtree(self.memory)
        shutil.rmtree(self.folder)


def _children() -> list[int]:
    """This process's children that live; those that have ended are reaped."""
    own = os.getpid()
    found = [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]
    return [pid for pid in found if os.waitpid(pid, os.WNOHANG)[0] == 0]


def main(argument: str) -> int:
    # Before any file is mapped: faulthandler's report of a SIGBUS that fastload would have met reads the
    # stacks of threads that run on, which may end the process (csrc/core/io/guarded_range.h).
    faulthandler.enable()
    soak = Soak(**json.loads(argument))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, soak.stop)
    found = soak.run()
    sys.stdout.write(json.dumps(found) + "\n")
    return int(bool(found["bad"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
