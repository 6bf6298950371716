"""The disk tier: hits beside exact Belady, LRU and a fixed share on one trace, and epochs from a slow store.

    python benchmarks/bench_tiers.py [--records 3000] [--epochs 24] [--megabytes 64] [--rate 20]

``hits``: the reads of rank 0 of 1, 2, 4 and 8 nodes under an exact shuffle go through a tier of 1/8 and of
1/3 of the set, as in a loader. Figures are means over the second half of the epochs.

``epochs``: a set of --megabytes MB of raw pictures behind an HTTP server on loopback with 20 ms latency and
--rate MB/s (tests/reference/fault_server.py), read with a tier of a third of it, of all of it, and without:
seconds of the first three epochs, and the share of the third epoch's bytes that came from the tier.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.machine import facts
from sets.random_set import SIDE, write_random

sys.path.append(str(Path(__file__).parents[1] / "tests" / "cache"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "reference"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "pack"))

from disk_sets import Belady, Lru, bytes_for, opened
from fault_server import FaultServer
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload.cache.disk_files import expected_hits, whole_bytes
from fastload.sampler import Partition, Sampler
from fastload.sampler.sampler import ShuffledOrder
from fastload.sampler.upcoming import NOT_NEEDED, level_of

ROOT = Path(__file__).parents[1]
RECORD, BATCH, KNOWN = 3 * SIDE * SIDE, 25, 16
SMALL = 3 * 8 * 8  # bytes of a record where only hits count


def parse(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "tiers.json")
    return parser.parse_args(given)


def ours(dataset: PackedDataset, trace: list[Any], epochs: int, room: int, folder: Path) -> list[float]:
    """Hits of each epoch, in a tier with so many slots."""
    count, shares = len(dataset), []
    with opened(dataset, folder, bytes_for([SMALL] * count, room)) as tier:
        for number, epoch in enumerate(trace[:epochs]):
            masks = np.zeros(count, np.uint16)
            for k, later in enumerate(trace[number : number + KNOWN]):
                masks[later] |= np.uint16(1 << k)
            levels = np.full(count, NOT_NEEDED, np.uint16)
            levels[epoch] = level_of(np.arange(len(epoch)), len(epoch))
            tier.set_order(number, masks, levels)
            hits = 0
            for at, sample in enumerate(epoch.tolist()):
                if at % BATCH == 0:
                    tier.move(number, level_of(at, len(epoch)), False)
                if tier.find(sample, SMALL) is not None:
                    hits += 1
                else:
                    tier.store(sample, bytes(SMALL))
            shares.append(hits / len(epoch))
    return shares


def simulated(cache: Belady | Lru, trace: list[Any]) -> list[float]:
    """Hits of each epoch."""
    return [float(np.mean([cache.hit(sample) for sample in epoch.tolist()])) for epoch in trace]


def hits(arguments: argparse.Namespace, folder: Path) -> list[dict[str, float]]:
    """A row for each number of nodes and each size."""
    blobs = [bytes(SMALL)] * arguments.records
    dataset, rows = plain_pack(folder / "set", blobs, range(len(blobs)), raw_size=(8, 8)), []
    count, half = len(dataset), arguments.epochs // 2
    for nodes in (1, 2, 4, 8):
        sampler = Sampler(ShuffledOrder(count, 1), Partition(BATCH, 0, nodes, drop_last=True))
        steps = range(sampler.num_batches(0))
        epochs = range(arguments.epochs + KNOWN)
        trace = [np.concatenate([sampler.batch(e, 0, s).ids for s in steps]) for e in epochs]
        every = np.concatenate(trace).tolist()
        for share in (1 / 8, 1 / 3):
            room = int(count * share)
            row = {"nodes": nodes, "tier": share, "expected": expected_hits(share, 1 / nodes)}
            found = {
                "tier's": ours(dataset, trace, arguments.epochs, room, folder / f"{nodes}-{room}"),
                "Belady": simulated(Belady(room, every), trace[: arguments.epochs]),
                "LRU": simulated(Lru(room), trace[: arguments.epochs]),
                "fixed": [share],
            }
            rows.append(row | {name: float(np.mean(each[-half:])) for name, each in found.items()})
    return rows


def seconds(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """A row for each size of the tier."""
    write_random(folder / "slow", "arrow", arguments.megabytes * 1_000_000 // RECORD)
    os.environ["FASTLOAD_SETS_DIR"] = str(folder / "sets")
    dataset = PackedDataset(folder / "slow")
    whole = whole_bytes(np.full(len(dataset), RECORD, np.uint32))
    rows = []
    with FaultServer(folder=folder, latency=0.02, bandwidth=arguments.rate * 1e6) as server:
        for name, size in (("none", 0), ("a third", whole // 3), ("all", whole)):
            cache = ["off", f"{folder}/tier {name}:{size}B"] if size else "off"
            taken, given, before = [], 0, server.body_bytes
            with DataLoader(f"{server.url}/slow", 64, shuffle=True, cache=cache, seed=0) as loader:
                for _ in range(3):
                    began, before = time.monotonic(), server.body_bytes
                    for _ in loader:
                        pass
                    taken.append(time.monotonic() - began)
                    given = server.body_bytes - before
            part = max(0.0, 1 - given / (len(dataset) * RECORD))
            rows.append({"tier": name, "seconds": taken, "from_tier": part})
    return rows


def report(found: dict[str, Any], arguments: argparse.Namespace) -> None:
    """The tables."""
    print("| nodes | tier | this one | exact Belady | LRU | fixed share | expected |")
    print("|---|---|---|---|---|---|---|")
    for row in found["hits"]:
        names = ("tier", "tier's", "Belady", "LRU", "fixed", "expected")
        print(f"| {row['nodes']} | " + " | ".join(f"{row[name]:.1%}" for name in names) + " |")
    print(f"\n{arguments.megabytes} MB behind {arguments.rate:g} MB/s and 20 ms\n")
    print("| tier | first epoch, s | second | third | of the third from the tier |")
    print("|---|---|---|---|---|")
    for row in found["epochs"]:
        times = " | ".join(f"{each:.2f}" for each in row["seconds"])
        print(f"| {row['tier']} | {times} | {row['from_tier']:.0%} |")


def main(given: list[str] | None = None) -> int:
    """Measure, print, write."""
    arguments = parse(given)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {"hits": hits(arguments, folder), "epochs": seconds(arguments, folder)}
    report(found, arguments)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    found |= {"machine": facts(), "arguments": {k: str(v) for k, v in vars(arguments).items()}}
    arguments.output.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
