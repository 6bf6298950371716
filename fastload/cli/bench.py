"""``fastload bench IMAGES``: torch's DataLoader and fastload on the user's own pictures, as a table."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastload.cli.arguments import at_least_one, place
from fastload.cli.output import one_line, print_json, print_lines
from fastload.machine.cpu import cpu_model
from fastload.machine.sizes import counted, human_bytes

if TYPE_CHECKING:
    from fastload.diagnose.comparison import Comparison, PictureSample

_LEAST = 5.0  # seconds
_BUSY = 0.5  # of the cores, that other programs use
_NOT_COMPARED = (
    "Not compared: other transforms, sizes and batch sizes; fields besides the pictures; cold storage (both "
    "read from the page cache); a training step beside the loader; copies to a GPU and decoding on one; "
    "several ranks."
)


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "bench",
        help="compare torch's DataLoader and fastload on your own pictures, as a table to paste",
        description="Read up to 1024 of your pictures, spread over the source, with torch's DataLoader and "
        "Pillow and with fastload, in turns, on all cores of this process. Print a Markdown table: images "
        "per second, CPU time, memory, first batch. Both crop to 224 pixels at random, flip and normalise. "
        "torch's loader has the best of three numbers of workers. Only a temporary folder is written to.",
    )
    parser.add_argument(
        "source",
        metavar="IMAGES",
        type=place,
        help="what 'fastload pack' takes: a folder of images, an annotated set, a table; or a packed set",
    )
    add = parser.add_argument
    add(
        "--seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds for the whole comparison (default 30)",
    )
    add(
        "--workers",
        type=at_least_one,
        metavar="N",
        help="worker processes of torch's loader (default: the best of three numbers)",
    )
    add("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Compare, and print the table."""
    if not arguments.seconds >= _LEAST:
        raise SystemExit(
            f"fastload bench: --seconds must be at least {_LEAST:g}. Found: {arguments.seconds:g}."
        )
    if "://" in str(arguments.source):
        raise SystemExit(
            f"fastload bench: IMAGES is a place on this machine. Found: {arguments.source}, a URL. Copy some "
            "hundred of its pictures here and give their folder."
        )
    from fastload.diagnose.comparison import compare, draw_sample
    from fastload.diagnose.remains import Remains

    load = os.getloadavg()[0]
    with Remains() as remains:
        sys.stderr.write(f"Drawing pictures from {arguments.source}.\n")
        sample = draw_sample(arguments.source, remains.folder)
        sys.stderr.write(
            f"Reading {counted(len(sample.ids), 'picture')} with torch's DataLoader and with fastload, in "
            f"turns, for about {arguments.seconds:g} s.\n"
        )
        found = compare(sample, arguments.seconds, arguments.workers)
    if arguments.json:
        print_json(_facts(arguments, found, load))
    else:
        print_lines(one_line(line) for line in _table(arguments, found, load))
    return 0


# ---- The table --------------------------------------------------------------------------------------


def _table(arguments: argparse.Namespace, found: Comparison, load: float) -> Iterator[str]:
    torch, fastload, sample = found.torch, found.fastload, found.sample
    pillow = f"torch's DataLoader, Pillow, {counted(torch.workers, 'worker')}"
    yield f"**fastload is {_spread(found.ratios, 1)} times as fast as torch's DataLoader on these pictures.**"
    yield ""
    yield "| loader | images/s | fastload / it | CPU ms an image | peak memory | first batch |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, side, ratio in (
        (pillow, torch, _spread(found.ratios, 1)),
        (f"fastload, {counted(fastload.workers, 'thread')}", fastload, ""),
    ):
        cpu = _spread([1000 * seconds for seconds in side.cpu], 2) if all(side.cpu) else "not known"
        memory = human_bytes(side.memory) if side.memory else "not known"
        yield f"| {name} | {_spread(side.rates, 0)} | {ratio} | {cpu} | {memory} | {side.first:.1f} s |"
    yield ""
    yield (
        "RandomResizedCrop(224), RandomHorizontalFlip, float32, Normalize; shuffled, batches of "
        f"{sample.batch}. {len(found.ratios)} rounds in turns: the median, and the lowest and the highest "
        "round. Memory: the most of all processes (PSS). First batch: once, from the start of the process, "
        "with imports."
    )
    yield ""
    yield f"- Pictures: {_pictures(arguments.source, sample)}"
    yield f"- torch's side: {_torch_words(found)}"
    yield f"- fastload's side: {_packed_words(sample)}"
    yield f"- Machine: {_machine(found.cores, load)}"
    yield f"- Versions: {_versions(found)}"
    yield f"- {_NOT_COMPARED}"
    yield ""
    yield f"`{_command(arguments)}`, {time.strftime('%Y-%m-%d')}"


def _spread(values: Sequence[float], places: int) -> str:
    """Return a median with the lowest and the highest value."""
    return f"{statistics.median(values):,.{places}f} [{min(values):,.{places}f}-{max(values):,.{places}f}]"


def _pictures(source: object, sample: PictureSample) -> str:
    widths, heights = zip(*sample.sides, strict=True)
    codecs = ", ".join(f"{count} {codec}" for codec, count in sample.codecs.items())
    size, width, height = (statistics.median(each) for each in (sample.sizes, widths, heights))
    words = (
        f"{len(sample.sizes)} of {sample.total} in {source}{f', {sample.split}' * bool(sample.split)}, "
        f"spread over it ({codecs}); median {human_bytes(size)}, {width:.0f} x {height:.0f} pixels."
    )
    return words + f" {sample.left_out} that Pillow cannot read left out." * bool(sample.left_out)


def _torch_words(found: Comparison) -> str:
    known = found.torch.versions.get("torchvision")
    words = f"the files, torchvision {known}'s transforms"
    if known is None:
        words = (
            "the files, torchvision's transforms written out in Pillow and torch, as it cannot be imported"
        )
    if len(found.tried) > 1:
        tried = ", ".join(f"{rate:,.0f} with {count}" for count, rate in found.tried.items())
        words += f"; workers tried: {tried} (images/s)"
    return f"{words}."


def _packed_words(sample: PictureSample) -> str:
    if sample.is_own:
        return "the packed set as it is."
    return "the files packed by 'fastload pack' with its defaults."


def _machine(cores: int, load: float) -> str:
    memory = human_bytes(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    system = f"{platform.system()} {platform.release()}"
    words = (
        f"{counted(cores, 'core')} of {cpu_model()}, {memory} of memory, {system}, load {load:.1f} before."
    )
    if load > _BUSY * cores:
        words += " It was busy, so these figures are worth little: repeat them when nothing else runs."
    return words


def _versions(found: Comparison) -> str:
    versions = {**found.torch.versions, **found.fastload.versions}
    return ", ".join(
        f"{name} {version}" for name, version in [*versions.items(), ("Python", platform.python_version())]
    )


def _command(arguments: argparse.Namespace) -> str:
    words = ["fastload", "bench", str(arguments.source), "--seconds", f"{arguments.seconds:g}"]
    return shlex.join([*words, *(["--workers", str(arguments.workers)] if arguments.workers else [])])


def _facts(arguments: argparse.Namespace, found: Comparison, load: float) -> dict[str, Any]:
    """Return the comparison for ``--json``."""
    sample = found.sample
    return {
        "command": _command(arguments),
        "ratio": statistics.median(found.ratios),
        "ratios": found.ratios,
        "torch": asdict(found.torch),
        "fastload": asdict(found.fastload),
        "workers_tried": {str(count): rate for count, rate in found.tried.items()},
        "batch_size": sample.batch,
        "pictures": {
            "source": str(arguments.source), "split": sample.split, "total": sample.total,
            "count": len(sample.sizes), "codecs": dict(sample.codecs), "left_out": sample.left_out,
            "median_bytes": statistics.median(sample.sizes), "packed_as_it_is": sample.is_own,
        },
        "machine": {
            "cpu": cpu_model(), "cores": found.cores, "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(), "load": load,
        },
        "not_compared": _NOT_COMPARED,
    }  # fmt: skip
