"""Packing speed beside ``cp -r`` and other packers, and whether it depends on the size of the set.

    python benchmarks/bench_pack.py IMAGE_FOLDER [--bytes 900MB 3.5GB] [--rivals-in FOLDER]
    python benchmarks/bench_pack.py --annotations 1000000 10000000

The folder's JPEGs are copied into a temporary folder, as often as each size needs; so the page cache is
warm, and every file has its own pages. Candidates take turns, at least five times each. The clock starts
after the imports. fastload syncs all shards to the device before it publishes them, which otherwise only
``cp_sync`` does; ``unsynced`` is fastload without it, for comparison with the others. The interpreters of
``--rivals-in`` run the rivals (see install_rival.sh): FOLDER/wds, FOLDER/mds, FOLDER/litdata, FOLDER/ffcv.

``--annotations``: COCO sets with these numbers of annotations (20 per image, with outlines of 20 points) and
hardly any pixels: annotations per second, and whether memory depends on their number.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
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
    ratio,
    summarize,
    table,
    values_of,
    write_results,
)
from loaders.jobs import is_jpeg
from PIL import Image

from fastload.packing.options import parse_bytes
from fastload.shard.formats import FORMATS

HERE = Path(__file__).parent
EACH = 20  # annotations an image
RIVALS = {"webdataset": "wds", "mds": "mds", "litdata": "litdata", "ffcv": "ffcv"}  # packer, environment


def grow(source: Path, target: Path, at_least: int) -> int:
    """Copy ``source``'s JPEGs into class folders of ``target`` up to so many bytes; returns the files."""
    images = [path for path in sorted(source.rglob("*")) if path.is_file() and is_jpeg(path)]
    if not images:
        raise SystemExit(f"{source} holds no JPEG file.")
    size = count = 0
    while size < at_least:
        for path in images:
            folder = target / (path.relative_to(source).parts[0] if path.parent != source else "all")
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / f"{count:08d}.jpg")
            size += path.stat().st_size
            count += 1
    return count


def write_coco(target: Path, count: int) -> None:
    """A set of COCO's with ``count`` annotations; all images are one small file."""
    (target / "images").mkdir(parents=True)
    (target / "annotations").mkdir()
    Image.new("RGB", (64, 48), (90, 120, 60)).save(target / "images" / "0.jpg")
    images = -(-count // EACH)
    with open(target / "annotations" / "instances.json", "w") as file:
        file.write('{"categories": [{"id": 1, "name": "one"}], "images": [')
        for number in range(images):
            image = {"id": number, "file_name": "0.jpg", "width": 64, "height": 48, "license": 1}
            file.write((",\n" if number else "") + json.dumps(image))
        file.write('], "annotations": [')
        for number in range(count):
            outline = [(number * 7 + at * 13) % 4700 / 100 for at in range(40)]
            box = [number % 40 + 0.5, 1.5, 10.25, 5.75]
            one = {"id": number, "image_id": number * 7919 % images, "category_id": 1, "bbox": box}
            rest = {"area": 51.25, "iscrowd": 0, "segmentation": [outline]}
            file.write((",\n" if number else "") + json.dumps(one | rest))
        file.write("]}")


def coco_candidates(workdir: Path, arguments: argparse.Namespace, label: str) -> list[Candidate]:
    """fastload with each number of processes."""
    line = child("packers.run", "fastload:arrow", workdir / "source", workdir / "target")
    return [
        Candidate(f"arrow x{processes} {label}", [*line, "--processes", str(processes)])
        for processes in arguments.processes
    ]


def candidates(source: Path, workdir: Path, arguments: argparse.Namespace, label: str) -> list[Candidate]:
    """cp, fastload's formats with one and several processes, and the rivals that are installed."""

    def command(python: Path | str, packer: str, processes: int) -> list[str]:
        target = workdir / "fastload-bench-target"
        words = (packer, source, target, "--processes", processes)
        return child("packers.run", *words, python=python)

    found = [Candidate(f"{name} {label}", command(sys.executable, name, 1)) for name in ("cp", "cp_sync")]
    for format_name in FORMATS:
        found.append(
            Candidate(
                f"{format_name} unsynced x1 {label}",
                command(sys.executable, f"fastload:{format_name}-unsynced", 1),
            )
        )
        for processes in arguments.processes:
            name = f"{format_name} x{processes} {label}"
            found.append(Candidate(name, command(sys.executable, f"fastload:{format_name}", processes)))
    private = workdir / "fastload-bench-tmp"
    private.mkdir(exist_ok=True)
    env = {
        name: str(private)
        for name in ("TMPDIR", "DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER")
    }
    for packer, environment in RIVALS.items() if arguments.rivals_in else ():
        python = arguments.rivals_in / environment / "bin" / "python"
        if python.exists():
            processes = max(arguments.processes) if packer in ("litdata", "ffcv") else 1
            found.append(Candidate(f"{packer} x{processes} {label}", command(python, packer, processes), env))
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", metavar="IMAGE_FOLDER")
    parser.add_argument("--bytes", nargs="+", default=["900MB"], metavar="SIZE", help="sizes of the sets")
    parser.add_argument("--annotations", nargs="+", type=int, default=[], metavar="N", help="per COCO set")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--rivals-in", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--workdir", type=Path, help="folder on the file system to measure (default: build/bench)"
    )
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "pack.json")
    arguments = parser.parse_args(argv)
    if arguments.folder is None and not arguments.annotations:
        parser.error("give an IMAGE_FOLDER, or --annotations")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    parent = arguments.workdir or HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    runs: list[Run] = []
    for count in arguments.annotations:
        with tempfile.TemporaryDirectory(dir=parent, prefix="fastload-bench-") as workdir:
            write_coco(Path(workdir, "source"), count)
            runs += alternate(
                coco_candidates(Path(workdir), arguments, f"{count} annotations"), arguments.repeats
            )
    for size in arguments.bytes if arguments.folder is not None else ():
        with tempfile.TemporaryDirectory(dir=parent, prefix="fastload-bench-") as workdir:
            count = grow(arguments.folder, Path(workdir, "source"), parse_bytes(size))
            print(f"{size}: {count} files", file=sys.stderr)
            runs += alternate(
                candidates(Path(workdir, "source"), Path(workdir), arguments, size), arguments.repeats
            )
    write_results(arguments.output, "bench_pack", vars(arguments), runs)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    report_annotations(runs, arguments.annotations)
    report(runs, arguments.bytes if arguments.folder is not None else ())
    return 1 if failures(runs) else 0


def report_annotations(runs: Sequence[Run], counts: Sequence[int]) -> None:
    """Print a table of the sets of COCO's."""
    rows = []
    for count in counts:
        for name in dict.fromkeys(run.name for run in runs if run.name.endswith(f" {count} annotations")):
            if name not in failures(runs):
                rate = summarize([count / seconds for seconds in values_of(runs, name, "seconds")])
                memory = max(run.memory.total for run in runs if run.name == name)
                rows.append(
                    [name, rate.text(0), summarize(values_of(runs, name, "cpu_s")).text(1), f"{memory:.0f}"]
                )
    if rows:
        print(f"\n{table(['packer, processes, set', 'annotations/s', 'CPU s', 'peak PSS MB'], rows)}")


def report(runs: Sequence[Run], sizes: Sequence[str]) -> None:
    """Print a table for each size."""
    failed = failures(runs)
    for size in sizes:
        names = dict.fromkeys(
            run.name for run in runs if run.name.endswith(f" {size}") and run.name not in failed
        )
        copies = summarize(values_of(runs, f"cp {size}", "mb_per_s")) if f"cp {size}" in names else None
        rows = []
        for name in names:
            rate = summarize(values_of(runs, name, "mb_per_s"))
            memory = max(run.memory.total for run in runs if run.name == name)
            outside = max(run.outside_cores for run in runs if run.name == name)
            row = [name, rate.text(), summarize(values_of(runs, name, "images_per_s")).text()]
            row += [f"{ratio(rate, copies):.2f}" if copies else "-"]
            row += [summarize(values_of(runs, name, "cpu_s")).text(2), f"{memory:.0f}", f"{outside:.2f}"]
            rows.append([*row, f"{summarize(values_of(runs, name, 'size_ratio')).median:.3f}"])
        header = [
            "packer, processes, set",
            "MB/s",
            "images/s",
            "of cp",
            "CPU s",
            "peak PSS MB",
            "outside cores",
        ]
        print(f"\n{table([*header, 'bytes out/in'], rows)}")
    for name, error in failed.items():
        print(f"\nfailed: {name}: {error}")


if __name__ == "__main__":
    sys.exit(main())
