"""Batches of many fields against images and labels of the same pictures.

    python benchmarks/bench_fields.py IMAGE_FOLDER

The pictures are packed twice: with a label, and with a label, 4 scalars, 0 to 13 rows of 5 floats and a
caption. Loaders of both take turns (A B, then B A), each measured from its third batch to the end of an
epoch. bench_columns.py opens large sets.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.machine import facts
from harness.measure import MINIMUM_REPEATS, check_repeats, summarize, table
from sets.images import pictures_in

import fastload
from fastload import Array, DataLoader, Image, Label, Scalar, Text
from fastload import transforms as T

SCALARS = {f"number{i}": Scalar("float32") for i in range(4)}
PLAIN = {"image": Image(), "label": Label()}
RICH = {**PLAIN, **SCALARS, "rows": Array("float32", (None, 5)), "caption": Text()}


class Pictures:
    """The samples of a folder of images, with values for the other fields."""

    def __init__(self, folder: Path, count: int, names: Sequence[str]) -> None:
        found = pictures_in(folder)
        self._paths = [found[i % len(found)] for i in range(count)]
        self._names = names

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> dict[str, Any]:
        rng = np.random.default_rng(number)
        values: dict[str, Any] = {"image": self._paths[number], "label": number % 10}
        values |= {name: float(number) for name in SCALARS}
        values["rows"] = rng.normal(size=(number % 14, 5)).astype(np.float32)
        values["caption"] = "a photograph of some things, " * (1 + number % 4)
        return {name: values[name] for name in self._names}


def packed(folder: Path, work: Path, count: int) -> tuple[Path, Path]:
    """Both sets."""
    for name, schema in (("plain", PLAIN), ("rich", RICH)):
        fastload.pack(Pictures(folder, count, list(schema)), work / name, schema, num_proc=1, entries=None)
    return work / "plain", work / "rich"


def turns(sets: Sequence[Path], batch_size: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Images a second and a CPU second of each set, in turn."""
    speeds: dict[str, list[tuple[float, float]]] = {path.name: [] for path in sets}
    for turn in range(rounds):
        for path in sets if turn % 2 else sets[::-1]:
            speeds[path.name].append(speed(path, batch_size))
    return speeds


def speed(path: Path, batch_size: int) -> tuple[float, float]:
    """Images a second and a CPU second, of a loader that has begun."""
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    options: dict[str, Any] = {"transform": transform, "shuffle": True, "seed": 0, "drop_last": True}
    with DataLoader(path, batch_size, cache="off", **options) as loader:
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        began, cpu = time.perf_counter(), time.process_time()
        count = batch_size * sum(1 for _ in iterator)
        return count / (time.perf_counter() - began), count / (time.process_time() - cpu)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--count", type=int, default=4096, help="number of samples; the images are repeated")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=max(7, MINIMUM_REPEATS))
    options = parser.parse_args(arguments)
    check_repeats(options.repeats)
    print(f"{facts()['cpu']}, {facts()['cores']} cores")
    with tempfile.TemporaryDirectory() as work:
        sets = packed(options.images, Path(work), options.count)
        speeds = turns(sets, options.batch_size, options.repeats)
        for number, unit in enumerate(("images/s", "images a CPU second")):
            taken = {name: [one[number] for one in found] for name, found in speeds.items()}
            ratios = [rich / plain for rich, plain in zip(taken["rich"], taken["plain"], strict=True)]
            print(table(("set", unit, "lowest", "highest"), [(n, *_shown(v)) for n, v in taken.items()]))
            print(f"rich / plain: {summarize(ratios).text(3)}")


def _shown(values: Sequence[float]) -> tuple[str, ...]:
    found = summarize(values)
    return tuple(f"{value:.0f}" for value in (found.median, found.low, found.high))


if __name__ == "__main__":
    sys.exit(main())
