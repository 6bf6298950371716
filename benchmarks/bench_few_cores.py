"""Which back end feeds a GPU that has few cores beside it? The share of synthetic batches' rate, by cores.

    python benchmarks/bench_few_cores.py IMAGE_FOLDER                        # on a GPU; 2, 4 and 6 cores
    python benchmarks/bench_few_cores.py IMAGE_FOLDER --device cpu --cores 1 # to try it

As bench_starvation.py, but a training process, its loader's threads included, is limited to a number of
cores. The loaders have one thread or worker per core. ``fastload_dali_auto`` has both decoders at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_starvation import cuda_is_there, device_name
from harness.children import child
from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import MINIMUM_REPEATS, Candidate, Run, run_once, summarize, table, write_results
from sets.images import repeat_images

HERE = Path(__file__).resolve().parent
FEEDS = ("fastload", "fastload_coefficients", "fastload_dali", "fastload_dali_auto", "torch_pil")
COLUMNS = ("feed", "cores", "images/s", "of synthetic", "data wait, share", "cores in use")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="IMAGE_FOLDER")
    add("--device", choices=("cuda", "cpu"), help="device (default: cuda if there is one)")
    add(
        "--models",
        type=lambda text: text.split(","),
        help="models (default: resnet18,resnet50,vit_s; on the CPU resnet8)",
    )
    add("--feeds", type=lambda text: text.split(","), default=list(FEEDS), help=",".join(FEEDS))
    add("--cores", default="2,4,6", help="numbers of cores (%(default)s)")
    add("--amp", choices=("off", "bf16", "fp16"), help="mixed precision (default: bf16; on the CPU off)")
    add("--batch", type=int, help="images per step (default: 128, on the CPU 16)")
    add("--size", type=int, help="side of the crops in pixels (default: 224, on the CPU 64)")
    add("--rounds", type=int, default=MINIMUM_REPEATS)
    add("--seconds", type=float, default=1.0, help="seconds per round (%(default)s)")
    add("--images", type=int, default=8000, help="least files per epoch (%(default)s)")
    add("--output", type=Path, default=HERE.parent / "build" / "bench" / "few_cores.json")
    options = parser.parse_args(argv)
    options.device = options.device or ("cuda" if cuda_is_there() else "cpu")
    gpu = options.device == "cuda"
    options.models = options.models or (["resnet18", "resnet50", "vit_s"] if gpu else ["resnet8"])
    options.amp = options.amp or ("bf16" if gpu else "off")
    options.batch = options.batch or (128 if gpu else 16)
    options.size = options.size or (224 if gpu else 64)
    most = max(int(part) for part in options.cores.split(","))
    if most > len(os.sched_getaffinity(0)):
        parser.error(f"--cores: there are {len(os.sched_getaffinity(0))} here. Found: {options.cores}")
    if unknown := set(options.feeds) - set(FEEDS):
        parser.error(f"there is no feed {', '.join(sorted(unknown))}; there are {', '.join(FEEDS)}")
    return options


def measure_in(options: argparse.Namespace, workdir: Path) -> list[Run]:
    """A process a model."""
    repeat_images(options.folder, workdir / "images", options.images)
    pack_folder(workdir / "images", workdir / "packed")
    if "fastload_coefficients" in options.feeds:
        pack_folder(workdir / "images", workdir / "packed-coefficients", "--coefficients")
    common: list[Any] = ["--images", workdir / "images", "--packed", workdir / "packed"]
    for name in ("device", "amp", "batch", "size", "seconds", "rounds", "cores"):
        common += [f"--{name}", getattr(options, name)]
    common += ["--feeds", ",".join(options.feeds)]
    return [
        run_once(Candidate(model, child("starvation.few_cores", "--model", model, *common)))
        for model in options.models
    ]


def tables(runs: Sequence[Run], options: argparse.Namespace) -> str:
    """A table a model."""
    sections = []
    for run in runs:
        title = (
            f"### {run.name}, batches of {options.batch}, {options.size}x{options.size}, AMP {options.amp}"
        )
        if run.error:
            sections.append(f"{title}\n\nFAILED: {run.error.strip().splitlines()[-1]}")
            continue
        cases = [case.rsplit(" ", 1) for case in run.values]
        feeds = dict.fromkeys(feed for feed, _ in cases)
        counts = list(dict.fromkeys(cores for _, cores in cases))
        rows = [row(run.values, feed, cores) for feed in feeds for cores in counts]
        sections.append(f"{title}\n\n{table(COLUMNS, rows)}")
    return "\n\n".join(sections)


def row(values: Mapping[str, Any], feed: str, cores: str) -> list[str]:
    """One feed on so many cores."""
    mine = values[f"{feed} {cores}"]
    if "skipped" in mine:
        return [feed, cores, mine["skipped"], "", "", ""]
    rate, bound = summarize(mine["rate"]), summarize(values[f"synthetic {cores}"]["rate"])
    share = summarize([100 * value for value in mine["wait_share"]]).median
    used = summarize(mine["cores"]).text(1)
    return [feed, cores, rate.text(), f"{rate.median / bound.median:.3f}", f"{share:.1f}%", used]


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    parent = HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="few-cores-") as workdir:
        runs = measure_in(options, Path(workdir))
    settings = vars(options) | {"device_name": device_name(options.device)}
    write_results(options.output, "bench_few_cores", settings, runs)
    text = tables(runs, options)
    options.output.with_suffix(".md").write_text(text + "\n")
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print(f"{options.device}; median [min-max] of {options.rounds} rounds. Data: {options.output}\n")
    print(text)
    return 1 if any(run.error for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
