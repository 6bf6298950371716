"""What fastload.DataLoader(backend="dali") adds to a DALI pipeline that does the same work.

    python benchmarks/bench_dali.py IMAGE_FOLDER
    python benchmarks/bench_dali.py IMAGE_FOLDER --device cuda

    python benchmarks/bench_dali.py IMAGE_FOLDER --ways bare,records,rebuilt,native

It needs DALI in this interpreter's environment (pip install "fastload[dali]"). runs/dali.py has the ways.
Each is one process; they take turns, and rest until nothing is being loaded ahead. A ratio compares the two
figures of a round: an image's time, and CPU time, over the bare pipeline's. CPU time is the process's, its
rest included. The loader's addition is work of the consumer's thread: look at its CPU time if the machine is
busy (the bare pipeline's is for feeding, which the loader also does). The ways ``records`` and ``rebuilt``
read a set of coefficient records, the others the JPEGs.
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
    Summary,
    check_repeats,
    failures,
    summarize,
    table,
    write_results,
)
from harness.turns import take_turns

HERE = Path(__file__).parent
WAYS = ("bare", "fused", "loader", "native")
OF_RECORDS = ("records", "rebuilt")  # ways that read coefficient records
BASELINE = "bare"
HEADER = ("job", "way", "images/s", "time / bare", "CPU time / bare", "consumer's thread, ms a batch")


def plan(arguments: argparse.Namespace, packed: Path) -> list[Candidate]:
    """A candidate for each job and way."""
    found = []
    for job in arguments.jobs:
        for way in arguments.ways:
            line = child("runs.dali", way, "--job", job)
            line += ["--images", str(arguments.folder), "--packed", str(packed), "--device", arguments.device]
            line += ["--records", str(packed.with_name("coefficients"))] if way in OF_RECORDS else []
            line += ["--threads", str(arguments.threads), "--batches", str(arguments.batches)]
            found.append(Candidate(f"{job} | {way}", line))
    return found


def ratios(runs: Sequence[Run], name: str, baseline: str, cpu: bool) -> Summary:
    """Of each round's two figures: the time of ``name`` by that of ``baseline``."""

    def seconds(run: Run) -> float:
        images = float(run.values["images"])
        return float(run.values["cpu_seconds"]) / images if cpu else 1.0 / float(run.values["rate"])

    bases = {run.round: seconds(run) for run in runs if run.name == baseline and run.values}
    return summarize(
        [seconds(run) / bases[run.round] for run in runs if run.name == name and run.round in bases]
    )


def rows(arguments: argparse.Namespace, runs: Sequence[Run]) -> list[list[str]]:
    """A row for each way that ran to the end."""
    found = []
    for job in arguments.jobs:
        for way in arguments.ways:
            name = f"{job} | {way}"
            own = [run for run in runs if run.name == name and run.values]
            if len(own) < arguments.repeats:
                found.append([job, way, failures(runs).get(name, "did not run")[-90:], "", "", ""])
                continue
            rate = summarize([float(run.values["rate"]) for run in own]).text()
            pair = [ratios(runs, name, f"{job} | {BASELINE}", cpu).text(3) for cpu in (False, True)]
            own_thread = summarize([float(run.values["thread_ms"]) for run in own]).text(2)
            found.append([job, way, rate, *pair, own_thread])
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=["train_u8", "train_f32"])
    parser.add_argument(
        "--ways",
        type=lambda text: text.split(","),
        default=list(WAYS),
        help=f"some of {','.join((*WAYS, *OF_RECORDS))}",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batches", type=int, default=20, help="batches of 128 images per round")
    parser.add_argument("--repeats", type=int, default=2 * MINIMUM_REPEATS)
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "dali.json")
    arguments = parser.parse_args(argv)
    if BASELINE not in arguments.ways:
        parser.error(f"--ways must have {BASELINE}, which the others are compared with")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    parent = HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="dali-") as workdir:
        packed = Path(workdir) / "packed"
        pack_folder(arguments.folder, packed)
        if set(OF_RECORDS) & set(arguments.ways):
            pack_folder(arguments.folder, packed.with_name("coefficients"), "--coefficients")
        runs: list[Run] = []
        for job in arguments.jobs:
            chosen = [entry for entry in plan(arguments, packed) if entry.name.startswith(f"{job} ")]
            runs += take_turns(chosen, arguments.repeats)
    write_results(arguments.output, "bench_dali", vars(arguments), runs)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print(
        f"{arguments.repeats} rounds of {arguments.batches} batches in turn, {arguments.threads} threads,",
        end=" ",
    )
    print(f"{arguments.device}; median [min-max]. Data: {arguments.output}\n")
    print(table(HEADER, rows(arguments, runs)))
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
