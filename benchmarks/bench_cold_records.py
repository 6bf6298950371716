"""Coefficient records and JPEGs from a disk: sets larger than memory, and a disk of one bandwidth for both.

    python benchmarks/bench_cold_records.py IMAGE_FOLDER --workdir FOLDER [--gigabytes 1] [--bandwidths 200]

Packs the folder's JPEGs, repeated until they are ``--gigabytes`` large, with entry points and as records,
below FOLDER, which lies on the disk to be measured. Each run drops the set from the page cache, and then
goes through it in random order with the train job (RandomResizedCrop(224), flip, uint8):

    memory of L MB   in a memory cgroup of this size, page cache included (``--limit``; 0: leave this out):
                     two epochs at the speed of the disk. Images/s are those of the first.
    B MB/s           one epoch; the kernel limits the process's reads to this rate (``--bandwidths``).

Both need root; with neither (``--limit 0 --bandwidths``) it runs two epochs at the speed of the disk, of
which the first is cold. Bytes read from the disk are the kernel's count for the process. Ratios are of images
per second.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench_coefficients import SETS, prepare
from harness.children import child
from harness.machine import facts
from harness.measure import (
    MINIMUM_REPEATS,
    Candidate,
    Run,
    alternate,
    check_repeats,
    failures,
    ratio,
    summarize,
    table,
    values_of,
    write_results,
)
from sets.images import bytes_below, pictures_in, repeat_images

HERE = Path(__file__).parent


def conditions(arguments: argparse.Namespace) -> dict[str, tuple[object, ...]]:
    """Name -> the option of runs/shard.py that makes it so."""
    found: dict[str, tuple[object, ...]] = {}
    if arguments.limit:
        found[f"memory of {arguments.limit} MB"] = ("--limit", arguments.limit)
    for megabytes in arguments.bandwidths:
        found[f"{megabytes} MB/s"] = ("--bandwidth", megabytes * 10**6)
    return found or {"full speed": ()}


def candidates(arguments: argparse.Namespace, workdir: Path) -> list[Candidate]:
    found = []
    for condition, how in conditions(arguments).items():
        for name in arguments.sets:
            options = ("--crop", "--seconds", arguments.seconds, "--threads", arguments.threads, *how)
            line = child("runs.shard", "loader", workdir / name / "packed", *options)
            found.append(Candidate(f"{condition} | {name}", [*map(str, line)]))
    return found


def report(arguments: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Print a row for each condition and set that did not fail."""
    bad, rows = failures(runs), []
    for condition in conditions(arguments):
        base = f"{condition} | {arguments.sets[0]}"
        for which in arguments.sets:
            name = f"{condition} | {which}"
            if name in bad:
                continue
            images = summarize(values_of(runs, name, "images"))
            times = (
                f"{ratio(images, summarize(values_of(runs, base, 'images'))):.2f}" if base not in bad else "-"
            )
            disk = summarize([rate / 1e6 for rate in values_of(runs, name, "read_rate")])
            read = summarize([count / 1e3 for count in values_of(runs, name, "read_bytes")])
            cpu = summarize(values_of(runs, name, "cpu_us"))
            rows.append([condition, which, images.text(), times, disk.text(), read.text(1), cpu.text()])
    heads = [
        "disk",
        "set",
        "images/s",
        f"of {arguments.sets[0]}",
        "MB/s read",
        "kB read an image",
        "CPU us an image",
    ]
    print(f"\n{table(heads, rows)}")
    outside = max((run.outside_cores for run in runs), default=0.0)
    print(f"\noutside cores: at most {outside:.2f}")
    for name, error in bad.items():
        print(f"\nfailed: {name}: {error}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--workdir", type=Path, required=True, help="folder on the disk to measure")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="gigabytes of JPEGs")
    parser.add_argument("--sets", nargs="+", default=["entries", "fast"], choices=SETS)
    parser.add_argument("--limit", type=int, default=512, help="MB of memory with page cache (0: no limit)")
    parser.add_argument("--bandwidths", type=int, nargs="*", default=[200], metavar="MB/S")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=30.0, help="most seconds per epoch")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "cold_records.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    arguments.workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.workdir, prefix="cold-records-") as name:
        workdir, pictures = Path(name), pictures_in(arguments.folder)
        size = sum(path.stat().st_size for path in pictures) / len(pictures)
        count, left_out = repeat_images(
            arguments.folder, workdir / "images", int(arguments.gigabytes * 1e9 / size)
        )
        sizes = prepare(workdir / "images", workdir, arguments.sets)
        total = bytes_below(workdir / "images")
        runs = alternate(candidates(arguments, workdir), arguments.repeats)
    settings = vars(arguments) | {"epoch_images": count, "files_left_out": left_out, "bytes": sizes}
    write_results(arguments.output, "bench_cold_records", settings, runs)
    print(" ".join(f"{key}: {value};" for key, value in facts().items()))
    shares = ", ".join(f"{which} {share:.3f}" for which, share in sizes.items())
    print(f"{count} images of {total / 1e9:.2f} GB; of these bytes the sets take: {shares}.")
    print(f"{arguments.repeats} alternating runs, median [min-max]. {arguments.output}")
    report(arguments, runs)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
