"""What the cache's decoded tier gains: crops of pixels in memory, beside decoding the records.

    python benchmarks/bench_decoded.py IMAGE_FOLDER

For each side: the bytes per picture, images per second (and per CPU second) when all pictures are ready in
the cache, and when none has room and each is decoded whole and scaled for its crop. They take turns with a
loader without the tier, and with one whose cache keeps coefficient records; ratios are of the same turn. Each
run has its own loader, measured from its second epoch on, when everything that has room is cached. The
records are in the page cache.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import check_repeats, table

from fastload import Cache, DataLoader, PackedDataset
from fastload import transforms as T
from fastload.cache.tiers import decoded_bytes

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
TRANSFORMS = {
    "train": T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), NORMALIZE]),
    "eval": T.Compose([T.Resize(256), T.CenterCrop(224), NORMALIZE]),
}

COEFFICIENTS = "coefficients"


class Kind(NamedTuple):
    """A loader to measure: the longer side it keeps, or ``COEFFICIENTS``, and whether pictures are ready."""

    side: int | str | None
    ready: bool

    def __str__(self) -> str:
        if self.side is None:
            return "without the tier"
        if self.side == COEFFICIENTS:
            return "coefficient records, ready"
        return f"{self.side}, {'ready' if self.ready else 'no room'}"


class Rates(NamedTuple):
    """Images per second and per CPU second."""

    wall: float
    cpu: float


def batches(loader: DataLoader, count: int) -> Iterator[int]:
    """The sizes of as many batches, over several epochs."""
    while count > 0:
        for _, labels in loader:
            yield len(labels)
            count -= 1
            if count == 0:
                return


def cache_of(kind: Kind, root: str) -> Cache:
    """What is kept, in a folder in memory, if anything is kept at all."""
    place: dict[str, Any] = {"folder": root} if kind.ready else {"size": "off"}
    if kind.side == COEFFICIENTS:
        return Cache(**place, format=COEFFICIENTS)
    return Cache(**place, decoded=kind.side)


def run(folder: Path, kind: Kind, root: str, options: argparse.Namespace) -> Rates:
    """One run: an epoch to fill the cache, then ``options.epochs`` that are measured."""
    with DataLoader(
        folder,
        options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=options.threads,
        transform=TRANSFORMS[options.transform],
        cache=cache_of(kind, root),
    ) as loader:
        sum(batches(loader, len(loader)))
        while kind.side == COEFFICIENTS and loader.stats()["cache"]["waiting_records"]:
            sum(batches(loader, len(loader)))
        began, cpu = time.perf_counter(), time.process_time()
        images = sum(batches(loader, options.epochs * len(loader)))
        return Rates(images / (time.perf_counter() - began), images / (time.process_time() - cpu))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path, help="a folder of images")
    parser.add_argument("--sides", default="256,384,500,full")
    parser.add_argument("--transform", choices=TRANSFORMS, default="train")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", default="/dev/shm", help="a folder in memory")
    return parser.parse_args(arguments)


def text(values: Sequence[float], digits: int = 0) -> str:
    """Median, and the range in brackets."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f}-{high:.{digits}f}]"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse(arguments)
    check_repeats(options.repeats)
    sides = [int(side) if side.isdigit() else side for side in options.sides.split(",")]
    tiers = [Kind(side, ready) for side in sides for ready in (True, False)]
    kinds = [Kind(None, False), Kind(COEFFICIENTS, True), *tiers]
    turns: dict[Kind, list[Rates]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory(dir=options.memory) as root:
        folder = Path(work) / "packed"
        pack_folder(options.source, folder)
        dataset = PackedDataset(folder)
        for turn in range(options.repeats):
            for kind in kinds if turn % 2 == 0 else reversed(kinds):
                turns[kind].append(run(folder, kind, root, options))
        sizes = {side: decoded_bytes(dataset.records, side).mean() / 1e3 for side in sides}
        encoded = dataset.records["length"].mean() / 1e3
        sizes[COEFFICIENTS] = encoded * 1.13  # its place in the cache
    base, rows = turns[kinds[0]], []
    for kind, found in turns.items():
        ratios = [rates.cpu / other.cpu for rates, other in zip(found, base, strict=True)]
        size = encoded if kind.side is None else sizes[kind.side] if kind.ready else 0
        wall, cpu = text([rates.wall for rates in found]), text([rates.cpu for rates in found])
        rows.append((kind, f"{size:.0f}", wall, cpu, text(ratios, 2)))
    print(f"{facts()['cpu']}; {options.threads} threads, {options.transform}, {len(dataset)} pictures")
    print(table(("side", "kB an image", "images/s", "images per CPU second", "ratio"), rows))


if __name__ == "__main__":
    sys.exit(main())
