"""One rank of a soak's job: loads, checks each batch, and notes what it was given.

It appends a line of JSON to its log for each batch (``soak_ledger.Line``), one with "bad" for what is wrong,
one with "error" where loading ended with an error, and one with "ended" at its end.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from soak_check import TRANSFORMS, Checker
from soak_sets import Truth

from fastload import Block, Cache, DataLoader, Ranks

PATIENCE = 240  # seconds that a process group waits for a rank, on a crowded machine
FAILED = 3  # exit status after an error that the log tells


class Log:
    """A file to which lines are appended, each by one call."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **line: Any) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def loader_of(job: dict[str, Any], rank: int | None = None, world: int | None = None) -> Any:
    """The loader that a job's settings (``soak_jobs.draw``) describe."""
    shares = 1 if world is None else world
    own = {} if job["group"] or world is None else {"ranks": Ranks(rank, world)}
    options = dict(job["options"])
    if isinstance(options.get("cache"), dict):
        options["cache"] = Cache(**options["cache"])
    order = Block(40, 80) if job["shuffle"] == "block" else job["shuffle"]
    return DataLoader(
        job["data"],
        job["size"] // shares,
        shuffle=order,
        transform=TRANSFORMS[job["kind"]],
        seed=job["seed"],
        **options,
        **own,
    )


def error_line(error: BaseException) -> str:
    """Its class, with the module, and its words."""
    return f"{type(error).__module__}.{type(error).__name__}: {error}"


class Planted:
    """A defect between loader and check, so that tests see the instrument find it (test_soak.py).

    "label", "pixel": one of a batch is another one. "again": a rank gets a batch a second time in place of
    the next one.
    """

    def __init__(self, defect: str, rank: int) -> None:
        self.defect, self.step, self.before = defect if rank == 0 else "", 0, None

    def __call__(self, batch: Any) -> Any:
        self.step += 1
        before, self.before = self.before, batch if self.defect else None
        if self.step != 5 or not isinstance(batch, list):
            return batch
        images, labels = batch
        if self.defect == "label":
            labels = labels.clone()
            labels[0] = (labels[0] + 1) % 3
        if self.defect == "pixel":
            images = images.clone()
            images[-1, 0, 0, 0] += 1
        return before if self.defect == "again" else [images, labels]


def epochs(job: dict[str, Any], start: dict[str, Any], loader: Any, checker: Checker, log: Log) -> None:
    """Train until the job has had its epochs."""
    step_done = join(start) if job["group"] else lambda: None
    planted = Planted(job.get("defect", ""), start["rank"])
    while loader.state_dict()["epoch"] < job["epochs"]:
        before = loader.state_dict()
        for batch in loader:
            state = loader.state_dict()
            given = planted(batch)
            if wrong := checker.wrong(given, state["epoch"]):
                log.write(bad=wrong)
            log.write(ids=checker.ids(given), state=state)
            del batch, given
            step_done()
            time.sleep(start["pace"])
        if loader.state_dict() == before:
            raise AssertionError(f"the loader gave nothing, and stays at {before}")


def join(start: dict[str, Any]) -> Any:
    """Join a process group by gloo; what to call behind each step."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{start['store']}",
        rank=start["rank"],
        world_size=start["world"],
        timeout=datetime.timedelta(seconds=PATIENCE),
    )
    value = torch.zeros(1)
    return lambda: dist.all_reduce(value)


def run(job: dict[str, Any], start: dict[str, Any], truth: Truth) -> int:
    """A rank's life.

    Args:
        job: what all starts have in common.
        start: rank, world, state, log, errors (a file), store (of the group), pace (seconds a step).
    """
    os.dup2(os.open(start["errors"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    faulthandler.enable(all_threads=True)
    warnings.simplefilter("ignore")
    log = Log(start["log"])
    os.environ.update(job.get("environment", {}))
    try:
        with loader_of(job, start["rank"], start["world"]) as loader:
            loader.on_preemption(lambda: log.write(preempted=loader.state_dict()))
            if start["state"] is not None:
                loader.load_state_dict(start["state"])
            checker = Checker(truth, job["kind"], job["seed"])
            epochs(job, start, loader, checker, log)
            log.write(cache=_counts(loader))
        log.write(ended=True)
    except Exception as error:
        log.write(error=error_line(error))
        traceback.print_exc()
        return FAILED
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
    return 0


def _counts(loader: Any) -> dict[str, int]:
    """The numbers of the loader's cache that a report adds up."""
    found = loader.stats().get("cache") or {}
    disk = found.get("disk") or {}
    numbers = {name: found.get(name, 0) for name in ("hits", "misses", "stored", "damaged", "failed")}
    return {**numbers, "disk_hits": disk.get("hits", 0), "disk_stored": disk.get("stored", 0)}


def main(argument: str) -> int:
    """As a program of its own: an interpreter that is new, as users start one."""
    given = json.loads(argument)
    torch.set_num_threads(1)
    return run(given["job"], given["start"], Truth.make())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
