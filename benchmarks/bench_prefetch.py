"""Slow samples stall nobody: with a heavy tail, the share reached of the rate that the mean cost allows.

    python benchmarks/bench_prefetch.py

One sample in a hundred takes 100 times as long as the others. Decoding is a sleep (it needs no core, so that
any number of threads can be tried anywhere); engine, slots and loader are the real ones. With the mean cost m
of a sample and t threads, a perfect schedule reaches t / m samples per second. Beside it are the same loader
with samples that all cost m, and the bound of a loader whose unit of work is a batch, each of which waits for
its own slow samples (computed, not run).

The consumer takes batches in order, which is checked. prefetch_factor says how far a slow sample can be from
the batch that the consumer waits for: until it is done, the other threads need that many batches of work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.machine import facts
from harness.measure import check_repeats, table
from PIL import Image
from sets.synthetic import write_synthetic

from fastload import DataLoader
from fastload import transforms as T
from fastload.backends import native as engines

SLOW_SHARE = 0.01
SLOW_FACTOR = 100
SIDE = 150  # over 64 KiB a sample: smaller ones are claimed in groups


def gif(folder: Path, gray: int) -> bytes:
    """The bytes of a gray picture; GIF, which the core gives to the fallback decoder."""
    Image.new("L", (SIDE, SIDE), gray).save(folder / "x.gif")
    return (folder / "x.gif").read_bytes()


def make_dataset(folder: Path, records: int) -> bytes:
    """A dataset with slow records at random places, in the same order every epoch; the slow one's bytes."""
    slow, quick = gif(folder, 255), gif(folder, 0)
    places = set(np.random.default_rng(0).permutation(records)[: round(records * SLOW_SHARE)].tolist())
    images = [slow if i in places else quick for i in range(records)]
    write_synthetic(folder / "tail", images, records)
    return slow


def sleeper(slow: bytes, quick_seconds: float, slow_seconds: float) -> Any:
    """A decoder that takes its time."""
    pixels = np.zeros((SIDE, SIDE, 3), np.uint8)

    def decode(data: bytes, max_pixels: int) -> Any:
        time.sleep(slow_seconds if bytes(data) == slow else quick_seconds)
        return pixels

    return decode


def run(folder: Path, decode: Any, options: argparse.Namespace, ahead: int) -> float:
    """Samples a second over one epoch's worth of batches, in the middle of two epochs; checks the order.

    The order is the same in both, so these batches cost what an epoch costs. The threads are as busy at the
    last of them as at the first: nothing begins or runs dry.
    """
    engines.decode_with_pil = decode
    size, times = options.batch_size, []
    with DataLoader(
        folder,
        size,
        num_workers=options.threads,
        prefetch_factor=ahead,
        drop_last=True,
        transform=T.CenterCrop(SIDE),
    ) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            wanted = np.array(list(loader.sampler)).reshape(-1, size) % 1000
            for (_, labels), ids in zip(loader, wanted, strict=True):
                if not np.array_equal(labels.numpy(), ids):
                    raise SystemExit("The order changed.")
                times.append(time.perf_counter())
                if len(times) > len(loader) + ahead:
                    return len(loader) * size / (times[-1] - times[-1 - len(loader)])
    raise SystemExit("Too few batches: raise --batches above prefetch_factor.")


def batchwise_bound(options: argparse.Namespace, quick: float, mean: float) -> float:
    """Share of the bound for threads that take whole batches: each waits for all of its own samples.

    A thread's batch takes about batch_size * mean on average, but the consumer takes one batch of every
    thread in turn, so each round takes as long as its slowest batch. Simulated.
    """
    rng = np.random.default_rng(0)
    slow = rng.binomial(options.batch_size, SLOW_SHARE, (2000, options.threads))
    seconds = quick * (options.batch_size + (SLOW_FACTOR - 1) * slow)
    return float(options.batch_size * mean / seconds.max(axis=1).mean())


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--batches", type=int, default=30, help="batches per epoch")
    parser.add_argument("--prefetch", default="2,4", help="values of prefetch_factor to try")
    parser.add_argument("--milliseconds", type=float, default=2.0, help="milliseconds per quick sample")
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse(arguments)
    check_repeats(options.repeats)
    quick = 1e-3 * options.milliseconds
    mean = quick * (1 - SLOW_SHARE + SLOW_SHARE * SLOW_FACTOR)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        slow = make_dataset(folder, options.batch_size * options.batches)
        kinds = {
            "1% cost 100 times": sleeper(slow, quick, quick * SLOW_FACTOR),
            "all cost the mean": sleeper(slow, mean, mean),
        }
        for ahead in map(int, options.prefetch.split(",")):
            for kind, decode in kinds.items():
                rates = [run(folder / "tail", decode, options, ahead) for _ in range(options.repeats)]
                shares = [rate * mean / options.threads for rate in rates]
                spread = f"{min(shares):.2f}-{max(shares):.2f}"
                rows.append((ahead, kind, f"{statistics.median(shares):.2f}", spread))
    print(f"{facts()['cpu']}; {options.threads} threads, batches of {options.batch_size}")
    print(table(("prefetch_factor", "samples", "share of the bound", "range"), rows))
    print(f"whole batches as the unit of work: {batchwise_bound(options, quick, mean):.2f} (computed)")


if __name__ == "__main__":
    sys.exit(main())
