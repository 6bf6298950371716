"""Memory over a very large dataset: does it grow with the number of records, or with time?

    python benchmarks/bench_memory.py IMAGE_FOLDER

Three runs, each with a curve of the memory (PSS of all processes, MB) from the first batch on: fastload
over a synthetic index of --records records, fastload over one of a thousandth of them, and torch's
DataLoader over a Python list of as many paths. All records lie in one small shard of the folder's first
images, so that only the index is large. What counts is anonymous memory: pages of mapped files (the index)
are page cache, which the kernel drops when it needs the room. Then it measures the time to the first batch
of the large set, at least five times.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
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
from loaders.jobs import is_jpeg
from sets.synthetic import write_synthetic

HERE = Path(__file__).parent
SMALLER = 1000  # the other index has one record for so many
IMAGES = 64  # in the shard
SHOWN = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)  # of the curve


def first_images(folder: Path) -> list[bytes]:
    """The bytes of the folder's first JPEGs."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and is_jpeg(path))
    images = [path.read_bytes() for path in islice(files, IMAGES)]
    if not images:
        raise SystemExit(f"{folder} holds no JPEG file.")
    return images


def command(loader: str, dataset: Path, records: int, threads: int, seconds: float) -> list[str]:
    """runs.memory's command line."""
    options = {"--dataset": dataset, "--records": records, "--threads": threads, "--seconds": seconds}
    line = child("runs.memory", loader)
    return line + [str(part) for option in options.items() for part in option]


def curve_rows(run: Run) -> list[list[str]]:
    """Some points of a run's curve, and how much it grew after the first tenth."""
    points = run.values["curve"]
    picked = [points[round(part * (len(points) - 1))] for part in SHOWN]
    settled = points[len(points) // 10]
    growth = f"{points[-1]['anonymous'] - settled['anonymous']:+.0f}"
    return [
        [run.name, part, *(f"{point[part]:.0f}" for point in picked), growth if part == "anonymous" else ""]
        for part in ("anonymous", "file", "samples")
    ]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--records", type=int, default=14_000_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds per curve")
    parser.add_argument(
        "--repeats", type=int, default=MINIMUM_REPEATS, help="repeats of the time to the first batch"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "memory.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    records, fewer = arguments.records, max(10 * 256, arguments.records // SMALLER)
    images = first_images(arguments.folder)
    parent = HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="memory-") as workdir:
        large, small = Path(workdir, "large"), Path(workdir, "small")
        write_synthetic(large, images, records)
        write_synthetic(small, images, fewer)
        cases = [("fastload", large, records), ("fastload", small, fewer), ("torch", large, records)]

        def entries(seconds: float) -> list[Candidate]:
            return [
                Candidate(f"{loader} {count:,}", command(loader, data, count, arguments.threads, seconds))
                for loader, data, count in cases
            ]

        curves = [run_once(entry) for entry in entries(arguments.seconds)]
        starts = alternate(entries(0.0)[:1], arguments.repeats)
    write_results(arguments.output, "bench_memory", vars(arguments), curves + starts)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    report(curves, starts, arguments)
    return 1 if failures(curves + starts) else 0


def report(curves: Sequence[Run], starts: Sequence[Run], arguments: argparse.Namespace) -> None:
    """Print both tables."""
    rows = [row for run in curves if not run.error for row in curve_rows(run)]
    header = ["loader, records", "PSS MB", *(f"{part * arguments.seconds:.0f} s" for part in SHOWN), "growth"]
    print(f"\n{table(header, rows)}\n")
    failed = failures([*curves, *starts])
    lines = []
    for name in dict.fromkeys(run.name for run in starts if run.name not in failed):
        columns = (values_of(starts, name, key) for key in ("imports", "first_after_imports"))
        lines.append([name, *(summarize(column).text(2) for column in columns)])
    print(table(["loader, records", "imports s", "first batch after them s"], lines))
    for name, error in failed.items():
        print(f"\nfailed: {name}: {error}")


if __name__ == "__main__":
    sys.exit(main())
