"""Whole loaders on one image folder: fastload, torch's DataLoader with Pillow, and installed rivals.

    python benchmarks/bench_loader.py IMAGE_FOLDER
    python benchmarks/bench_loader.py IMAGE_FOLDER --rivals-in FOLDER --one-thread
    python benchmarks/bench_loader.py IMAGE_FOLDER --rivals-in FOLDER --sweep    # each at its best
    python benchmarks/bench_loader.py IMAGE_FOLDER --rivals dali_fused=/envs/dali/bin/python tf=...

The jobs are in loaders/jobs.py; what each candidate computes is in loaders/candidates/ and README.md. Images
per second are counted over whole rounds of batches after a warm-up; the consumer does nothing but take
batches. "First batch" is from the start of the process, imports included; "after imports" leaves those out.
"workers" are threads if a loader has them. Memory is the peak PSS of all processes of the run, in MB:
anonymous + mapped files. "kB an image" is what a candidate reads of the set that it wrote, or of the files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
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
    write_results,
)
from loaders.candidate import find, names
from loaders.jobs import JOBS
from loaders.sweep import Workers, counts, sweep, use_cpus
from loaders.tables import tables
from sets.images import bytes_below, repeat_images

HERE = Path(__file__).parent
BASELINE = "torch_pil"
DEFAULT_JOBS = ("train_u8", "train_f32", "val_u8")


def expand(name: str, python: str) -> dict[str, str]:
    """``name`` and its interpreter; a candidate named without a variant stands for all it has."""
    module, variant = find(name)
    if variant or not module.VARIANTS or name == "fastload":
        return {name: python}
    return {f"{name}_{variant}": python for variant in module.VARIANTS}


def candidates_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Name -> interpreter: fastload and the baseline with this one, then the rivals asked for."""
    chosen: dict[str, str] = {"fastload": sys.executable, BASELINE: sys.executable}
    for folder in arguments.rivals_in:
        for name in names():
            python = folder / name / "bin" / "python"
            if python.exists():
                chosen |= expand(name, str(python))
    for rival in arguments.rivals:
        name, _, python = rival.partition("=")
        chosen |= expand(name, python or sys.executable)
    if arguments.only:
        unknown = set(arguments.only) - set(chosen)
        if unknown:
            raise SystemExit(f"--only names {', '.join(sorted(unknown))}; there are {', '.join(chosen)}.")
        chosen = {name: python for name, python in chosen.items() if name in arguments.only}
    return chosen


def prepare_all(chosen: dict[str, str], images: Path, workdir: Path) -> list[Run]:
    """Let every candidate write what it reads, unless an earlier run did; failed ones leave ``chosen``."""
    failed = []
    for name in list(chosen):
        own = workdir / name
        if (own / "prepared").exists():
            continue
        shutil.rmtree(own, ignore_errors=True)
        run = run_once(Candidate(name, command(chosen[name], name, "prepare", images, own)), timeout=3600)
        print(f"prepare {name}: {run.error or f'{run.wall:.1f} s'}", file=sys.stderr, flush=True)
        if run.error:
            failed.append(run)
            del chosen[name]
        else:
            (own / "prepared").touch()
    return failed


def command(python: str, name: str, action: str, images: Path, workdir: Path) -> list[str]:
    """loaders.candidate's command line, without the options of a run."""
    options = ("--folder", images, "--workdir", workdir)
    return child("loaders.candidate", name, action, *options, python=python)


def entry(
    arguments: argparse.Namespace, name: str, python: str, job: str, threads: int, place: Path
) -> Candidate:
    """One candidate at one job, with so many threads or workers."""
    options = ["--job", job, "--threads", str(threads), "--seconds", str(arguments.seconds)]
    line = command(python, name, "run", place / "images", place / name) + options
    return Candidate(f"{job} | {name}", line, reads=(place / "images", place / name))


def workers_of(arguments: argparse.Namespace, chosen: dict[str, str], place: Path) -> Workers:
    """Each candidate's threads or workers: --threads, its best of a sweep, or what --workers says."""
    found = Workers(dict.fromkeys(chosen, arguments.threads))
    if arguments.sweep:
        quick = argparse.Namespace(**{**vars(arguments), "seconds": arguments.sweep_seconds})
        job = arguments.jobs[0]

        def at(name: str, count: int) -> Candidate:
            return entry(quick, name, chosen[name], job, count, place)

        found = sweep(list(chosen), arguments.sweep, at)
    given = (item.partition("=") for item in arguments.workers)
    found.chosen.update({name: int(count) for name, _, count in given if name in chosen})
    return found


def plan(
    arguments: argparse.Namespace, chosen: dict[str, str], workers: dict[str, int], place: Path
) -> list[Candidate]:
    """One entry per case (job and number of threads) and candidate; the entry's name is "case name"."""
    cases = [(job, 0) for job in arguments.jobs]
    if arguments.one_thread:
        cases += [(job, 1) for job in arguments.jobs if JOBS[job].train]
    entries = []
    for job, fixed in cases:
        for name, python in chosen.items():
            one = entry(arguments, name, python, job, fixed or workers[name], place)
            label = f"{job} one thread" if fixed else job
            entries.append(replace(one, name=f"{label} | {name}"))
    return entries


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--rivals", nargs="+", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--rivals-in", nargs="+", type=Path, default=[], metavar="FOLDER",
                        help="folder of the rivals that install_rival.sh made")  # fmt: skip
    parser.add_argument("--only", type=lambda text: text.split(","), help="candidates, by comma")
    parser.add_argument("--baseline", default=BASELINE)
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured seconds per run, after warm-up")
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=list(DEFAULT_JOBS),
                        help=f"some of {','.join(JOBS)}")  # fmt: skip
    parser.add_argument("--threads", type=int, help="threads per candidate (default: the cores)")
    parser.add_argument("--workers", nargs="+", default=[], metavar="NAME=N", help="workers if not --threads")
    parser.add_argument("--sweep", nargs="?", const="", metavar="N,N",
                        help="try these counts of workers at the first job, and measure each candidate with"
                        " its best; without counts: 1, and 1, 1.5 and 2 times the cores")  # fmt: skip
    parser.add_argument("--sweep-seconds", type=float, default=1.0, help="seconds per try")
    parser.add_argument("--cpus", type=int, help="number of CPUs to run on")
    parser.add_argument("--one-thread", action="store_true", help="also run the train jobs with one thread")
    parser.add_argument("--images", type=int, default=8000, help="least files per epoch")
    parser.add_argument("--workdir", type=Path, help="folder that keeps what candidates write")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "loader.json")
    arguments = parser.parse_args(argv)
    if arguments.cpus:
        use_cpus(arguments.cpus)
    if arguments.threads is None:
        arguments.threads = len(os.sched_getaffinity(0))
    if arguments.sweep is not None:
        arguments.sweep = counts(arguments.sweep)
    unknown = set(arguments.jobs) - set(JOBS)
    if unknown:
        parser.error(f"there is no job {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}")
    if not arguments.folder.is_dir():
        parser.error(f"{arguments.folder} is not a folder")
    return arguments


def kilobytes(chosen: dict[str, str], images: Path, workdir: Path, count: int) -> dict[str, float]:
    """Of each candidate's set, an image; of the files where it wrote none."""
    return {name: (bytes_below(workdir / name) or bytes_below(images)) / count / 1e3 for name in chosen}


def measure_in(arguments: argparse.Namespace, workdir: Path) -> int:
    """The whole benchmark in ``workdir``; the exit status."""
    chosen = candidates_of(arguments)
    key = f"{arguments.folder.resolve()} {arguments.images}".encode()
    workdir = workdir / hashlib.blake2b(key, digest_size=6).hexdigest()
    images = workdir / "images"
    shutil.rmtree(images, ignore_errors=True)
    count, others = repeat_images(arguments.folder, images, arguments.images)
    unprepared = prepare_all(chosen, images, workdir)
    workers = workers_of(arguments, chosen, workdir)
    entries = plan(arguments, chosen, workers.chosen, workdir)
    runs = unprepared + alternate(entries, arguments.repeats)
    sizes = kilobytes(chosen, images, workdir, count)
    settings = vars(arguments) | {"epoch_images": count, "files_left_out": others}
    more = {"workers": workers.chosen, "sweep": workers.rates, "kb_an_image": sizes}
    write_results(arguments.output, "bench_loader", settings, runs, **more)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print(f"{count} images an epoch, {others} files left out, {arguments.repeats} alternating runs,", end=" ")
    print(f"median [min-max]. Data: {arguments.output}\n")
    if workers.rates:
        print(f"{workers.table()}\n")
    print(tables(entries, runs, arguments.baseline, sizes))
    return 1 if failures(runs) else 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    if arguments.workdir:
        return measure_in(arguments, arguments.workdir)
    parent = HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="loader-") as workdir:
        return measure_in(arguments, Path(workdir))


if __name__ == "__main__":
    sys.exit(main())
