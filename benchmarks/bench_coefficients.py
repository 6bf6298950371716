"""Coefficient records: their bytes, and the whole loader's speed on them beside JPEGs with entry points.

    python benchmarks/bench_coefficients.py IMAGE_FOLDER [--levels avx512 avx2] [--seconds 4]

The folder's JPEGs are packed with entry points every 64 pixels, as records of the form "fast" and as
"small" ones, repeated until an epoch has ``--images``. The loader runs a train job
(RandomResizedCrop(224), flip) on each set in turns, with all threads. Ratios are of images per CPU
second of all threads, which suffers less than images per second when other processes run.
``--levels`` lowers the instruction set (FASTLOAD_SIMD). Bytes are those of a set's files over the JPEGs'.

bench_transcode.py converts JPEGs to records and back, bench_cold_records.py reads from a cold disk, and
bench_loader.py has other loaders beside fastload_coefficients.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench_loader import command
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
from sets.images import bytes_below, repeat_images

from fastload.packing import PackOptions, pack

HERE = Path(__file__).parent
SETS = ("entries", "fast", "small")
JOBS = ("train_u8", "train_f32")


def prepare(images: Path, workdir: Path, sets: Sequence[str]) -> dict[str, float]:
    """The sets, each where the benchmark's loader looks for it; their bytes by those of the JPEGs."""
    cores = len(os.sched_getaffinity(0))
    sizes = {}
    for name in sets:
        options = PackOptions(num_proc=cores, coefficients=None if name == "entries" else name)
        pack(images, workdir / name / "packed", options)
        sizes[name] = bytes_below(workdir / name / "packed") / bytes_below(images)
    return sizes


def candidates(arguments: argparse.Namespace, images: Path, workdir: Path) -> list[Candidate]:
    found = []
    threads = str(len(os.sched_getaffinity(0)))
    for level in arguments.levels:
        for job in arguments.jobs:
            for name in arguments.sets:
                line = command(sys.executable, "fastload", "run", images, workdir / name)
                options = ["--job", job, "--threads", threads, "--seconds", str(arguments.seconds)]
                options += ["--batch", str(arguments.batch)]
                env, reads = {"FASTLOAD_SIMD": level}, (workdir / name,)
                found.append(Candidate(f"{level} {job} {name}", [*line, *options], env, reads))
    return found


def report(arguments: argparse.Namespace, sizes: Mapping[str, float], runs: Sequence[Run]) -> None:
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
            base = f"{level} {job} {arguments.sets[0]}"
            for which in arguments.sets:
                name = f"{level} {job} {which}"
                speed = [text(name), text(name, "rate_per_cpu"), times(name, base), times(name, base, "rate")]
                rows.append([level, job, which, *speed, f"{sizes[which]:.3f}"])
    of = f"of {arguments.sets[0]}"
    heads = ["CPU level", "job", "set", "images/s", "a CPU s", of, f"{of}, images/s", "bytes of the JPEGs"]
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
    parser.add_argument("--levels", nargs="+", default=["avx512", "avx2"], metavar="LEVEL")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured seconds per run, after warm-up")
    parser.add_argument("--images", type=int, default=4000, help="least images per epoch")
    parser.add_argument("--batch", type=int, default=128, help="batch size; fewer if pictures are large")
    parser.add_argument("--workdir", type=Path, help="folder on the file system to measure")
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
        sizes = prepare(workdir / "images", workdir, arguments.sets)
        runs = alternate(candidates(arguments, workdir / "images", workdir), arguments.repeats)
    settings = vars(arguments) | {"epoch_images": count, "files_left_out": left_out, "bytes": sizes}
    write_results(arguments.output, "bench_coefficients", settings, runs)
    print(" ".join(f"{key}: {value};" for key, value in facts().items()))
    print(
        f"{count} images an epoch, {arguments.repeats} alternating runs, median [min-max]. {arguments.output}"
    )
    report(arguments, sizes, runs)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
