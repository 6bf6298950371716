"""Small JPEGs for tests of the benchmarks, and the environment that their processes need."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["REPEATS", "environment", "write_photos"]

REPEATS = 1  # of what a benchmark measures


def write_photos(folder: Path, count: int) -> None:
    """``count`` smooth random pictures of about 80x64 pixels in two class folders."""
    random = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"class{number % 2}" / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((80 + number, 64)).save(path, quality=85)


def environment() -> dict[str, str]:
    """This process's with its import path, few repeats, and one torch thread, as several share the cores."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
        "FASTLOAD_BENCH_SMOKE_REPEATS": str(REPEATS),
    }
