"""The node cache: memory of several ranks, epochs from slow storage, and warming beside ``cp``.

    python benchmarks/bench_cache.py --workdir FOLDER [--images IMAGE_FOLDER] [--memory /dev/shm]

It makes its sets below FOLDER, which must lie on a disk, and caches in --memory, a tmpfs; it removes both
afterwards.

``ranks``: proportional set size of 1, 2, 4 and 8 live processes that have each read the whole of one cached
set of --gigabytes (raw pictures of random bytes), each with its own loader. "shared" is the cache: a page
that n processes map counts 1/n in each, so the sum says how often the set is held.

``slow``: two epochs of the train job over --megabytes of JPEGs (drawn, or --images repeated) from a disk
whose reads a cgroup limits to --rate MB/s (0.4 of decode speed if not given), which needs root. Before each
epoch the set is dropped from the page cache, as if other jobs used the memory; "page cache" leaves it there
after the first. "cache of 2/3" has room for two thirds of the set. "disk" is the unlimited disk: it shows
what filling the cache costs in a first epoch that does not wait for storage. "decode speed" has no cache, and
reads from the page cache.

``copy``: ``fastload warm`` beside ``cp -r``, and several of both at once (cp by xargs); from the page cache,
and cold. The clock starts after warm's imports; shards have 64 MB. Eight warms at once are separate
processes, imports included; what counts there is that they read the set once.

The speed of a shared disk changes from second to second: look at the spread before the ratios.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import draw_photos
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
    summarize,
    table,
    values_of,
    write_results,
)
from harness.throttle import NoThrottle, throttled
from sets.images import repeat_images
from sets.random_set import SIDE, write_random

from fastload.packing import PackOptions, pack

HERE = Path(__file__).parent
RECORD = 3 * SIDE * SIDE
SHARD = 64 << 20
SLOWER = 0.4  # storage, of decode speed
DECODE = "decode speed"
FILLERS = 8


def candidate(
    arguments: argparse.Namespace, name: str, action: str, folder: Path, *options: object
) -> Candidate:
    """runs.cache's command line."""
    parts = [action, folder, "--memory", arguments.memory, "--threads", arguments.threads, *options]
    return Candidate(name, child("runs.cache", *parts))


def slow(arguments: argparse.Namespace, folder: Path, rate: float) -> list[Candidate]:
    """Two epochs each, with and without the cache."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    whole, part = ("--cache", f"{2 * size}B"), ("--cache", f"{size * 2 // 3}B")

    def epochs(name: str, *options: object, held: bool = True) -> Candidate:
        storage = ("--rate", rate) if held else ()
        return candidate(arguments, name, "epochs", folder, "--crop", *storage, *options)

    return [
        epochs(DECODE, "--pages", "warm", held=False),
        epochs("slow, no cache"),
        epochs("slow, page cache", "--pages", "keep"),
        epochs("slow, cache", *whole),
        epochs("slow, cache of 2/3", *part),
        epochs("disk, no cache", held=False),
        epochs("disk, cache", *whole, held=False),
    ]


def copies(arguments: argparse.Namespace, folder: Path) -> list[Candidate]:
    """cp and fastload warm, with one and with several threads, from the page cache and from disk."""
    found = []
    for pages, title in (("warm", "page cache"), ("drop", "disk")):
        for count in sorted({1, arguments.threads}):
            for action in ("cp", "warm"):
                name = f"{action} x{count}, {title}"
                options = ("--processes", count, "--pages", pages)
                found.append(candidate(arguments, name, action, folder, *options))
    name = f"{FILLERS} fastload warm at once, disk"
    return [*found, candidate(arguments, name, "fillers", folder, "--processes", FILLERS)]


def rank_rows(runs: Sequence[Run], counts: Sequence[int]) -> list[list[str]]:
    """Memory by number of ranks."""
    good = [run.values for run in runs if run.name == "ranks" and not run.error]
    rows, before = [], None
    for count in counts:
        told = [values[f"x{count}"] for values in good]
        row = [
            str(count),
            *(summarize([one[kind] for one in told]).text() for kind in ("shared", "anonymous")),
        ]
        further = "-"
        if before is not None:
            more = [
                sum(
                    values[f"x{count}"][kind] - values[f"x{before}"][kind] for kind in ("shared", "anonymous")
                )
                for values in good
            ]
            base, ranks = [values["idle"] for values in good], count - before
            further = summarize(
                [all_of / ranks - idle for all_of, idle in zip(more, base, strict=True)]
            ).text()
        rows.append([*row, further, summarize([one["tables"] / count for one in told]).text(1)])
        before = count
    return rows


def report_ranks(runs: Sequence[Run], counts: Sequence[int]) -> None:
    good = [run.values for run in runs if run.name == "ranks" and not run.error]
    if len(good) < MINIMUM_REPEATS:
        return
    set_mb, idle, plan = (summarize([values[name] for values in good]) for name in ("file", "idle", "plan"))
    print(
        f"\nCache file {set_mb.text()} MB; a rank without a loader has {idle.text()} MB of anonymous memory; "
        f"slots by memory_plan() {plan.text()} MB a rank.\n"
    )
    header = [
        "ranks",
        "PSS shared MB",
        "PSS anonymous MB",
        "a further rank's loader MB",
        "page tables MB a rank",
    ]
    print(table(header, rank_rows(runs, counts)))


def epoch_values(runs: Sequence[Run], name: str, number: int, key: str) -> list[float]:
    """A figure of each run's epoch ``number``."""
    return [run.values["epochs"][number][key] for run in runs if run.name == name and not run.error]


def report_epochs(runs: Sequence[Run]) -> None:
    failed = failures(runs)
    names = list(
        dict.fromkeys(run.name for run in runs if run.values.get("epochs") and run.name not in failed)
    )
    rows = []
    fastest = summarize(epoch_values(runs, DECODE, 1, "rate")).median if DECODE in names else float("nan")
    for name in names:
        row = [name]
        for number in (0, 1):
            seconds, cpu, rate = (
                summarize(epoch_values(runs, name, number, key)) for key in ("seconds", "cpu", "rate")
            )
            row += [seconds.text(2), cpu.text(2), f"{rate.median / fastest:.2f}"]
        last = [run.values["epochs"][1] for run in runs if run.name == name]
        reads = [one.get("hits", 0) / max(1, one.get("hits", 0) + one.get("misses", 0)) for one in last]
        rows.append([*row, f"{max(reads):.3f}", f"{max(values_of(runs, name, 'stayed')):.2f}"])
    header = [
        "epochs",
        "1st s",
        "CPU s",
        "of decode speed",
        "2nd s",
        "CPU s",
        "of decode speed",
        "hits",
        "pages that stayed",
    ]
    print(f"\n{table(header, rows)}")


def report_copies(runs: Sequence[Run]) -> None:
    failed = failures(runs)
    names = dict.fromkeys(run.name for run in runs if "read" in run.values and run.name not in failed)
    rows = []
    for name in names:
        rate = summarize([value / 1e6 for value in values_of(runs, name, "rate")])
        cp = f"cp {name.split(' ', 1)[1]}"
        of = (
            f"{rate.median * 1e6 / summarize(values_of(runs, cp, 'rate')).median:.2f}" if cp in names else "-"
        )
        cpu, read = (summarize(values_of(runs, name, key)) for key in ("cpu", "read"))
        rows.append([name, rate.text(), of, cpu.text(2), read.text(2)])
    print(f"\n{table(['to tmpfs', 'MB/s', 'of cp', 'CPU s', 'read from disk / set'], rows)}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", type=Path, required=True, help="folder on a disk")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="folder on a tmpfs")
    parser.add_argument("--images", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["ranks", "slow", "copy"])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the set of raw pictures")
    parser.add_argument("--megabytes", type=float, default=300.0, help="size of the set of JPEGs")
    parser.add_argument(
        "--ranks", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4, 8]
    )
    parser.add_argument(
        "--rate", type=float, default=0.0, help="MB/s of the slow storage (0: 0.4 of decode speed)"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--once", action="store_true", help="run once, and write only the JSON file")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "cache.json")
    return parser.parse_args(argv)


def jpegs(arguments: argparse.Namespace, workdir: Path) -> Path:
    """The set of JPEGs."""
    source = arguments.images
    if source is None:
        source = workdir / "drawn"
        draw_photos.main([str(source), "--count", str(min(200, max(2, int(arguments.megabytes * 10))))])
    sizes = [path.stat().st_size for path in source.rglob("*") if path.is_file()]
    repeat_images(
        source, workdir / "images", max(1, int(arguments.megabytes * 1e6 * len(sizes) / sum(sizes)))
    )
    pack(workdir / "images", workdir / "jpegs", PackOptions(num_proc=1))
    return workdir / "jpegs"


def storage(arguments: argparse.Namespace, folder: Path) -> tuple[float, str]:
    """Bytes a second of the slow storage, and what makes it slow; 0 where nothing can."""
    rate = arguments.rate * 1e6
    if not rate:
        run = run_once(slow(arguments, folder, 0.0)[0])
        if run.error:
            raise SystemExit(run.error)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        rate = SLOWER * size / run.values["epochs"][1]["seconds"]
    try:
        with throttled(folder, int(rate)) as how:
            return rate, f"{rate / 1e6:.1f} MB/s by {how}"
    except NoThrottle as error:
        return 0.0, f"not slow: {error}"


def candidates(arguments: argparse.Namespace, workdir: Path) -> tuple[list[Candidate], str]:
    """Makes the sets; everything that is to be measured, and what slow storage is."""
    found: list[Candidate] = []
    how = ""
    if {"ranks", "copy"} & set(arguments.only):
        write_random(workdir / "raw", "arrow", max(2, int(arguments.gigabytes * 1e9 / RECORD)), SHARD)
    if "ranks" in arguments.only:
        room = ("--cache", f"{int(arguments.gigabytes * 2e9) + (64 << 20)}B")
        counts = ("--counts", ",".join(map(str, arguments.ranks)))
        found.append(candidate(arguments, "ranks", "ranks", workdir / "raw", *room, *counts))
    if "slow" in arguments.only:
        folder = jpegs(arguments, workdir)
        rate, how = storage(arguments, folder)
        found += slow(arguments, folder, rate)
    if "copy" in arguments.only:
        found += copies(arguments, workdir / "raw")
    return found, how


def report(runs: Sequence[Run], arguments: argparse.Namespace, how: str) -> None:
    """Print the tables."""
    if "ranks" in arguments.only:
        report_ranks(runs, arguments.ranks)
    if "slow" in arguments.only:
        print(f"\nSlow storage: {how}. {arguments.megabytes:.0f} MB of JPEGs.")
        report_epochs(runs)
    if "copy" in arguments.only:
        report_copies(runs)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    arguments.workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.workdir, prefix="cache-") as name:
        chosen, how = candidates(arguments, Path(name))
        runs = [run_once(one) for one in chosen] if arguments.once else alternate(chosen, arguments.repeats)
    write_results(arguments.output, "bench_cache", {**vars(arguments), "storage": how}, runs)
    print(" ".join(f"{key}: {value};" for key, value in facts().items()))
    print(
        f"{arguments.gigabytes} GB of raw pictures, {arguments.repeats} alternating runs. {arguments.output}"
    )
    if not arguments.once:
        report(runs, arguments, how)
    for failed, error in failures(runs).items():
        print(f"\nfailed: {failed}: {error}")
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
