"""A change of the world: what loader.reshard() takes, beside a new loader that goes on with a state.

    python benchmarks/bench_reshard.py PACKED

A loader of rank 0 takes one place after another, in worlds of 1 to 8 ranks, in the middle of an epoch. In
turns with it a new loader is made, given the state, and asked for its first batch. Milliseconds: the call,
and from the call to the next batch; a batch of a loader in motion is given for comparison.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.machine import facts
from harness.measure import summarize, table

import fastload
from fastload import transforms as T

COLUMNS = ("a batch in motion", "reshard()", "to the next batch", "a new loader, to its first batch")


def load(arguments: argparse.Namespace, ranks: fastload.Ranks) -> Any:
    """A training loader of one thread."""
    return fastload.DataLoader(
        arguments.packed,
        arguments.batch_size,
        shuffle=True,
        seed=1,
        num_workers=arguments.threads,
        transform=T.RandomResizedCrop(224),
        ranks=ranks,
    )


def measure(arguments: argparse.Namespace) -> list[list[float]]:
    """Milliseconds by column, for each change."""
    chance, found, world = random.Random(arguments.seed), [], 8
    loader = load(arguments, fastload.Ranks(0, world))
    iterator = iter(loader)
    next(iterator)
    for _ in range(arguments.changes):
        began = time.perf_counter()
        if next(iterator, None) is None:
            iterator = iter(loader)
            next(iterator)
        moving = time.perf_counter()
        world = chance.choice([one for one in range(1, 9) if one != world])
        before, state = time.perf_counter(), loader.state_dict()
        loader.reshard(0, world)
        called = time.perf_counter()
        if next(iterator, None) is None:
            iterator = iter(loader)
            next(iterator)
        came = time.perf_counter()
        with load(arguments, fastload.Ranks(0, world)) as other:
            other.load_state_dict(state)
            next(iter(other), None)
            ended = time.perf_counter()
        pairs = ((began, moving), (before, called), (before, came), (came, ended))
        found.append([(end - start) * 1e3 for start, end in pairs])
    loader.close()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packed", type=Path, metavar="PACKED")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    found = measure(arguments)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    row = [summarize(list(column)).text(2) for column in zip(*found, strict=True)]
    most = [f"{max(column):.2f}" for column in zip(*found, strict=True)]
    print(f"\n{table(['ms', *COLUMNS], [[f'{arguments.changes} changes', *row], ['at most', *most]])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
