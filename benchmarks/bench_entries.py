"""Entry points: what each spacing costs in bytes, and what it gains in images per second.

    python benchmarks/bench_entries.py IMAGE_FOLDER [--spacings none row 128 64 32] [--seconds 4]

The folder's JPEGs are packed once, repeated until an epoch has ``--images``. The loader runs the train
job (RandomResizedCrop(224), flip, uint8) on that set with each spacing, with one thread and with
``--threads``, in turns. "build" makes entries.fli, "decode" decodes all of each JPEG without entry points,
by fastload's own decoder and (if libturbojpeg is installed) by libjpeg-turbo. "cold" is the train job for
one epoch after the kernel was told to drop the set from the page cache; beside it is how much of the set
was then read from storage, because a kernel may keep some of it.

Ratios are of images per CPU second of all threads, which suffers less than images per second when other
processes run; those of "cold" are of images per second.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench_loader import command
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
from loaders.candidates.turbojpeg import LIBRARY
from sets.images import repeat_images

from fastload import PackedDataset
from fastload.packing import PackOptions, pack
from fastload.packing.entries import build_entries, parse_spacing

HERE = Path(__file__).parent
SPACINGS = ("none", "row", "128", "64", "32")


def prepare(images: Path, workdir: Path, spacings: Sequence[str]) -> None:
    """Pack once; ``workdir/SPACING/packed`` is the same set (hard links) with its own entries.fli."""
    plain = workdir / "plain"
    pack(images, plain, PackOptions(entries=None, num_proc=1))
    for text in spacings:
        folder = workdir / text / "packed"
        shutil.copytree(plain, folder, copy_function=os.link)
        spacing = parse_spacing(text)
        if spacing is not None:
            build_entries(PackedDataset(folder), spacing, len(os.sched_getaffinity(0)))


def loaders(arguments: argparse.Namespace, images: Path, workdir: Path) -> list[Candidate]:
    """The whole loader: each spacing, each number of threads."""
    found = []
    for threads in arguments.threads:
        for text in arguments.spacings:
            line = command(sys.executable, "fastload", "run", images, workdir / text)
            options = ["--job", "train_u8", "--threads", str(threads), "--seconds", str(arguments.seconds)]
            found.append(Candidate(f"loader x{threads} {text}", [*line, *options]))
    return found


def others(arguments: argparse.Namespace, images: Path, workdir: Path) -> list[Candidate]:
    """Building, decoding and cold reading, with the most threads."""
    threads = str(max(arguments.threads))

    def line(action: str, folder: Path, *options: str) -> list[str]:
        return child("runs.entries", action, folder, "--threads", threads, *options)

    built = [text for text in arguments.spacings if text != "none"]
    # Building replaces the file by the same one, so that the loader's runs are not touched.
    found = [
        Candidate(f"build {text}", line("build", workdir / text / "packed", "--spacing", text))
        for text in built
    ]
    found.append(Candidate("decode fastload", line("decode", workdir / "plain")))
    if has_turbojpeg():
        decode = command(sys.executable, "turbojpeg", "run", images, workdir)
        found.append(
            Candidate(
                "decode libjpeg-turbo", [*decode, "--threads", threads, "--seconds", str(arguments.seconds)]
            )
        )
    if arguments.cold:
        found += [
            Candidate(f"cold {text}", line("cold", workdir / text / "packed")) for text in arguments.spacings
        ]
    return found


def has_turbojpeg() -> bool:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def report(arguments: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Print the tables of what did not fail."""
    bad = failures(runs)

    def summary(name: str, key: str = "rate") -> str:
        return summarize(values_of(runs, name, key)).text() if name not in bad else "failed"

    def times(name: str, base: str, key: str = "rate_per_cpu") -> str:
        if {name, base} & set(bad):
            return "-"
        rates = (summarize(values_of(runs, which, key)) for which in (name, base))
        return f"{ratio(*rates):.2f}"

    rows = []
    for text in arguments.spacings:
        built = [run.values for run in runs if run.name == f"build {text}" and not run.error]
        size = f"{built[0]['entry_bytes']:.0f}" if built else "0"
        row = [text, size, f"{100 * built[0]['share']:.2f}%" if built else "0"]
        for threads in arguments.threads:
            name = f"loader x{threads} {text}"
            base = f"loader x{threads} {arguments.spacings[0]}"
            row += [summary(name), summary(name, "rate_per_cpu"), times(name, base)]
        rows.append(row)
    header = ["spacing", "bytes an image", "of the JPEG"]
    for threads in arguments.threads:
        header += [f"images/s, {threads} threads", "a CPU s", f"of {arguments.spacings[0]}"]
    print(f"\n{table(header, rows)}")
    decoders = [name for name in ("decode fastload", "decode libjpeg-turbo") if values_of(runs, name, "rate")]
    names = [f"build {text}" for text in arguments.spacings if text != "none"] + decoders
    rows = [
        [name, summary(name), summary(name, "rate_per_cpu"), *(times(name, base) for base in decoders)]
        for name in names
    ]
    header = ["all images", "images/s", "a CPU s", *(f"of {base}" for base in decoders)]
    print(f"\n{table(header, rows)}")
    if arguments.cold:
        rows = []
        for text in arguments.spacings:
            name = f"cold {text}"
            if name not in bad:
                read = summarize(values_of(runs, name, "read_share")).text(2)
                rows.append([text, summary(name), times(name, f"cold {arguments.spacings[0]}", "rate"), read])
        print(f"\n{table(['cold', 'images/s', f'of {arguments.spacings[0]}', 'share read'], rows)}")
    outside = max((run.outside_cores for run in runs), default=0.0)
    print(f"\noutside cores: at most {outside:.2f}")
    for name, error in bad.items():
        print(f"\nfailed: {name}: {error}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--spacings", nargs="+", default=list(SPACINGS), metavar="none|row|PIXELS")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured seconds per run, after warm-up")
    parser.add_argument("--images", type=int, default=4000, help="least images per epoch")
    parser.add_argument("--cold", action="store_true", help="also measure with an empty page cache")
    parser.add_argument("--workdir", type=Path, help="folder on the file system to measure")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "entries.json")
    arguments = parser.parse_args(argv)
    for text in arguments.spacings:
        parse_spacing(text)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    parent = arguments.workdir or HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="entries-") as name:
        workdir = Path(name)
        count, left_out = repeat_images(arguments.folder, workdir / "images", arguments.images)
        prepare(workdir / "images", workdir, arguments.spacings)
        candidates = [
            *loaders(arguments, workdir / "images", workdir),
            *others(arguments, workdir / "images", workdir),
        ]
        runs = alternate(candidates, arguments.repeats)
    settings = vars(arguments) | {"epoch_images": count, "files_left_out": left_out}
    write_results(arguments.output, "bench_entries", settings, runs)
    print(" ".join(f"{key}: {value};" for key, value in facts().items()))
    print(
        f"{count} images an epoch, {arguments.repeats} alternating runs, median [min-max]. {arguments.output}"
    )
    report(arguments, runs)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
