"""The tables of the field's well-known articles about data loading, measured here, with pictures.

    python benchmarks/bench_articles.py IMAGE_FOLDER
    python benchmarks/bench_articles.py --tables mnist
    python benchmarks/bench_articles.py IMAGE_FOLDER --tables lmdb,batch --quick

mnist: five epochs of 28x28 digits with torch's 0 workers, 8, 8 and pinned, and with fastload. lmdb: read in
order and shuffled, from disk and from tmpfs. batch: time of load, copy, forward, backward and step. threads:
a sweep of their number. ladder: baseline, then I/O, then AMP, then DataParallel against DDP. The cases of a
table take turns, each in a process that stays alive, for at least five rounds; a table has their median and
range. Each table is written as JSON, Markdown and, with matplotlib, as PNG and SVG.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from articles.plots import draw, has_matplotlib
from articles.setting import Setting
from harness.children import child
from harness.machine import facts
from harness.measure import MINIMUM_REPEATS, Candidate, Run, check_repeats, failures, write_results
from harness.turns import take_turns
from sets.images import repeat_images
from starvation.tables import failed_feeds, reason_of

HERE = Path(__file__).resolve().parent
# table: module, its title, whether it needs images
TABLES = {
    "mnist": ("mnist", "MNIST, five epochs", False),
    "lmdb": ("lmdb_order", "LMDB in order and shuffled, from disk and from tmpfs", True),
    "batch": ("batch_parts", "The parts of a step", True),
    "threads": ("threads", "Number of threads", True),
    "ladder": ("ladder", "One change after the other", True),
}
QUICK = {"seconds": 0.2, "digits": 1000, "count": 80}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, nargs="?", metavar="IMAGE_FOLDER", help="not needed for mnist")
    add("--tables", type=lambda text: text.split(","), default=list(TABLES), help=",".join(TABLES))
    add("--device", choices=("cuda", "cpu"), help="device (default: cuda if there is one)")
    add(
        "--quick",
        action="store_true",
        help="few records and short rounds, to try everything without measuring",
    )
    add("--mnist", type=Path, metavar="FOLDER", help="folder of MNIST's files (default: digits drawn here)")
    add("--digits", type=int, default=60_000, help="records of the mnist table (%(default)s)")
    add("--count", type=int, default=2000, help="least images per epoch (%(default)s)")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads (default: the cores)")
    add("--ranks", type=int, default=0, help="processes of the DDP rung (default: the GPUs)")
    add("--model", help="model (default: resnet50, on the CPU resnet8)")
    add("--batch", type=int, help="batch size (default: 256, on the CPU 16)")
    add("--size", type=int, help="side of the crops in pixels (default: 224, on the CPU 64)")
    add("--repeats", type=int, default=MINIMUM_REPEATS)
    add("--seconds", type=float, default=2.0, help="seconds per round (%(default)s)")
    add("--budget", type=float, help="time limit in seconds, after which no round begins")
    add("--output", type=Path, default=HERE.parent / "build" / "bench" / "articles", metavar="FOLDER")
    options = parser.parse_args(argv)
    if options.quick:
        for name, value in QUICK.items():
            setattr(options, name, value)
    unknown = set(options.tables) - set(TABLES)
    if unknown:
        parser.error(f"there is no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    if options.folder is None and any(TABLES[name][2] for name in options.tables):
        parser.error("these tables need an IMAGE_FOLDER; only mnist does not")
    if options.folder is not None and not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    return options


def make_setting(options: argparse.Namespace, workdir: Path) -> Setting:
    """The arguments with the defaults of the device."""
    import torch

    gpus = torch.cuda.device_count()
    gpu = options.device == "cuda" or (options.device is None and gpus > 0)
    return Setting(
        workdir=str(workdir),
        images=str(workdir / "images"),
        device="cuda" if gpu else "cpu",
        gpus=gpus,
        threads=options.threads,
        batch=options.batch or (256 if gpu else 16),
        size=options.size or (224 if gpu else 64),
        model=options.model or ("resnet50" if gpu else "resnet8"),
        amp="bf16" if gpu else "off",
        seconds=options.seconds,
        digits=options.digits,
        mnist=str(options.mnist) if options.mnist else "",
        ranks=options.ranks,
    )


def measure_table(name: str, setting: Setting, options: argparse.Namespace, until: float) -> list[Run]:
    """All rounds of one table, written as JSON, Markdown and pictures, and printed."""
    file, title, _ = TABLES[name]
    module: Any = importlib.import_module(f"articles.{file}")
    module.prepare(setting)
    candidates = [
        Candidate(case, child("articles.run", file, case, setting.to_json()))
        for case in module.cases(setting)
    ]
    runs = take_turns(candidates, options.repeats, until=until)
    write_results(options.output / f"{name}.json", f"bench_articles {name}", vars(options), runs)
    text = f"### {title}\n\n{module.report(runs, setting)}"
    reasons = [
        f"- {case}: {reason_of(error) or 'FAILED: ' + error.strip().splitlines()[-1]}"
        for case, error in failures(runs).items()
    ]
    text += "\n\nNot measured:\n\n" + "\n".join(reasons) if reasons else ""
    (options.output / f"{name}.md").write_text(text + "\n")
    print(text + "\n", flush=True)
    if has_matplotlib() and len(failures(runs)) < len(candidates):
        draw(module.chart(runs, setting), options.output / name)
    return runs


def main(argv: Sequence[str] | None = None) -> int:
    started = time.monotonic()
    options = parse(argv)
    check_repeats(options.repeats)
    options.output.mkdir(parents=True, exist_ok=True)
    parent = HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()) + "\n")
    failed = False
    with tempfile.TemporaryDirectory(dir=parent, prefix="articles-") as workdir:
        setting = make_setting(options, Path(workdir))
        if options.folder is not None:
            repeat_images(options.folder, Path(setting.images), options.count)
        for number, name in enumerate(options.tables, 1):
            share = number / len(options.tables)
            until = started + options.budget * share if options.budget else float("inf")
            failed |= bool(failed_feeds(measure_table(name, setting, options, until)))
    if not has_matplotlib():
        print("No pictures: matplotlib is not installed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
