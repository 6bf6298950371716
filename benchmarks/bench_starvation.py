"""Does training wait for data? ResNets on synthetic batches, on fastload, and on other loaders.

    python benchmarks/bench_starvation.py IMAGE_FOLDER                     # ResNet-18 and ResNet-50 on a GPU
    python benchmarks/bench_starvation.py IMAGE_FOLDER --device cpu        # a small network, to try it

"synthetic", the bound, has two random batches that already lie on the device. The other feeds are in
starvation/feeds.py. Training uses mixed precision, channels_last and cuDNN's search for algorithms. The feeds
take turns, each in a process that stays alive; figures are medians and ranges of at least five rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness.children import child
from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import MINIMUM_REPEATS, Candidate, Run, check_repeats, write_results
from harness.turns import take_turns
from sets.images import repeat_images
from starvation.tables import failed_feeds, tables

HERE = Path(__file__).resolve().parent
FEED_NAMES = ("synthetic", "fastload", "fastload_host", "fastload_dali", "torch_pil")
MORE_FEEDS = ("fastload_coefficients", "fastload_dali_auto")  # where they are asked for
START_SECONDS = 12.0  # of one feed's process on a GPU: imports, cuDNN's search, first batches; on an H100
ROUND_SECONDS = 1.0  # of each round, before and after what is measured
PILLOW_SECONDS = 5.0  # more than that: its workers have 2 batches each ahead, which are used up first


def cuda_is_there() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def device_name(device: str) -> str:
    """The GPU's name; "cpu" without one."""
    if device == "cpu":
        return device
    import torch

    return str(torch.cuda.get_device_name())


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line, with the defaults of the device."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="IMAGE_FOLDER")
    add("--device", choices=("cuda", "cpu"), help="device (default: cuda if there is one)")
    add("--models", type=lambda text: text.split(","), help="default: resnet18,resnet50; on the CPU resnet8")
    add("--feeds", type=lambda text: text.split(","), default=list(FEED_NAMES), help=",".join(FEED_NAMES))
    add("--amp", choices=("off", "bf16", "fp16"), help="mixed precision (default: bf16; on the CPU off)")
    add("--batch", type=int, help="images per step (default: 256, on the CPU 16)")
    add("--size", type=int, help="side of the crops in pixels (default: 224, on the CPU 64)")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads per loader (%(default)s)")
    add("--repeats", type=int, default=MINIMUM_REPEATS)
    add("--seconds", type=float, default=3.0, help="measured seconds per round, after warm-up (%(default)s)")
    add("--budget", type=float, help="time limit in seconds: shortens rounds, and none begins later")
    add("--images", type=int, default=8000, help="least files per epoch (%(default)s)")
    add("--output", type=Path, default=HERE.parent / "build" / "bench" / "starvation.json")
    options = parser.parse_args(argv)
    options.device = options.device or ("cuda" if cuda_is_there() else "cpu")
    gpu = options.device == "cuda"
    options.models = options.models or (["resnet18", "resnet50"] if gpu else ["resnet8"])
    options.amp = options.amp or ("bf16" if gpu else "off")
    options.batch = options.batch or (256 if gpu else 16)
    options.size = options.size or (224 if gpu else 64)
    names = (*FEED_NAMES, *MORE_FEEDS)
    unknown = set(options.feeds) - set(names)
    if unknown:
        parser.error(f"there is no feed {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    if gpu and not cuda_is_there():
        parser.error("--device cuda: torch sees no CUDA device here")
    return options


def round_seconds(options: argparse.Namespace) -> float:
    """Seconds that are measured of a round, so that all rounds fit the budget."""
    if options.budget is None:
        return float(options.seconds)
    feeds = len(options.models) * len(options.feeds)
    left = options.budget - feeds * (START_SECONDS if options.device == "cuda" else 4.0)
    left -= feeds * options.repeats * ROUND_SECONDS
    if "torch_pil" in options.feeds:
        left -= len(options.models) * options.repeats * PILLOW_SECONDS
    return min(options.seconds, max(0.3, left / (feeds * options.repeats)))


def candidates(options: argparse.Namespace, workdir: Path, model: str) -> list[Candidate]:
    """A process for each feed."""
    common = ["--images", workdir / "images", "--packed", workdir / "packed", "--model", model, "--copies"]
    for name in ("device", "amp", "batch", "size", "threads"):
        common += [f"--{name}", getattr(options, name)]
    common += ["--seconds", round_seconds(options)]
    return [Candidate(f"{model} | {feed}", child("starvation.run", feed, *common)) for feed in options.feeds]


def measure_in(options: argparse.Namespace, workdir: Path, started: float) -> int:
    """Everything, in ``workdir``; the exit status."""
    count, others = repeat_images(options.folder, workdir / "images", options.images)
    pack_folder(workdir / "images", workdir / "packed")
    if "fastload_coefficients" in options.feeds:
        pack_folder(workdir / "images", workdir / "packed-coefficients", "--coefficients")
    runs: list[Run] = []
    for number, model in enumerate(options.models, 1):
        share = number / len(options.models)
        until = started + options.budget * share if options.budget else float("inf")
        runs += take_turns(candidates(options, workdir, model), options.repeats, until=until)
    settings = vars(options) | {"epoch_images": count, "files_left_out": others}
    settings["device_name"] = device_name(options.device)
    write_results(options.output, "bench_starvation", settings, runs)
    text = tables(runs, options)
    options.output.with_suffix(".md").write_text(text + "\n")
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print(f"{count} images an epoch; median [min-max] of the rounds. Data: {options.output}\n")
    print(text)
    return 1 if failed_feeds(runs) else 0


def main(argv: Sequence[str] | None = None) -> int:
    started = time.monotonic()
    options = parse(argv)
    check_repeats(options.repeats)
    parent = HERE.parent / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="starvation-") as workdir:
        return measure_in(options, Path(workdir), started)


if __name__ == "__main__":
    sys.exit(main())
