"""Reading records from storage with a cold page cache, of a set larger than the memory limit.

    python benchmarks/bench_shard.py --workdir FOLDER [--gigabytes 2] [--limit 512] [--more] [--images FOLDER]

It makes a set of raw pictures of 110,592 random bytes in each format below FOLDER, which lies on the disk to
measure, and removes it afterwards. Every run is a process in its own memory cgroup of ``--limit`` MB, page
cache included (needs root; v1 or v2), and begins with the set dropped from the page cache. A run of the
loader is two epochs, or ``--seconds`` of each: the first includes the start-up, the second is as cold because
the set is larger than the limit. Nothing is decoded; pixels are copied into the batch. ``exact`` is compared
with random reads of a record's size, ``block`` with sequential ones, with ``--depths`` requests at a time,
which are tried first. "lmdb stock" is py-lmdb in random order, with as many threads as the loader.

The speed of a shared disk changes from second to second. So each run of the loader lies between two of the
disk, on the same files, and is compared with their mean; the table has the median, the lowest and the highest
of these ratios. The default takes five to eight minutes.

The window of ``block`` is what a quarter of the memory can hold at once, at most the default: a larger one
is read in smaller pieces.

``--more`` adds the loader in order, and without read-ahead. With ``--images`` it also runs on real JPEGs,
repeated until they are ``--gigabytes`` large: cold within the limit and warm without one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.children import child
from harness.machine import facts
from harness.measure import (
    MINIMUM_REPEATS,
    Candidate,
    Run,
    alternate,
    check_repeats,
    failures,
    run_once,
    summarize,
    table,
    values_of,
    write_results,
)
from sets.images import repeat_images
from sets.random_set import SIDE, write_random

from fastload.packing import PackOptions, pack

HERE = Path(__file__).parent
RECORD = 3 * SIDE * SIDE
BLOCK_BYTES = 1 << 20  # a sequential request, and about a block of shuffle="block"
DEPTHS = (8, 16, 24, 32, 48)
WINDOW = 2430  # records: the loader's default for these
WINDOW_SHARE = 4 * 1.6 * 1.3  # of the limit: buffers are a quarter of what is left of it, 1.6 windows fit
PROBE_SECONDS = 0.7
PROBES = 3
ORDERS = {"exact": "random", "block": "sequential"}  # and what the disk does beside it
MORE = {"in order": ("none",), "exact, not ahead": ("exact", "--before")}


@dataclass(frozen=True)
class Sandwich:
    """One run of the loader, and the disk's before and after it, in one format and order."""

    shard_format: str
    order: str
    disk: tuple[Run, Run]
    loader: Run

    @property
    def disk_rate(self) -> float:
        return sum(float(run.values["rate"]) for run in self.disk) / 2

    def ratio(self, key: str) -> float:
        """Of the loader's ``rate``, or of its ``second`` epoch, to the disk."""
        return float(self.loader.values[key]) / self.disk_rate

    @property
    def failed(self) -> bool:
        return any(run.error for run in (*self.disk, self.loader))


def command(arguments: argparse.Namespace, action: str, folder: Path, *options: object) -> list[str]:
    """runs.shard's command line."""
    limit = ("--limit", arguments.limit, "--threads", arguments.threads)
    return child("runs.shard", action, folder, *limit, *options)


def disk(arguments: argparse.Namespace, folder: Path, kind: str, depth: int, seconds: float) -> Candidate:
    """What the disk gives without fastload."""
    how = ("--sequential", "--bytes", BLOCK_BYTES) if kind == "sequential" else ("--bytes", RECORD)
    options = ("--depth", depth, "--seconds", seconds, *how)
    return Candidate(f"disk {kind} x{depth}", command(arguments, "disk", folder, *options))


def window_of(arguments: argparse.Namespace) -> int:
    return int(arguments.window or min(WINDOW, arguments.limit * (1 << 20) / WINDOW_SHARE / RECORD))


def loader(
    arguments: argparse.Namespace, name: str, folder: Path, shuffle: str, *options: object
) -> Candidate:
    """The whole loader on one of the sets."""
    window = ("--window", window_of(arguments)) if shuffle == "block" else ()
    parts = ("--seconds", arguments.seconds, "--shuffle", shuffle, *window, *options)
    return Candidate(name, command(arguments, "loader", folder, *parts))


def say(run: Run) -> Run:
    """Report a run when it has ended."""
    rate = run.error or f"{run.values['rate'] / 1e6:.0f} MB/s"
    print(f"round {run.round} {run.name}: {rate}", file=sys.stderr, flush=True)
    return run


def best_depths(arguments: argparse.Namespace, folder: Path) -> dict[str, int]:
    """The queue depth at which the disk is fastest, random and sequential, of ``PROBES`` turns."""
    found = {}
    for kind in ORDERS.values():
        runs = [
            (depth, say(run_once(disk(arguments, folder, kind, depth, PROBE_SECONDS))))
            for turn in range(PROBES)
            for depth in arguments.depths[:: 1 if turn % 2 == 0 else -1]
        ]
        rates = dict.fromkeys(arguments.depths, 0.0)
        for depth, run in runs:
            if run.error:
                raise SystemExit(f"{run.name}: {run.error}")
            rates[depth] += float(run.values["rate"])
        found[kind] = max(rates, key=lambda depth: rates[depth])
    return found


def measure(arguments: argparse.Namespace, workdir: Path, depths: dict[str, int]) -> Iterator[Sandwich | Run]:
    """All rounds; a format's turn comes with each, forwards and backwards."""
    for number in range(arguments.repeats):
        for name in arguments.formats[:: 1 if number % 2 == 0 else -1]:
            folder = workdir / name
            for order, kind in ORDERS.items():
                beside = disk(arguments, folder, kind, depths[kind], arguments.disk_seconds)
                before = say(run_once(beside, number))
                run = say(run_once(loader(arguments, f"{name} {order}", folder, order), number))
                yield Sandwich(name, order, (before, say(run_once(beside, number))), run)
            for title, how in MORE.items() if arguments.more else ():
                yield say(run_once(loader(arguments, f"{name} {title}", folder, *how), number))
            if name == "lmdb":
                stock = command(arguments, "lmdb", folder, "--seconds", arguments.disk_seconds)
                yield say(run_once(Candidate("lmdb stock", stock), number))


def report(sandwiches: Sequence[Sandwich], others: Sequence[Run]) -> None:
    """The tables of what did not fail."""
    bad = failures([*others, *(run for one in sandwiches for run in (*one.disk, one.loader))])
    stock = [] if "lmdb stock" in bad else values_of(others, "lmdb stock", "rate")
    middle = summarize(stock).median if stock else 0.0
    rows = []
    for name, order in dict.fromkeys((one.shard_format, one.order) for one in sandwiches):
        these = [one for one in sandwiches if (one.shard_format, one.order) == (name, order)]
        if any(one.failed for one in these):
            continue
        rate = summarize([float(one.loader.values["rate"]) / 1e6 for one in these])
        beside = summarize([one.disk_rate / 1e6 for one in these])
        ratios = [summarize([one.ratio(key) for one in these]).text(2) for key in ("rate", "second")]
        cpu = summarize([float(one.loader.values["cpu_us"]) for one in these])
        times = f"{rate.median * 1e6 / middle:.1f}" if middle else "-"
        rows.append([f"{name} {order}", rate.text(), beside.text(), *ratios, times, cpu.text()])
    heads = [
        "",
        "MB/s",
        "disk beside, MB/s",
        "of the disk",
        "second epoch",
        "times lmdb stock",
        "CPU µs a record",
    ]
    print(f"\n{table(heads, rows)}\n")
    for name in dict.fromkeys(run.name for run in others if run.name not in bad):
        print(f"{name}: {summarize([v / 1e6 for v in values_of(others, name, 'rate')]).text()} MB/s")
    for name, error in bad.items():
        print(f"failed: {name}: {error}")


def measure_images(arguments: argparse.Namespace, workdir: Path) -> list[Run]:
    """The whole loader on JPEGs, and its table."""
    files = [path for path in arguments.images.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    repeat_images(arguments.images, workdir / "images", int(arguments.gigabytes * 1e9 / size * len(files)))
    folder = workdir / "jpegs"
    pack(workdir / "images", folder, PackOptions(num_proc=1))
    every = [
        Candidate(
            f"JPEGs {'warm' if warm else 'cold'}{', not ahead' if before else ''}",
            loader(arguments, "", folder, "exact", *crop, *warm, *before).command,
            reads=(folder,) if warm else (),
        )
        for crop, warm in ((("--crop",), ()), (("--crop",), ("--warm", "--limit", 0)))
        for before in ((), ("--before",))
    ]
    runs = alternate(every, arguments.repeats)
    bad = failures(runs)
    names = [one.name for one in every if one.name not in bad]
    keys = ("images", "cpu_us")
    rows = [[name, *(summarize(values_of(runs, name, key)).text() for key in keys)] for name in names]
    print(f"\n{table(['', 'images/s', 'CPU µs an image'], rows)}")
    return runs


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", type=Path, required=True, help="folder on the disk to measure")
    parser.add_argument("--images", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="gigabytes per set")
    parser.add_argument("--limit", type=int, default=512, help="MB of memory with page cache (0: no limit)")
    parser.add_argument("--formats", nargs="*", default=["arrow", "lmdb", "hdf5"])
    parser.add_argument("--depths", type=int, nargs="*", default=list(DEPTHS), help="requests at a time")
    parser.add_argument("--window", type=int, default=0, help="records per block window (0: what fits)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--seconds", type=float, default=4.0, help="most seconds per epoch")
    parser.add_argument("--disk-seconds", type=float, default=1.0, help="seconds per run without fastload")
    parser.add_argument("--more", action="store_true", help="also run in order, and without read-ahead")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "shard.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    arguments.workdir.mkdir(parents=True, exist_ok=True)
    sandwiches: list[Sandwich] = []
    others: list[Run] = []
    with tempfile.TemporaryDirectory(dir=arguments.workdir, prefix="shard-") as name:
        workdir = Path(name)
        for shard_format in arguments.formats:
            write_random(workdir / shard_format, shard_format, int(arguments.gigabytes * 1e9 / RECORD))
        if arguments.formats:
            depths = best_depths(arguments, workdir / arguments.formats[0])
            for found in measure(arguments, workdir, depths):
                (sandwiches if isinstance(found, Sandwich) else others).append(found)  # type: ignore[arg-type]
        print(" ".join(f"{key}: {value};" for key, value in facts().items()))
        print(f"{arguments.gigabytes} GB a set, limit {arguments.limit} MB, {arguments.repeats} rounds.")
        if sandwiches:
            print(f"Best queue depths: {depths}. Window of block: {window_of(arguments)} records.")
            report(sandwiches, others)
        if arguments.images is not None:
            others += measure_images(arguments, workdir)
    runs = [*others, *(run for one in sandwiches for run in (one.disk[0], one.loader, one.disk[1]))]
    write_results(arguments.output, "bench_shard", vars(arguments), runs)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
