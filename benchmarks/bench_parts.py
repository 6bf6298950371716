"""Large pictures in a store: what reading only parts of them saves, and where that switches itself off.

    python benchmarks/bench_parts.py [--pictures 24] [--latency 0.02] [--bandwidth 50e6]

It makes pictures of 4000 x 3000 pixels, 4:2:0, some 3 MB each, and 80 times as many of 500 x 375. The store
is tests/reference/fault_server.py in its own process, on loopback, with a latency per request and a bandwidth
for all together. "whole" reads the same set with entry points and without parts. Runs alternate; each opens
the set anew and goes through two epochs, of which the second counts.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from stores.line import Line

sys.path.append(str(Path(__file__).parent.parent / "tests" / "reference"))

from plain_pack import plain_pack

import fastload
from fastload import transforms as T
from fastload.packing.entries import build_entries
from fastload.shard.index import write_paged

SIZES = {"12 megapixels": (4000, 3000), "500 x 375": (500, 375)}


def picture(seed: int, width: int, height: int) -> bytes:
    """A JPEG about as dense as a photograph."""
    drawn = np.random.default_rng(seed)
    coarse = drawn.integers(0, 256, (height // 50, width // 50, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noisy = smooth + drawn.integers(-12, 13, smooth.shape, np.int16)
    buffer = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=88, subsampling=2)
    return buffer.getvalue()


def make(folder: Path, count: int, size: tuple[int, int]) -> None:
    """The set, and beside it one without parts."""
    dataset = plain_pack(folder / "parts", [picture(i, *size) for i in range(count)], range(count))
    build_entries(dataset, 64, 2)
    shutil.copytree(folder / "parts", folder / "whole")
    entries = fastload.PackedDataset(folder / "parts").entries
    packed = [entries.get(i) for i in range(count)]
    lengths = [np.array([len(each) for each in packed], np.uint64)]
    path = folder / "whole" / "entries.fli"
    write_paged(path, b"FLENTRY1", (), lengths, packed, 64, dataset.index.digest)


def run(folder: Path, low: float, arguments: argparse.Namespace) -> tuple[float, float, float]:
    """Pictures a second, MB and requests a picture, of an epoch."""
    chain = T.RandomResizedCrop(224, scale=(low, 1.0))
    with (
        tempfile.TemporaryDirectory() as sets,
        Line(folder, latency=arguments.latency, bandwidth=arguments.bandwidth) as line,
    ):
        os.environ["FASTLOAD_SETS_DIR"] = sets
        with fastload.DataLoader(
            line.url, 8, shuffle=True, transform=chain, num_workers=2, cache=None, seed=1
        ) as loader:
            for _ in loader:
                pass
            before, begin = loader.stats()["read_ahead"], time.perf_counter()
            images = sum(len(labels) for _, labels in loader)
            took, after = time.perf_counter() - begin, loader.stats()["read_ahead"]
    spent = {name: after[name] - before[name] for name in ("bytes", "requests")}
    return images / took, spent["bytes"] / images / 1e6, spent["requests"] / images


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=int, default=24)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds per request")
    parser.add_argument("--bandwidth", type=float, default=50e6, help="bytes per second")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print("| pictures | scale from | | pictures/s | MB a picture | requests a picture |\n" + "|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as work:
        for name, size in SIZES.items():
            folder = Path(work) / name.replace(" ", "-")
            make(folder, arguments.pictures * (1 if size[0] > 1000 else 80), size)
            for low in (0.08, 0.25):
                found: dict[str, list[tuple[float, float, float]]] = {"whole": [], "parts": []}
                for _ in range(arguments.repeats):
                    for kind, runs in found.items():
                        runs.append(run(folder / kind, low, arguments))
                for kind, runs in found.items():
                    rate, size_, requests = (statistics.median(column) for column in zip(*runs, strict=True))
                    print(
                        f"| {name} | {low} | {kind} | {rate:.1f} | {size_:.2f} | {requests:.2f} |", flush=True
                    )


if __name__ == "__main__":
    main()
