"""Packs of samples: what a plan takes, how full packs are, and how long ranks wait for each other.

    python benchmarks/bench_packing.py [--samples 10000000] [--drawn 400000]

Lengths are drawn (tests/reference/drawn_lengths.py). "Idle" is 1 - mean / max over 4 ranks, of what the packs
of a step cost: a model, no measured steps. No file is read.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.machine import facts, process_memory
from harness.measure import MINIMUM_REPEATS, check_repeats, summarize, table
from harness.provenance import provenance

from fastload import PackingSampler
from fastload._native import _C
from fastload.sampler import Partition
from fastload.sampler.order import round_keys, shuffled
from fastload.sampler.packs import WINDOW, PackBatches, PackedOrder

sys.path.append(str(Path(__file__).parents[1] / "tests" / "reference"))

from drawn_lengths import Lengths, long, usual
from packing_reference import first_fit, next_fit

TOKENS, RANKS, SEED = 8192, 4, 1
STEPS = 200
SETS: dict[str, Callable[[int], Lengths]] = {"usual": usual, "long": long}


def seconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """The CPU time of each call; all of it is one thread's."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return found


def plans(samples: int, repeats: int) -> list[dict[str, Any]]:
    """Time the plan of an epoch, and what comes before a first batch."""
    lengths = usual(samples).tokens.astype(np.int32)
    before = process_memory().anonymous
    sampler = PackingSampler(lengths, TOKENS)
    own = process_memory().anonymous - before
    amounts, windows = sampler.amounts, -(-samples // WINDOW)
    keys = round_keys(samples, SEED, 0)
    counts = np.stack([lengths, usual(samples, 1).pictures.astype(np.int32)])

    def first() -> None:
        of = sampler.batches(PackedOrder(sampler, SEED), Partition(4, 0, RANKS))
        of.batch(0, 16 * (samples // 200), 0)

    works: dict[str, Callable[[], Any]] = {
        "packing alone": lambda: _C.count_packs(amounts, [TOKENS], None, 0, windows),
        "packing alone, pictures limited": lambda: _C.count_packs(counts, [TOKENS, 12], None, 0, windows),
        "an epoch's plan: shuffled and packed": lambda: _C.count_packs(amounts, [TOKENS], keys, 0, windows),
        "the sampler: checks, copy, digest": lambda: PackingSampler(lengths, TOKENS),
        "a batch at the middle, after a resume": first,
    }
    found = [{"what": name, "seconds": seconds(work, repeats)} for name, work in works.items()]
    return [*found, {"what": "memory beside the lengths, MB", "own_mb": own}]


def steps(samples: int, repeats: int) -> list[float]:
    """The microseconds a pack that a rank's batches take of the consumer's thread."""
    sampler = PackingSampler(usual(samples).tokens, TOKENS)

    def run() -> None:
        of = sampler.batches(PackedOrder(sampler, SEED), Partition(4, 0, RANKS))
        for step in range(STEPS):
            of.batch(0, 0, step)
            of.offsets(0, 0, step)

    return [1e6 * one / (4 * STEPS) for one in seconds(run, repeats)]


def windows_of(lengths: np.ndarray, window: int) -> int:
    """The packs of windows of another size."""
    amounts = lengths.astype(np.int32)[None]
    parts = (amounts[:, first : first + window] for first in range(0, len(lengths), window))
    return sum(len(_C.pack_window(np.ascontiguousarray(part), [TOKENS])[1]) for part in parts)


def efficiencies(samples: int) -> list[dict[str, Any]]:
    """How full packs are, in per cent."""
    found: list[dict[str, Any]] = []
    for name, drawn in SETS.items():
        lengths = drawn(samples).tokens
        kept = lengths[lengths <= TOKENS]
        kept = kept[shuffled(np.arange(len(kept)), len(kept), SEED, 0)]
        packs = {
            "next fit": next_fit(kept.tolist(), TOKENS),
            "first fit, 8 open packs, all closed at once": first_fit(kept.tolist(), TOKENS, 8, True),
            "first fit, 8 open packs, the fullest closed": first_fit(kept.tolist(), TOKENS, 8, False),
            "best fit decreasing, windows of 256": windows_of(kept, 256),
            "windows of 1,024": windows_of(kept, 1024),
            "PackingSampler (4,096)": windows_of(kept, WINDOW),
        }
        total = int(kept.sum())
        found += [{"set": name, "way": way, "full": 100 * total / (n * TOKENS)} for way, n in packs.items()]
    return found


def idle(samples: int) -> list[dict[str, Any]]:
    """Which share of a step ranks wait for the slowest one, in per cent."""
    lengths = usual(samples)
    costs = {
        "tokens": lengths.tokens,
        "tokens of pictures": lengths.of_pictures,
        "attention (squares)": lengths.tokens**2,
    }
    found = []
    for packs in (16, 32):
        for name, cost in costs.items():
            sampler = PackingSampler(lengths.tokens, TOKENS, costs=cost)
            order = PackedOrder(sampler, SEED)
            of = sampler.batches(order, Partition(packs // RANKS, 0, RANKS))
            assert isinstance(of, PackBatches)
            count = order.packs(0) // packs
            each = np.array([order.cost(number, 0) for number in range(count * packs)]).reshape(count, packs)
            in_turn = each.reshape(count, RANKS, -1).sum(2)
            shares = [of._shared(0, 0, step, of.partition) for step in range(count)]
            by_cost = np.array(
                [
                    [each[step][np.array(own) % packs].sum() for own in shared]
                    for step, shared in enumerate(shares)
                ]
            )
            row = {"packs a step": packs, "cost": name}
            for way, loads in (("in turn", in_turn), ("by cost", by_cost)):
                row[way] = 100 * float(np.mean(1 - loads.mean(1) / loads.max(1)))
            found.append(row)
    return found


def show(measured: dict[str, Any], samples: int) -> None:
    """Print the tables."""
    rows: list[Sequence[object]] = []
    for plan in measured["plans"]:
        if "own_mb" in plan:
            rows.append([plan["what"], f"{plan['own_mb']:.0f}", ""])
            continue
        summary = summarize(plan["seconds"])
        each = summarize([1e9 * one / samples for one in plan["seconds"]])
        rows.append([plan["what"], summary.text(3), "" if "batch" in plan["what"] else each.text(0)])
    print(table([f"{samples:,} samples", "CPU seconds", "ns a sample"], rows))
    print(f"\nA rank's batches: {summarize(measured['steps']).text(1)} us a pack of the consumer's thread.\n")
    ways = list(dict.fromkeys(one["way"] for one in measured["full"]))
    full = {(one["set"], one["way"]): one["full"] for one in measured["full"]}
    print(table(["% full", *SETS], [[way, *(f"{full[name, way]:.2f}" for name in SETS)] for way in ways]))
    heads = ["packs a step, 4 ranks", "cost", "idle % in turn", "idle % by cost"]
    cells = [
        [one["packs a step"], one["cost"], f"{one['in turn']:.1f}", f"{one['by cost']:.1f}"]
        for one in measured["idle"]
    ]
    print(f"\n{table(heads, cells)}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000_000, help="of the plan that is timed")
    parser.add_argument("--drawn", type=int, default=400_000, help="samples for how full packs are, and idle")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "packing.json")
    arguments = parser.parse_args()
    check_repeats(arguments.repeats)
    measured = {
        "plans": plans(arguments.samples, arguments.repeats),
        "steps": steps(arguments.drawn, arguments.repeats),
        "full": efficiencies(arguments.drawn),
        "idle": idle(arguments.drawn),
    }
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print()
    show(measured, arguments.samples)
    given = {name: str(value) for name, value in vars(arguments).items()}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    body = {"benchmark": "packing", **provenance(), "arguments": given, **measured}
    arguments.output.write_text(json.dumps(body, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
