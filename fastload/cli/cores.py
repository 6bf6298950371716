"""``fastload plan SET --gpu GPU --network NETWORK``: the cores that a GPU needs for this set."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fastload.cli.output import print_json, print_table
from fastload.machine.sizes import counted
from fastload.machine.step_rates import CROPS, GPUS, RATES, SHAPES, SOURCES, fed, rate_of

if TYPE_CHECKING:
    from fastload.diagnose.comparison import Comparison, PictureSample

_SECONDS = 10.0  # of measuring
_NOTE = (
    "a cloud's CPU is mostly one of a core's two threads, and counts as a core here; the training process "
    "needs one, too"
)
_TITLES = {"torch": "torch's DataLoader", "fastload": "fastload"}


def add_gpu(option: Any) -> None:
    """Declare the options that ask for the cores of a GPU."""
    option(
        "--gpu",
        choices=GPUS,
        help="measure instead, for some ten seconds, how many of this set's pictures torch's DataLoader and "
        "fastload crop to 224 pixels on one core; print how many cores this GPU needs to train --network, "
        "and which cloud machines have too few",
    )
    option(
        "--network",
        choices=CROPS,
        help="with --gpu: the network, whose step rate is published or measured; or give --rate",
    )


def step_of(arguments: argparse.Namespace) -> tuple[float, str]:
    """Return the step's pictures per second, and where that is from.

    Raises:
        SystemExit: options do not go together, or nobody has published the rate.
    """
    gpu, network = arguments.gpu, arguments.network
    if gpu is None:
        raise SystemExit("fastload plan: --network says what a GPU trains. Add --gpu, or leave it out.")
    if "://" in str(arguments.folder):
        raise SystemExit(
            f"fastload plan: --gpu measures pictures of this machine. Found: {arguments.folder}, a URL. Copy "
            "some hundred of its pictures here and give their folder."
        )
    if arguments.rate is not None:
        return arguments.rate, "as given by --rate"
    if network is None:
        raise SystemExit(
            "fastload plan: --gpu needs --network, or --rate, the samples per second of your own step."
        )
    known = rate_of(gpu, network)
    if known is None:
        others = ", ".join(rate.network for rate in RATES if rate.gpu == gpu and rate.network in CROPS)
        raise SystemExit(
            f"fastload plan: no rate of {network} on {gpu} is known. Known for it: {others}. Give --rate, "
            "the samples per second of your own step."
        )
    return known.rate, SOURCES[known.source]


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the cores."""
    rate, source = step_of(arguments)
    from fastload.diagnose.comparison import compare, draw_sample
    from fastload.diagnose.remains import Remains

    sys.stderr.write(f"Measuring one core of this machine for about {_SECONDS:g} s.\n")
    with Remains() as remains:
        sample = draw_sample(arguments.folder, remains.folder)
        found = compare(sample, _SECONDS, workers=1, cores=1)
    a_core = {side.name: statistics.median(side.core_rates) for side in (found.torch, found.fastload)}
    if arguments.json:
        print_json(_facts(arguments, rate, source, found, a_core))
    else:
        print_table(str(arguments.folder), [*_rows(arguments, rate, source, sample, found, a_core)])
    return 0


def _rows(
    arguments: argparse.Namespace, rate: float, source: str, sample: PictureSample, found: Comparison,
    a_core: Mapping[str, float],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    yield "set", f"{counted(len(sample.sizes), 'picture')} of {sample.total}, cropped to 224 pixels, flipped"
    what = f"{arguments.network} on {arguments.gpu}" if arguments.network else arguments.gpu
    yield "step", f"{what}: {rate:.0f} images/s ({source})"
    for name, side in (("torch", found.torch), ("fastload", found.fastload)):
        low, high = min(side.core_rates), max(side.core_rates)
        words = f"{a_core[name]:.0f} images per CPU second [{low:.0f}-{high:.0f}]"
        yield _TITLES[name], f"{words}: {rate / a_core[name]:.1f} cores"
    shapes = [shape for shape in SHAPES if shape.gpu == arguments.gpu]
    for number, shape in enumerate(shapes):
        shares = ", ".join(
            f"{_TITLES[name]} {_fed_words(fed(shape.cpus_a_gpu, each, rate))}"
            for name, each in a_core.items()
        )
        yield "" if number else "clouds", f"{shape.name}, {shape.cpus_a_gpu:g} CPUs a GPU: {shares}"
    if not shapes:
        yield "clouds", f"no shape with {arguments.gpu} is known here"
    yield "note", _NOTE


def _fed_words(share: float) -> str:
    return "keeps up" if share >= 1 else f"feeds {share:.0%}"


def _facts(
    arguments: argparse.Namespace, rate: float, source: str, found: Comparison, a_core: Mapping[str, float]
) -> dict[str, Any]:
    return {
        "gpu": arguments.gpu,
        "network": arguments.network,
        "step_rate": rate,
        "source": source,
        "images_per_cpu_second": dict(a_core),
        "cpu_seconds_an_image": {"torch": found.torch.cpu, "fastload": found.fastload.cpu},
        "cores": {name: rate / each for name, each in a_core.items()},
        "shapes": [
            {"name": shape.name, "cpus_a_gpu": shape.cpus_a_gpu, "source": SOURCES[shape.source]}
            | {name: fed(shape.cpus_a_gpu, each, rate) for name, each in a_core.items()}
            for shape in SHAPES
            if shape.gpu == arguments.gpu
        ],
    }
