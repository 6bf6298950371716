"""Several ranks on one machine: images per second, memory, and how fast an error and a restart are.

    python benchmarks/bench_ranks.py IMAGE_FOLDER

Ranks are processes that join a gloo group, as torchrun starts them; together they have as many threads as
there are cores (at least one each) and batches of 256 images. "loader MB" is what a loader adds to a rank
without one: proportional set size, anonymous and mapped files. The restart resumes at 90% of an epoch of
--records synthetic samples, whose index is as large as that of a real dataset without names.

    python benchmarks/bench_ranks.py IMAGE_FOLDER --only memory

What the training processes of a node hold: fastload with the set in the node cache, and torch's DataLoader
with worker processes; two threads or workers per rank (runs/rank_memory.py says how).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench_memory import first_images
from harness.children import child
from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import (
    MINIMUM_REPEATS,
    Candidate,
    Run,
    alternate,
    check_repeats,
    failures,
    ratio,
    run_once,
    summarize,
    table,
    values_of,
    write_results,
)
from sets.images import repeat_images
from sets.synthetic import PAGE, write_synthetic

HERE = Path(__file__).parent
HELD = ("held", "file", "cache", "processes")
HELD_IMAGES = 1000  # of the set in memory's question, at least


def command(mode: str, dataset: Path, ranks: int, arguments: argparse.Namespace) -> list[str]:
    """runs.ranks's command line."""
    options = {
        "--dataset": dataset,
        "--ranks": ranks,
        "--threads": max(1, arguments.threads // ranks),
        "--seconds": arguments.seconds,
    }
    line = child("runs.ranks", mode)
    return line + [str(part) for option in options.items() for part in option]


def candidates(images: Path, huge: Path, arguments: argparse.Namespace) -> list[Candidate]:
    """Every question, for every number of ranks."""
    found = []
    for ranks in arguments.ranks:
        for mode in ("rate", "idle"):
            found.append(Candidate(f"{mode} x{ranks}", command(mode, images, ranks, arguments)))
        if ranks > 1:
            found.append(Candidate(f"kill x{ranks}", command("kill", images, ranks, arguments)))
    found.append(Candidate("resume", command("resume", huge, 1, arguments)))
    return [one for one in found if one.name.split()[0] in arguments.only]


def holders(folder: Path, workdir: Path, arguments: argparse.Namespace) -> list[Candidate]:
    """The question of memory, for every number of ranks and both loaders."""
    images, packed = workdir / "images", workdir / "packed"
    repeat_images(folder, images, HELD_IMAGES)
    pack_folder(images, packed)
    found = []
    for ranks in arguments.ranks:
        for loader in ("fastload", "torch"):
            line = child("runs.rank_memory", loader, "--ranks", ranks, "--images", images, "--packed", packed)
            found.append(Candidate(f"memory {loader} x{ranks}", line, reads=(images, packed)))
    return found


def rank_rows(runs: Sequence[Run], counts: Sequence[int]) -> list[list[str]]:
    """Throughput and memory by number of ranks."""
    failed = failures(runs)
    names = {run.name for run in runs} - set(failed)
    base = f"rate x{counts[0]}"
    rows = []
    for ranks in counts:
        rate, idle, kill = (f"{mode} x{ranks}" for mode in ("rate", "idle", "kill"))
        row = [str(ranks), *[""] * 6]
        if rate in names:
            speed = summarize(values_of(runs, rate, "rate"))
            row[1] = speed.text()
            if base in names:
                row[2] = f"{ratio(speed, summarize(values_of(runs, base, 'rate'))):.2f}"
            used = zip(values_of(runs, rate, "images"), values_of(runs, rate, "cpu"), strict=True)
            row[3] = summarize([images / cpu for images, cpu in used]).text()
            row[4] = summarize([value / ranks for value in values_of(runs, rate, "pss")]).text()
        if {rate, idle} <= names:
            with_loader, without = (summarize(values_of(runs, name, "pss")).median for name in (rate, idle))
            row[5] = f"{(with_loader - without) / ranks:.0f}"
        if kill in names:
            row[6] = summarize(values_of(runs, kill, "error_after")).text(3)
        rows.append(row)
    return rows


def held_rows(runs: Sequence[Run]) -> list[list[str]]:
    """Memory of all processes by loader and number of ranks."""
    names = dict.fromkeys(run.name for run in runs if run.name.startswith("memory") and not run.error)
    return [[name, *(summarize(values_of(runs, name, kind)).text() for kind in HELD)] for name in names]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument(
        "--ranks", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4, 8]
    )
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of all ranks together"
    )
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=["rate", "idle", "kill", "resume"]
    )
    parser.add_argument("--records", type=int, default=100_000_000 // PAGE * PAGE)
    parser.add_argument("--images", type=int, default=100 * PAGE, help="images per epoch of the others")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--once", action="store_true", help="run once, and write only the JSON file")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "ranks.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    images = first_images(arguments.folder)
    parent = HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="ranks-") as workdir:
        small, huge = Path(workdir, "small"), Path(workdir, "huge")
        write_synthetic(small, images, arguments.images, keyed=False)
        if "resume" in arguments.only:
            write_synthetic(huge, images, arguments.records, keyed=False)
        chosen = candidates(small, huge, arguments)
        if "memory" in arguments.only:
            chosen += holders(arguments.folder, Path(workdir), arguments)
        if arguments.once:
            runs = [run_once(candidate) for candidate in chosen]
        else:
            runs = alternate(chosen, arguments.repeats)
    write_results(arguments.output, "bench_ranks", vars(arguments), runs)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    report([] if arguments.once else runs, arguments)
    return 1 if failures(runs) else 0


def report(runs: Sequence[Run], arguments: argparse.Namespace) -> None:
    """Print both tables."""
    header = [
        "ranks",
        "images/s, all",
        "of the first",
        "images per CPU s",
        "PSS MB a rank",
        "loader MB a rank",
        "kill to error s",
    ]
    if any(run.name.startswith("memory") for run in runs):
        print(f"\n{table(['all ranks, MB', *HELD], held_rows(runs))}")
    if any(run.name.split()[0] in ("rate", "idle", "kill") for run in runs):
        print(f"\n{table(header, rank_rows(runs, arguments.ranks))}\n")
    if any(run.name == "resume" and not run.error for run in runs):
        names = ("from_start", "after_imports", "load_and_first_batch")
        row = [
            f"{arguments.records:,}",
            *(summarize(values_of(runs, "resume", name)).text(2) for name in names),
        ]
        row.append(f"{max(values_of(runs, 'resume', 'state_bytes')):.0f}")
        columns = ["from the start s", "after the imports s", "state and first batch s", "state bytes"]
        print(table(["resumed at 90% of", *columns], [row]))
    for name, error in failures(runs).items():
        print(f"\nfailed: {name}: {error}")


if __name__ == "__main__":
    sys.exit(main())
