"""What watching costs: loops with fastload.diagnose around them and without, in turns.

    python benchmarks/bench_watching.py DATASET [--rounds 15] [--step 0] [--batch-size 64]

DATASET is a packed set. A round is an epoch without watching and one with it, or the other way round; the
figure is the median of the rounds' quotients of rates, so that other work on the machine affects both. Loops:
fastload's loader, and torch's with two workers on the same pictures. Beside it is the CPU time of watching
itself, which a busy machine does not change much.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from harness.machine import facts

import fastload
from fastload import transforms as T
from fastload.diagnose.usage import Meter

__all__ = ["overhead"]


def overhead(loader: Any, rounds: int = 15, step: Callable[[Any], Any] | None = None) -> dict[str, float]:
    """What watching takes of a loop's rate.

    Args:
        loader: fastload's or torch's, with epochs of a second or so.
        rounds: pairs of epochs; the first one is left out.
        step: what the loop does with a batch; None: nothing, which shows the most.

    Returns:
        ``share`` (0.01: watching costs 1%), ``spread`` (of the middle half of the pairs), ``plain`` and
        ``watched`` (batches a second, medians).
    """
    rates: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds + 1):
        for watched in (False, True) if number % 2 else (True, False):
            with fastload.diagnose(loader) if watched else contextlib.nullcontext():
                began, batches = time.perf_counter(), 0
                for batch in loader:
                    batches += 1
                    if step is not None:
                        step(batch)
                rates[watched].append(batches / (time.perf_counter() - began))
    plain, seen = rates[False][1:], rates[True][1:]
    shares = [1 - one / other for one, other in zip(seen, plain, strict=True)]
    low, _, high = statistics.quantiles(shares, n=4)
    return {
        "share": statistics.median(shares),
        "spread": high - low,
        "plain": statistics.median(plain),
        "watched": statistics.median(seen),
    }


def own_cost(batches: int = 20_000) -> dict[str, float]:
    """CPU seconds that watching takes of the loop's thread for each batch, and for a look at the counters."""
    loader: Any = torch.utils.data.DataLoader(range(batches), batch_size=None)  # type: ignore[arg-type]
    seconds = {}
    for watched in (False, True):
        with fastload.diagnose(loader) if watched else contextlib.nullcontext():
            began = time.thread_time()
            for _ in loader:
                pass
            seconds[watched] = time.thread_time() - began
    meter = Meter()
    began = time.thread_time()
    for _ in range(100):
        meter.read()
    look = (time.thread_time() - began) / 100
    return {"batch": (seconds[True] - seconds[False]) / batches, "look": look}


def main() -> None:
    """Print a table, and the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--step", type=float, default=0.0, help="seconds of sleep per step")
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    pictures = fastload.PackedDataset(options.dataset, transform=transform)
    step = (lambda _: time.sleep(options.step)) if options.step else None
    ours = fastload.DataLoader(options.dataset, options.batch_size, True, transform=transform, seed=0)
    theirs: Any = torch.utils.data.DataLoader(pictures, options.batch_size, shuffle=True, num_workers=2)
    rows = {
        name: overhead(one, options.rounds, step) for name, one in (("fastload", ours), ("torch", theirs))
    }
    print("| loader | batches/s | watched | watching costs | spread |\n|---|---|---|---|---|")
    for name, row in rows.items():
        print(
            f"| {name} | {row['plain']:.1f} | {row['watched']:.1f} | "
            f"{row['share']:.2%} | {row['spread']:.2%} |"
        )
    own = own_cost()
    print(f"\n{own['batch'] * 1e6:.1f} us of CPU a batch, {own['look'] * 1e3:.2f} ms for each look at /proc.")
    print(json.dumps({"machine": facts(), "rows": rows, "own": own}))


if __name__ == "__main__":
    main()
