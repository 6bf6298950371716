"""Does a core give as much when all cores work? One process with more and more threads, and several.

    python benchmarks/bench_threads.py IMAGE_FOLDER
    python benchmarks/bench_threads.py IMAGE_FOLDER --jobs f32 --cases 1x1,1x2,1x4,2x2

A case PROCESSESxTHREADS has this many ranks of one job with this many threads each. "of a core's" is images
per second and thread over those of 1x1: 1 if cores do not hinder each other. The columns beside it explain
what is missing:

- "busy": CPU time over threads and wall time, the consumer's included. Below 1, threads wait for records,
  slots or locks;
- "an image's CPU time": over that of 1x1. Above 1 each image costs more: caches, memory, clock, hyperthreads;
- "idle": the share of the threads' time in which the loader had nothing for them to do;
- "waits": the share of time that the consumer spent in next(). Near 0, the consumer itself is the limit.

Two jobs measure the machine in place of the loader, with one process per thread: "arithmetic" stays in
registers, "copy" (its rate is MB/s) never leaves memory. 16x1 of a loader's job shares nothing but the
machine: what 1x16 lacks beside it is the loader's fault.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.children import child
from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import (
    MINIMUM_REPEATS,
    Candidate,
    Run,
    check_repeats,
    failures,
    summarize,
    table,
    values_of,
    write_results,
)
from harness.turns import take_turns
from scaling.work import CONTROLS, JOBS, PACKS, TORCH
from sets.images import repeat_images

HERE = Path(__file__).resolve().parent
COLUMNS = (
    "processes x threads",
    "images/s",
    "a thread",
    "of a core's",
    "busy",
    "an image's CPU time",
    "idle",
    "waits",
)
Case = tuple[int, int]


def cases_of(text: str) -> list[Case]:
    """ "1x1,2x8" as pairs."""
    found = [(int(one), int(other)) for one, _, other in (case.partition("x") for case in text.split(","))]
    if any(processes < 1 or threads < 1 for processes, threads in found):
        raise argparse.ArgumentTypeError(f"a case is PROCESSESxTHREADS, both at least 1. Found: {text!r}")
    return found


def default_cases(cores: int) -> list[Case]:
    """One process with 1, 2, 4, ... threads; then ranks, and a process for each core."""
    counts = sorted({2**power for power in range(12) if 2**power < cores} | {cores})
    ranks = [(number, cores // number) for number in (2, 4, cores) if 1 < number <= cores]
    return list(dict.fromkeys([(1, count) for count in counts] + ranks))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    names = [*JOBS, *TORCH, *CONTROLS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="IMAGE_FOLDER")
    add("--jobs", type=lambda text: text.split(","), default=names, help=",".join(names))
    add("--cases", type=cases_of, default=default_cases(cores), metavar="1x1,1x2,2x2")
    add("--repeats", type=int, default=MINIMUM_REPEATS)
    add("--seconds", type=float, default=2.0, help="seconds per round (%(default)s)")
    add("--images", type=int, default=8000, help="least files per epoch (%(default)s)")
    add("--output", type=Path, default=HERE.parent / "build" / "bench" / "threads.json")
    options = parser.parse_args(argv)
    unknown = set(options.jobs) - set(names)
    if unknown:
        parser.error(f"there is no job {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    return options


def cases_for(job: str, cases: Sequence[Case]) -> list[Case]:
    """torch's workers are processes already; the controls have no threads."""
    most = max(processes * threads for processes, threads in cases)
    if job in TORCH:
        return list(dict.fromkeys([case for case in cases if case == (1, 1)] + [(1, most)]))
    if job in CONTROLS:
        return list(dict.fromkeys([(1, 1), (most, 1)]))
    return list(cases)


def name_of(job: str, case: Case) -> str:
    return f"{job} | {case[0]}x{case[1]}"


def measure_in(options: argparse.Namespace, workdir: Path) -> list[Run]:
    """A job after the other; its cases take turns."""
    repeat_images(options.folder, workdir / "images", options.images)
    for pack in dict.fromkeys(JOBS[job].pack for job in options.jobs if job in JOBS):
        pack_folder(workdir / "images", workdir / pack, *PACKS[pack])
    runs: list[Run] = []
    for job in options.jobs:
        candidates = []
        for processes, threads in cases_for(job, options.cases):
            words = ["--folder", workdir, "--processes", processes, "--threads", threads]
            words += ["--seconds", options.seconds]
            name = name_of(job, (processes, threads))
            candidates.append(Candidate(name, child("scaling.run", job, *words)))
        runs += take_turns(candidates, options.repeats)
    return runs


def tables(runs: Sequence[Run], options: argparse.Namespace) -> str:
    """A table a job, then what failed."""
    failed, sections = failures(runs), []
    for job in options.jobs:
        cases = [case for case in cases_for(job, options.cases) if name_of(job, case) not in failed]
        if cases:
            base = next((case for case in cases if case == (1, 1)), cases[0])
            rows = [row(runs, job, case, base) for case in cases]
            sections.append(f"### {job}\n\n{table(COLUMNS, rows)}")
    sections += [f"- {name}: FAILED: {error.strip().splitlines()[-1]}" for name, error in failed.items()]
    return "\n\n".join(sections)


def row(runs: Sequence[Run], job: str, case: Case, base: Case) -> list[str]:
    """One case's figures."""
    name, first, cores = name_of(job, case), name_of(job, base), case[0] * case[1]

    def median(key: str) -> float:
        return summarize(values_of(runs, name, key)).median

    rate = summarize(values_of(runs, name, "rate"))
    alone = summarize(values_of(runs, first, "rate")).median
    cost = median("cores") / rate.median
    once = summarize(values_of(runs, first, "cores")).median / alone
    clocks = ["-", "-"]
    if any("waits" in run.values for run in runs if run.name == name):
        clocks = [f"{median('prefetch'):.2f}", f"{median('waits'):.2f}"]
    return [
        f"{case[0]} x {case[1]}",
        rate.text(),
        f"{rate.median / cores:.0f}",
        f"{rate.median / cores / (alone / (base[0] * base[1])):.2f}",
        f"{median('cores') / cores:.2f}",
        f"{cost / once:.2f}",
        *clocks,
    ]


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    check_repeats(options.repeats)
    parent = HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="threads-") as workdir:
        runs = measure_in(options, Path(workdir))
    write_results(options.output, "bench_threads", vars(options), runs)
    text = tables(runs, options)
    options.output.with_suffix(".md").write_text(text + "\n")
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print(f"Median [min-max] of {options.repeats} rounds. Data: {options.output}\n")
    print(text)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
