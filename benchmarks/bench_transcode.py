"""Coefficient records made from JPEGs and converted back: in memory, as commands, and beside jpegtran.

    python benchmarks/bench_transcode.py IMAGE_FOLDER [--images 1000] [--processes 1 2]

In memory, on one thread, from the folder's own JPEGs: records of both forms (including the read-back that
proves each), the JPEGs of records, and libjpeg-turbo's lossless transcoding of a JPEG to a JPEG by
tjTransform in the same process, which gives the bytes of ``jpegtran -copy all`` (runs/turbo_transform.py).
"jpegtran" is that program, one process per file, less as many runs on a picture of 8 x 8 pixels. What is not
installed (libturbojpeg.so.0, jpegtran) is named.

As commands, on the folder repeated until it has ``--images``, with each number of ``--processes``:
``fastload pack`` with entry points and as records, ``fastload recode`` of packed sets, both to records and
to JPEGs, all synced to the disk. The clock starts after the imports, and for recode after the set was
copied. runs/coefficients.py has the runs; candidates take turns. Ratios are of images per CPU second in
memory, and of images per second for commands.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench_entries import has_turbojpeg
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
from sets.images import repeat_images

from fastload.packing import PackOptions, pack

HERE = Path(__file__).parent
FORMS = ("fast", "small")
LIBJPEG = "JPEG to JPEG, libjpeg-turbo"
PROGRAM = "JPEG to JPEG, jpegtran less its start"
PACKED = "pack, entry points"


def run_of(name: str, action: str, folder: Path, *options: object, reads: Path | None = None) -> Candidate:
    """A run of runs/coefficients.py."""
    line = child("runs.coefficients", action, folder, *options)
    return Candidate(name, line, reads=(reads or folder,))


def in_memory(folder: Path) -> list[Candidate]:
    """One thread."""
    found = [run_of(f"JPEG to {form}", "to", folder, "--form", form) for form in FORMS]
    found += [run_of(f"{form} to JPEG", "back", folder, "--form", form) for form in FORMS]
    if has_turbojpeg():
        found.append(run_of(LIBJPEG, "libjpeg", folder))
    if shutil.which("jpegtran"):
        found.append(run_of(PROGRAM, "jpegtran", folder))
    return found


def commands(arguments: argparse.Namespace, images: Path, workdir: Path) -> list[Candidate]:
    """Packing and recoding, with each number of processes."""
    found = []
    for processes in arguments.processes:
        how = ("--workdir", workdir, "--processes", processes)
        found.append(run_of(f"{PACKED}, x{processes}", "pack", images, *how))
        for form in arguments.forms:
            found.append(run_of(f"pack, {form}, x{processes}", "pack", images, *how, "--form", form))
            to = run_of(
                f"recode, JPEG to {form}, x{processes}", "recode", workdir / "entries", *how, "--form", form
            )
            back = run_of(f"recode, {form} to JPEG, x{processes}", "recode", workdir / form, *how)
            found += [to, back]
    return found


def report(arguments: argparse.Namespace, every: Sequence[Candidate], runs: Sequence[Run]) -> None:
    """Print the tables of what did not fail."""
    bad = failures(runs)

    def cells(name: str, base: str, key: str) -> list[str]:
        rates = {which: summarize(values_of(runs, name, which)) for which in ("rate", "rate_per_cpu")}
        known = base not in bad and values_of(runs, base, key)
        times = f"{ratio(rates[key], summarize(values_of(runs, base, key))):.2f}" if known else "-"
        size = f"{summarize(values_of(runs, name, 'bytes')).median:.3f}"
        micro = f"{1e6 / rates['rate_per_cpu'].median:.0f}"
        images = f"{values_of(runs, name, 'images')[0]:.0f}"
        return [name, images, rates["rate"].text(1), rates["rate_per_cpu"].text(1), micro, times, size]

    names = [one.name for one in every if one.name not in bad]
    alone = [name for name in names if "," not in name or name in (LIBJPEG, PROGRAM)]
    rows = [cells(name, LIBJPEG, "rate_per_cpu") for name in alone]
    heads = ["images", "images/s", "images/CPU s", "CPU us an image"]
    print(f"\n{table(['in memory, one thread', *heads, 'of libjpeg-turbo', 'bytes of the JPEGs'], rows)}")
    bases = {name: f"{PACKED}, {name.rpartition(', ')[2]}" for name in names if name not in alone}
    rows = [cells(name, base, "rate") for name, base in bases.items()]
    if rows:
        print(f"\n{table(['command, processes', *heads, f'of {PACKED}', 'bytes out/in'], rows)}")
    outside = max((run.outside_cores for run in runs), default=0.0)
    print(f"\noutside cores: at most {outside:.2f}")
    for name in (LIBJPEG, PROGRAM):
        if name not in [one.name for one in every]:
            print(f"\nnot installed: {name}")
    for name, error in bad.items():
        print(f"\nfailed: {name}: {error}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--forms", nargs="+", default=["fast"], choices=FORMS, help="forms of the commands")
    parser.add_argument(
        "--processes",
        nargs="*",
        type=int,
        default=[1, len(os.sched_getaffinity(0))],
        help="processes per command; none: no commands",
    )
    parser.add_argument("--images", type=int, default=1000, help="least images in the commands' folder")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--workdir", type=Path, help="folder on the file system to measure")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "transcode.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    parent = arguments.workdir or HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="transcode-") as name:
        workdir = Path(name)
        every = in_memory(arguments.folder)
        if arguments.processes:
            repeat_images(arguments.folder, workdir / "images", arguments.images)
            pack(workdir / "images", workdir / "entries", PackOptions())
            for form in arguments.forms:
                pack(workdir / "images", workdir / form, PackOptions(coefficients=form))
            every += commands(arguments, workdir / "images", workdir)
        runs = alternate(every, arguments.repeats)
    write_results(arguments.output, "bench_transcode", vars(arguments), runs)
    print(" ".join(f"{key}: {value};" for key, value in facts().items()))
    print(f"{arguments.repeats} alternating runs, median [min-max]. {arguments.output}")
    report(arguments, every, runs)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
