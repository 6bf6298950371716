"""The two processes of a soak that live as long as it: one trains on and on, one opens and closes loaders.

soak_steady.py '{"role": "trains", "sets": {...}, "log": "...", "seed": 1, ...}'; ends at SIGTERM, or after
so many "rounds".
"""

from __future__ import annotations

import gc
import json
import random
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from soak_check import Checker
from soak_jobs import away, damaged_by_store, draw, no_room
from soak_ledger import BLANK
from soak_rank import Log, error_line, loader_of
from soak_sets import COUNT, Truth
from soak_watch import look

from fastload.errors import FastloadError

QUIET = 0.5  # seconds between two notes, at least


class Notes:
    """The log, and the process's looks at itself."""

    def __init__(self, log: Log, pause: float) -> None:
        self.log, self.pause, self.round, self.last = log, pause, 0, 0.0

    def quiet(self) -> None:
        """A round is at its end, and nothing is in work."""
        self.round += 1
        if time.monotonic() - self.last > self.pause:
            self.last = time.monotonic()
            self.log.write(note=look(self.round))


class Stop(BaseException):
    """SIGTERM came."""


def stop(*_: object) -> None:
    raise Stop


def trains(given: dict[str, Any], truth: Truth, notes: Notes) -> None:
    """One loader, epoch after epoch, each batch checked, each epoch counted."""
    chance = random.Random(f"{given['seed']} trains")
    options = {"num_workers": 2, "cache": "4MB"}
    job = {"data": given["sets"]["arrow"], "kind": "crop-float", "shuffle": True, "size": 12}
    job |= {"seed": chance.randrange(1 << 40), "group": False, "options": options}
    checker, kept = Checker(truth, job["kind"], job["seed"]), []
    with loader_of(job) as loader:
        for epoch in range(given.get("rounds", 1 << 40)):
            seen: list[int] = []
            for batch in loader:
                seen += checker.ids(batch)
                notes.log.write(batch=len(batch[1]), bad=checker.wrong(batch, epoch))
                if given.get("defect") == "batches kept":
                    kept.append(batch)
                time.sleep(given["pace"])
            batch = None
            if sorted(seen) != list(range(COUNT)):
                notes.log.write(bad=f"epoch {epoch} has samples {sorted(seen)}")
            notes.quiet()


def opens(given: dict[str, Any], truth: Truth, notes: Notes) -> None:
    """Loaders of all kinds, each for some batches, left by close() or by the last reference, in mid-epoch."""
    chance, kept = random.Random(f"{given['seed']} opens"), []
    sets = {name: Path(path) for name, path in given["sets"].items()}
    for _ in range(given.get("rounds", 1 << 40)):
        url = given["url"] if chance.random() < 0.05 else ""
        job = draw(chance, sets, Path(given["disk"]), False, url)
        try:
            loader = opened(job, truth, chance, notes)
        except (FastloadError, OSError) as error:
            words = error_line(error)
            if not (no_room(words) or damaged_by_store(words) or away(words)):
                raise
            notes.log.write(words=words)
            loader = None
        if given.get("defect") == "loaders kept":
            kept.append(loader)
        elif loader is not None and chance.random() < 0.5:
            loader.close()
        loader = None
        notes.quiet()
        time.sleep(given["pace"])


def opened(job: dict[str, Any], truth: Truth, chance: random.Random, notes: Notes) -> Any:
    """A loader that has given some batches, which were checked."""
    loader = loader_of(job)
    checker, iterator = Checker(truth, job["kind"], job["seed"]), iter(loader)
    for _ in range(chance.choice([0, 1, 2, 5])):
        batch = next(iterator)
        wrong = checker.wrong(batch, 0)
        samples = sum(one != BLANK for one in checker.ids(batch))
        notes.log.write(batch=samples, bad=wrong and f"{job}: {wrong}")
    return loader


def main(argument: str) -> int:
    given = json.loads(argument)
    signal.signal(signal.SIGTERM, stop)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    log = Log(given["log"])
    try:
        log.write(began=True)
        truth = Truth.make()
        gc.freeze()  # what is here stays, and need not be looked at behind each round
        {"trains": trains, "opens": opens}[given["role"]](
            given, truth, Notes(log, 0.0 if "rounds" in given else QUIET)
        )
    except Stop:
        log.write(ended=True)
    except Exception as error:
        log.write(error=error_line(error))
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
