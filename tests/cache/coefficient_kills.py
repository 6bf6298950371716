"""Kills ranks and fillers of a cache of coefficients at random, and starts the next one each time.

Run as a program: coefficient_kills.py DATASET MEMORY SEED KILLS, with DATASET of JPEGs whose labels are their
numbers and MEMORY a folder in tmpfs. Prints what was found when processes were killed, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cache_kills import ANSWERS, cache_files, entries, ready_records
from cache_sets import whole_file
from epochs import all_batches, same

from fastload import Cache, DataLoader, PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.cli import main as command_line

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
ROUNDS = 20  # epochs in which all is there surely
SECONDS = 100.0


def loader(dataset: Path, size: str) -> DataLoader:
    settings: dict[str, Any] = {"shuffle": True, "seed": 1, "num_workers": 2, "transform": CROP}
    return DataLoader(dataset, 8, cache=Cache(size, format="coefficients"), **settings)


def rank(dataset: Path, truth: list[list[Any]]) -> None:
    """Epochs until all is there, each compared with what there is without a cache."""
    with loader(dataset, "20MB") as made:
        for epoch in range(ROUNDS):
            made.set_epoch(epoch % len(truth))
            assert same(all_batches(made), truth[epoch % len(truth)]), f"wrong batches in epoch {epoch}"
            stats = made.stats()["cache"]
            if epoch >= len(truth) and stats["ready_records"] >= stats["room_records"]:
                return
        raise AssertionError(f"not all is there after {ROUNDS} epochs: {stats}")


def filler(dataset: Path, _: list[list[Any]]) -> None:
    """``fastload warm --coefficients``."""
    given = ["warm", str(dataset), "--coefficients", "--limit", "20MB", "--threads", "2", "--json"]
    assert command_line(given) == 0


def forked(work: Callable[[], None]) -> int:
    """The number of a process that does it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def ended_well(child: int) -> bool:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def wrong_records(memory: Path, dataset: PackedDataset) -> list[int]:
    """Records that are marked as ready, and neither are the JPEG's coefficients nor the JPEG."""
    wrong = []
    for path in cache_files(memory):
        table, data = entries(path), whole_file(path)
        for number in np.flatnonzero(table["state"]).tolist():
            begin, length = int(table["offset"][number]), int(table["stored"][number])
            jpeg = dataset.read(number)
            if data[begin : begin + length].tobytes() not in (
                _C.to_coefficients(np.frombuffer(jpeg, np.uint8), "fast"),
                jpeg,
            ):
                wrong.append(number)
    return wrong


def main(folder: Path, memory: Path, seed: int, kills: int) -> None:
    os.environ["FASTLOAD_CACHE_DIR"] = str(memory)
    chance, found, dataset = random.Random(seed), Counter[str](), PackedDataset(folder)
    with DataLoader(folder, 8, shuffle=True, seed=1, num_workers=1, transform=CROP, cache="off") as made:
        truth = [all_batches(made) for _ in range(2)]
    roles = {"rank": rank, "filler": filler}
    for _ in range(kills):
        if chance.random() < 0.5:
            assert command_line(["cache", "clear", "--json"]) == 0
        names = chance.choice([["rank"], ["filler"], ["rank", "filler"], ["rank", "rank"]])
        children = [forked(lambda name=name: roles[name](folder, truth)) for name in names]  # type: ignore[misc]
        enough, late = chance.randrange(len(dataset)), time.monotonic() + chance.uniform(0, 0.3)
        while ready_records(memory) < enough and time.monotonic() < late:
            time.sleep(0.0005)
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)
        ready = ready_records(memory)
        state = {-1: "no file", 0: "none", len(dataset): "all"}.get(ready, "some")
        found[f"{names[0]}: {state}"] += 1
        assert all(ended_well(child) for child in children[1:]), f"{names}: the other did not end well"
        assert not wrong_records(memory, dataset)
        assert ended_well(forked(lambda: rank(folder, truth))), "the next start did not end well"
        assert ready_records(memory) == len(dataset)
    os.write(ANSWERS, json.dumps(found).encode())


if __name__ == "__main__":
    os.dup2(1, ANSWERS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
