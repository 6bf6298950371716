"""Microseconds per picture of the transform stage: resize and store, by instruction set, beside Pillow.

    python benchmarks/bench_transform.py [--crop 267x263] [--size 224] [--filter bilinear] [--repeats 9]

The default crop is the mean RandomResizedCrop of ImageNet's training set. One thread, in its own CPU time, so
that other work on the machine counts less; the instruction sets take turns. The table has the median and
spread, (greatest - least) / median, of the repeats; a repeat is the difference between many pictures and one,
so that the call itself does not count. Pixels lie in the second-level cache, as after the decoder. The rows
with "pass" and "resize" include storing the result, whose time is "no resize, rows copied".
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness.machine import facts
from PIL import Image
from PIL import __version__ as pillow_version

from fastload._native import _C

LEVELS = ("scalar", "avx2", "avx512")
SECONDS = 4e-3  # of one repeat, about
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
CHUNK = 8  # rows a decoder hands over at a time

Task = Callable[[int], object]  # runs n times over
Results = dict[str, dict[str, list[float]]]  # task, column -> microseconds


def view(crop: tuple[int, int], out: tuple[int, int]) -> tuple[object, ...]:
    """The whole of a picture of size ``crop``, (width, height), resized to ``out``."""
    return (0, 0, *crop), out, (0, 0, *out), False


def resize_tasks(crop: tuple[int, int], size: int, name: str) -> dict[str, tuple[Task, Task | None]]:
    """Each resize: ours, and Pillow's where there is the like."""
    filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    shapes = {
        "resize": (crop, (size, size)),
        "horizontal pass alone": (crop, (size, crop[1])),
        "vertical pass alone": ((size, crop[1]), (size, size)),
        "weights of one axis": ((crop[0], 1), (size, 1)),
        "no resize, rows copied": ((size, size), (size, size)),
    }
    tasks: dict[str, tuple[Task, Task | None]] = {}
    for title, (before, after) in shapes.items():
        pixels = np.random.default_rng(0).integers(0, 256, (before[1], before[0], 3), np.uint8)
        picture = Image.fromarray(pixels)

        def ours(
            n: int, pixels: np.ndarray = pixels, shape: tuple[object, ...] = view(before, after)
        ) -> object:
            return _C.resize(pixels, shape, name, CHUNK, n)

        def pillows(n: int, picture: Image.Image = picture, after: tuple[int, int] = after) -> object:
            return [picture.resize(after, filters[name]) for _ in range(n)]

        tasks[title] = ours, pillows if "pass" in title or title == "resize" else None
    return tasks


def store_tasks(size: int) -> dict[str, tuple[Task, Task | None]]:
    """Store of a whole sample in each dtype and layout, normalised where it is float."""
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8)
    tasks: dict[str, tuple[Task, Task | None]] = {}
    for dtype in ("uint8", "float32", "float16", "bfloat16"):
        for channels_last in (True, False):
            norm = {} if dtype == "uint8" else {"normalize": True, **IMAGENET}
            spec = _C.StoreSpec(dtype=dtype, channels_last=channels_last, **norm)

            def ours(n: int, spec: _C.StoreSpec = spec) -> object:
                return _C.store(pixels, spec, n)

            tasks[f"store {dtype} {'HWC' if channels_last else 'CHW'}"] = ours, None
    return tasks


def microseconds(task: Task) -> float:
    """CPU time of one picture."""
    begin = time.thread_time()
    task(3)
    loops = min(max(int(SECONDS * 3 / (time.thread_time() - begin)), 5), 1000)
    begin = time.thread_time()
    task(1)
    middle = time.thread_time()
    task(loops + 1)
    return ((time.thread_time() - middle) - (middle - begin)) / loops * 1e6


def measure(tasks: dict[str, tuple[Task, Task | None]], levels: list[str], repeats: int) -> Results:
    """All tasks by all columns, in turns."""
    results: Results = {title: {} for title in tasks}
    for _ in range(repeats):
        for title, (ours, pillows) in tasks.items():
            for level in levels:
                _C.set_simd_level(level)
                results[title].setdefault(level, []).append(microseconds(ours))
            if pillows is not None:
                results[title].setdefault("pillow", []).append(microseconds(pillows))
    return results


def available() -> list[str]:
    """The instruction sets of this machine."""
    found = []
    for level in LEVELS:
        _C.set_simd_level(level)
        if _C.simd_level() == level:
            found.append(level)
    return found


def print_table(results: Results, columns: list[str]) -> None:
    print(f"{'us per picture (spread)':26}" + "".join(f"{name:>18}" for name in columns))
    for title, row in results.items():
        cells = []
        for name in columns:
            values = row.get(name)
            median = statistics.median(values) if values else 0.0
            spread = (max(values) - min(values)) / median if values else 0.0
            cells.append(f"{median:10.1f} ({spread:4.0%})" if values else "")
        print(f"{title:26}" + "".join(f"{cell:>18}" for cell in cells))


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this and bench_operations.py have in common."""
    parser.add_argument("--size", type=int, default=224, help="side of the square picture")
    parser.add_argument("--repeats", type=int, default=9, help="number of repeats, at least 5")
    parser.add_argument("--json", type=Path, help="file for all measurements")


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line's options; ends where they say nothing."""
    options = parser.parse_args()
    if options.repeats < 5:
        parser.error("fewer than 5 repeats say nothing about the spread")
    return options


def report(results: Results, options: argparse.Namespace, what: str) -> None:
    """Print the results of each instruction set and of Pillow, and write them where that is wanted."""
    machine = {**facts(), "pillow": pillow_version}
    print(f"{machine['cpu']}, Pillow {pillow_version}, {what}")
    print_table(results, [*available(), "pillow"])
    if options.json:
        record = {"machine": machine, "options": {**vars(options), "json": None}, "microseconds": results}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--crop", default="267x263", help="WIDTHxHEIGHT of the crop before the resize")
    parser.add_argument("--filter", choices=("bilinear", "bicubic"), default="bilinear")
    add_options(parser)
    options = parsed(parser)
    width, height = (int(part) for part in options.crop.split("x"))
    tasks = {**resize_tasks((width, height), options.size, options.filter), **store_tasks(options.size)}
    results = measure(tasks, available(), options.repeats)
    report(results, options, f"{options.filter}, {width}x{height} -> {options.size}")


if __name__ == "__main__":
    main()
