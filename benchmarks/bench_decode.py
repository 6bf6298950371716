"""Microseconds per image of each stage of the JPEG decoder, beside libjpeg-turbo's full decode.

    python benchmarks/bench_decode.py IMAGE_FOLDER [--repeats 7] [--simd avx2] [--spacings 0,64]

One thread, files in memory, pixels dropped as soon as they are made. The region is a random crop as
RandomResizedCrop draws it (area 0.08 to 1, ratio 3/4 to 4/3), the same in each round. A round takes all
images once by each way of decoding, in turn. It prints medians of the rounds' means and, in brackets, the
lowest and highest round. "floor" adds up each image's fastest round, which other work on the machine does
not affect. Files that fastload's own decoder leaves to libjpeg-turbo are counted and left out.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from harness.machine import facts
from numpy.typing import NDArray

from fastload import errors
from fastload._native import _C

STAGES = ("parse", "entropy", "idct", "color", "libjpeg_turbo")
Region = tuple[int, int, int, int]


@dataclass
class Picture:
    """A file, its crop, and its entry points by spacing."""

    data: NDArray[np.uint8]
    region: Region
    entries: dict[int, NDArray[np.uint8]] = field(default_factory=dict)


def random_crop(width: int, height: int, rng: random.Random) -> Region:
    """RandomResizedCrop's draw: (x, y, width, height)."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def supported(data: NDArray[np.uint8]) -> bool:
    try:
        return bool(_C.jpeg_supported(data))
    except (errors.DecodeError, errors.LimitError):
        return False


def load(folder: Path, spacings: list[int]) -> tuple[list[Picture], int]:
    """The pictures that the own decoder takes, and how many it does not."""
    rng = random.Random(1)
    pictures, others = [], 0
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg")):
        data = np.fromfile(path, np.uint8)
        if not supported(data):
            others += 1
            continue
        height, width, _ = _C.jpeg_decode(data).shape
        entries = {s: _C.jpeg_build_entries(data, s) for s in spacings}
        pictures.append(Picture(data, random_crop(width, height, rng), entries))
    return pictures, others


def ways(spacings: list[int]) -> dict[str, Callable[[_C.JpegClock, Picture], None]]:
    """Each way of decoding a picture."""
    result: dict[str, Callable[[_C.JpegClock, Picture], None]] = {
        "libjpeg-turbo, whole picture": lambda clock, p: clock.decode_turbo(p.data),
        "libjpeg-turbo, crop": lambda clock, p: clock.decode_turbo(p.data, p.region),
        "own, whole picture": lambda clock, p: clock.decode(p.data),
        "own, crop, sequential": lambda clock, p: clock.decode(p.data, p.region),
    }
    for s in spacings:
        name = f"own, crop, entries every {f'{s} px' if s else 'row'}"
        result[name] = lambda clock, p, s=s: clock.decode(p.data, p.region, p.entries[s], s)  # type: ignore[misc]
    return result


def measure(pictures: list[Picture], spacings: list[int], repeats: int) -> dict[str, NDArray[np.float64]]:
    """Microseconds [repeats, pictures, stages] of each way; a round before the first one is dropped."""
    clock = _C.JpegClock()
    todo = ways(spacings)
    times = {name: np.zeros((repeats + 1, len(pictures), len(STAGES))) for name in todo}
    for repeat in range(repeats + 1):
        for name, decode in todo.items():
            for i, picture in enumerate(pictures):
                decode(clock, picture)
                taken = clock.take()
                times[name][repeat, i] = [taken[stage] / 1e3 for stage in STAGES]
    return {name: values[1:] for name, values in times.items()}


def row(name: str, times: NDArray[np.float64]) -> str:
    stages = [statistics.median(means) for means in times.mean(1).T]
    totals = times.sum(2).mean(1)
    middle = statistics.median(totals)
    floor = times.sum(2).min(0).mean()
    cells = [f"{value:.1f}" if value else "" for value in stages[:-1]]
    spread = f"{middle:.0f} [{totals.min():.0f}, {totals.max():.0f}]"
    return "| " + " | ".join([name, *cells, spread, f"{floor:.0f}", f"{1e6 / middle:.0f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of JPEGs")
    parser.add_argument("--repeats", type=int, default=7, help="rounds, at least 5 (default 7)")
    parser.add_argument("--simd", default="avx512", help="highest instruction set: scalar, avx2 or avx512")
    parser.add_argument("--spacings", default="0,64", help="pixels between entry points (0: MCU rows)")
    parser.add_argument("--output", type=Path, help="write every round's figures as JSON")
    arguments = parser.parse_args()
    if arguments.repeats < 5:
        parser.error("--repeats: a median of fewer than 5 rounds says nothing about their spread")
    _C.set_simd_level(arguments.simd)
    spacings = [int(s) for s in arguments.spacings.split(",")]
    pictures, others = load(arguments.folder, spacings)
    if not pictures:
        parser.error(f"{arguments.folder} holds no JPEG that the own decoder takes ({others} others)")
    size = sum(len(p.data) for p in pictures)
    print(
        f"{len(pictures)} images of {size / len(pictures) / 1e3:.0f} kB ({others} others), {_C.simd_level()}"
    )
    for s in spacings:
        share = 100 * sum(len(p.entries[s]) for p in pictures) / size
        print(f"entry points every {f'{s} px' if s else 'row'}: {share:.2f} % of the files")
    times = measure(pictures, spacings, arguments.repeats)
    print("\n| us an image | parse | entropy | idct | color | all | floor | images/s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, values in times.items():
        print(row(name, values))
    if arguments.output:
        rounds = {name: values.mean(1).tolist() for name, values in times.items()}
        record = {"machine": facts(), "stages": STAGES, "rounds": rounds, "simd": _C.simd_level()}
        arguments.output.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
