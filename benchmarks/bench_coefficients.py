"""Coefficient records: bytes, the whole loader's speed, and what making them and turning them back takes.

    python benchmarks/bench_coefficients.py IMAGE_FOLDER [--levels avx512 avx2] [--seconds 4]

The folder's JPEGs are packed with entry points every 64 pixels, as records of the form "fast" and as
"small" ones, repeated until an epoch has ``--images``. The loader runs a train job
(RandomResizedCrop(224), flip) on each set in turns, with all threads. Ratios are of images per CPU
second of all threads, which suffers less than images per second when other processes run.
``--levels`` lowers the instruction set (FASTLOAD_SIMD).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench_loader import command
from images import repeat_images
from machine import facts
from measure import (
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

from fastload.packing import PackOptions, pack

HERE = Path(__file__).parent
SETS = ("entries", "fast", "small")
JOBS = ("train_u8", "train_f32")


def prepare(images: Path, workdir: Path) -> None:
    """The three sets, each where the benchmark's loader looks for it."""
    cores = len(os.sched_getaffinity(0))
    for name in SETS:
        options = PackOptions(num_proc=cores, coefficients=None if name == "entries" else name)
        pack(images, workdir / name / "packed", options)


def candidates(arguments: argparse.Namespace, images: Path, workdir: Path) -> list[Candidate]:
    found = []
    threads = str(len(os.sched_getaffinity(0)))
    for level in arguments.levels:
        for job in arguments.jobs:
            for name in SETS:
                line = command(sys.executable, "fastload", "run", images, workdir / name)
                options = ["--job", job, "--threads", threads, "--seconds", str(arguments.seconds)]
                env = {"FASTLOAD_SIMD": level}
                found.append(Candidate(f"{level} {job} {name}", [*line, *options], env))
    script = [sys.executable, str(HERE / "coefficients_run.py")]
    for form in ("fast", "small"):
        for action in ("to", "back"):
            line = [*script, action, str(arguments.folder), "--form", form]
            found.append(Candidate(f"{action} {form}", line))
    return found


def report(arguments: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Print the tables of what did not fail."""
    bad = failures(runs)

    def text(name: str, key: str = "rate") -> str:
        return summarize(values_of(runs, name, key)).text() if name not in bad else "failed"

    def times(name: str, base: str, key: str = "rate_per_cpu") -> str:
        if {name, base} & set(bad):
            return "-"
        return f"{ratio(summarize(values_of(runs, name, key)), summarize(values_of(runs, base, key))):.2f}"

    rows = []
    for level in arguments.levels:
        for job in arguments.jobs:
            names = {which: f"{level} {job} {which}" for which in SETS}
            rows += [
                [level, job, which, text(name), text(name, "rate_per_cpu"), times(name, names["entries"])]
                for which, name in names.items()
            ]
    print(f"\n{table(['CPU level', 'job', 'set', 'images/s', 'a CPU s', 'of entries'], rows)}")
    rows = []
    for name in ("to fast", "to small", "back fast", "back small"):
        if name not in bad:
            rows.append([name, text(name), f"{values_of(runs, name, 'bytes')[0]:.3f}"])
    print(f"\n{table(['one thread', 'images/s', 'bytes of the JPEGs'], rows)}")
    outside = max((run.outside_cores for run in runs), default=0.0)
    print(f"\noutside cores: at most {outside:.2f}")
    for name, error in bad.items():
        print(f"\nfailed: {name}: {error}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--levels", nargs="+", default=["avx512", "avx2"], metavar="LEVEL")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured in each run, after warm-up")
    parser.add_argument("--images", type=int, default=4000, help="an epoch has at least so many")
    parser.add_argument("--workdir", type=Path, help="on the file system to be measured")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "coefficients.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    parent = arguments.workdir or HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="coefficients-") as name:
        workdir = Path(name)
        count, left_out = repeat_images(arguments.folder, workdir / "images", arguments.images)
        prepare(workdir / "images", workdir)
        runs = alternate(candidates(arguments, workdir / "images", workdir), arguments.repeats)
    settings = vars(arguments) | {"epoch_images": count, "files_left_out": left_out}
    write_results(arguments.output, "bench_coefficients", settings, runs)
    print(" ".join(f"{key}: {value};" for key, value in facts().items()))
    print(
        f"{count} images an epoch, {arguments.repeats} alternating runs, median [min-max]. {arguments.output}"
    )
    report(arguments, runs)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
