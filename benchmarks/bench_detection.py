"""Detection, segmentation, image and text: whole loaders beside torchvision, Ultralytics and WebDataset.

    python benchmarks/bench_detection.py IMAGE_FOLDER --rivals-in FOLDER
    python benchmarks/bench_detection.py IMAGE_FOLDER --rivals torchvision=ENV/bin/python --jobs ssd,frcnn
    python benchmarks/bench_detection.py IMAGE_FOLDER --rivals-in FOLDER --rivals-only

The set is made: shapes pasted on the photographs of IMAGE_FOLDER, whose boxes, outlines and masks are known
(tests/reference/made_detection.py). Each side reads it in its own form and makes the same batches:

    ssd        photometric distortion, zoom-out, IoU crop, 320x320, flip, float32; lists of targets
    frcnn      shortest side 480 to 800, longest 1333, flip, float32, padded to the batch's largest
    lsj        large-scale jitter to 1024x1024 with a mask of each object
    letterbox  640x640 with boxes, uint8, as Ultralytics validates
    mosaic     four pictures, translated and scaled, 640x640, uint8, as Ultralytics trains (no colours)
    mask       a picture and its mask of classes, RandomResizedCrop(512), flip
    clip       bicubic RandomResizedCrop(224, (0.9, 1)), normalised, and its caption's tokens, from tars

Loaders take turns within one job: first one round of each way that the rival has (Pillow's pictures or
tensors, OpenCV with one thread or its own choice, each with --workers), then --repeats rounds of fastload
and of the rival's best way, in turn. All are warm: epoch after epoch, from the page cache.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from detection.fastload import LOADERS, prepare
from detection.jobs import JOBS, Job
from detection.sets import make_forms
from harness.children import child
from harness.machine import busy_seconds, facts
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
from harness.turns import Failed, Server

HERE = Path(__file__).parent
ENVIRONMENTS = {"torchvision": "torch_pil", "ultralytics": "ultralytics", "webdataset": "wds"}
START = 120.0  # seconds for a loader's first batch
OURS = "fastload"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--jobs", help="jobs (default: all that fastload has; with --rivals-only all)")
    parser.add_argument(
        "--rivals", default="", help="torchvision=PYTHON,ultralytics=PYTHON,webdataset=PYTHON"
    )
    parser.add_argument(
        "--rivals-in", type=Path, help="where install_rival.sh made torch_pil, ultralytics, wds"
    )
    parser.add_argument("--rivals-only", action="store_true", help="run the rivals alone, for all jobs")
    parser.add_argument("--count", type=int, default=2000, help="pictures in the set")
    parser.add_argument("--workers", default="2,3", help="worker counts that the rivals may choose from")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="its threads")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per round")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--work", type=Path, help="folder that keeps the sets for the next run")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "detection.json")
    options = parser.parse_args(argv)
    check_repeats(options.repeats)
    names = options.jobs.split(",") if options.jobs else JOBS if options.rivals_only else LOADERS
    options.jobs = [JOBS[name] for name in names]
    return options


def interpreters(options: argparse.Namespace) -> dict[str, str]:
    """Rival -> the Python of its environment."""
    found = {}
    for rival, name in ENVIRONMENTS.items():
        if options.rivals_in is not None and (python := options.rivals_in / name / "bin" / "python").exists():
            found[rival] = str(python)
    return found | dict(pair.split("=", 1) for pair in options.rivals.split(",") if pair)


def candidates(job: Job, options: argparse.Namespace, work: Path) -> list[Candidate]:
    """fastload, and each way of the rival."""
    pythons = interpreters(options)
    found = []
    rest = ["--work", str(work), "--seconds", str(options.seconds)]
    if not options.rivals_only:
        ours = [OURS, job.name, *rest, "--workers", str(options.threads)]
        found.append(Candidate(OURS, child("detection.run", *ours)))
    if job.rival in pythons:
        for variant in job.variants:
            for workers in options.workers.split(","):
                words = [job.rival, job.name, *rest, "--workers", workers]
                words += ["--variant", variant] if variant else []
                name = f"{job.rival}{variant and ' ' + variant}, {workers} workers"
                given = child("detection.run", *words, python=pythons[job.rival])
                found.append(Candidate(name, given, {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"}))
    return found


@contextlib.contextmanager
def started(servers: Sequence[Server]) -> Iterator[tuple[list[Server], list[Run]]]:
    """Those that came up, and what the others said."""
    alive, failed = [], []
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        for server in servers:
            try:
                server.answer(START)
                server.ask("start")
                server.answer(START)
                alive.append(server)
            except Failed as error:
                failed.append(Run(server.name, 0, {}, str(error)))
        yield alive, failed


def one_round(server: Server, number: int) -> Run:
    """One measurement."""
    begin, busy = time.monotonic(), busy_seconds()
    server.ask("round")
    try:
        values = server.answer(START)
    except Failed as error:
        return Run(server.name, number, {}, str(error), time.monotonic() - begin)
    wall = time.monotonic() - begin
    outside = max(0.0, busy_seconds() - busy - float(values["cpu_seconds"])) / wall
    return Run(server.name, number, values, "", wall, outside_cores=outside)


def measured(job: Job, options: argparse.Namespace, work: Path) -> list[Run]:
    """The rounds of one job; of the rival's ways only the best one's are kept."""
    with started([Server(one) for one in candidates(job, options, work)]) as (alive, runs):
        ours = [server for server in alive if server.name == OURS]
        tried = {server: one_round(server, 0) for server in alive if server.name != OURS}
        for server, run in tried.items():
            told = run.error or f"{run.values['rate']:.0f} samples/s"
            print(f"{job.name}: {server.name}: {told}", file=sys.stderr, flush=True)
        good = [server for server, run in tried.items() if not run.error]
        best = max(good, key=lambda server: tried[server].values["rate"], default=None)
        for server in good:
            if server is not best:
                server.__exit__(None, None, None)
        turn = [*ours, *([best] if best is not None else [])]
        runs += [run for run in tried.values() if run.error]
        for number in range(options.repeats):
            runs += [one_round(server, number) for server in turn[:: 1 if number % 2 else -1]]
    return [Run(f"{job.name} | {run.name}", *list(vars(run).values())[1:]) for run in runs]


def row(job: Job, runs: Sequence[Run]) -> tuple[str, ...]:
    """The job's line of the table."""
    failed = failures(runs)
    names = {run.name for run in runs} - set(failed)
    ours = next((name for name in names if name.endswith(f"| {OURS}")), None)
    theirs = next((name for name in names if name != ours), None)
    cells, rates = [], []
    for name in (ours, theirs):
        if name is None:
            cells += ["-", "-", "-"]
            continue
        rate = summarize(values_of(runs, name, "rate"))
        micros = [summarize(values_of(runs, name, key)).median for key in ("micros", "cpu_micros")]
        rates.append(rate.median)
        cells += [rate.text(), *(f"{micro:.0f}" for micro in micros)]
    ratio = f"{rates[0] / rates[1]:.1f}" if len(rates) == 2 else "-"
    way = theirs.split(" | ")[1] if theirs else job.rival
    return job.name, *cells[:3], way, *cells[3:], ratio, f"{job.goal:.0f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parse(argv)
    print(f"{facts()['cpu']}, {facts()['cores']} cores")
    with contextlib.ExitStack() as stack:
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_forms(work, options.images, options.count)
        if not options.rivals_only:
            prepare(work, {job.name for job in options.jobs})
        runs, rows = [], []
        for job in options.jobs:
            found = measured(job, options, work)
            rows.append(row(job, found))
            runs += found
    each = ("samples/s", "us a sample", "CPU us a sample")
    print("\n" + table(("job", f"{OURS}, {each[0]}", *each[1:], "rival", *each, "ratio", "goal"), rows))
    for name, error in failures(runs).items():
        print(f"\n{name}: {error}")
    write_results(options.output, "detection", vars(options), runs)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
