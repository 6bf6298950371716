"""Several views of a picture: decoded once or for each view, and what the loader chooses itself.

    python benchmarks/bench_views.py IMAGE_FOLDER

SimCLR has two views of 224, DINO two of 224 and eight of 96, without and with their colours and blur; pixels
are left in uint8. The pictures are packed with and without entry points. Loaders take turns (A B C, then C B
A), each measured from its third batch to the end of an epoch: "once" and "apart" are forced, "cheaper" is
what users have, and "one view" is a loader of only the first view.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import MINIMUM_REPEATS, check_repeats, summarize, table
from sets.images import repeat_images

from fastload import DataLoader
from fastload import transforms as T
from fastload._native import _C

ENTRIES = {"entry points": (), "none": ("--entries", "none")}
WAYS = {"cheaper": "cheaper", "once": "always", "apart": "never"}


def recipes() -> dict[str, T.Views]:
    """Two recipes: their geometry, and the whole of them."""
    simclr = [
        T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        T.RandomGrayscale(p=0.2),
        T.RandomApply([T.GaussianBlur(23, (0.1, 2.0))], p=0.5),
    ]
    found = {}
    for name, colours in {"": [], ", colours": simclr}.items():
        both = crop(224, (0.08, 1.0), *colours)
        found[f"SimCLR{name}"] = T.Views(first=both, second=both)
    for name, chance in {"": None, ", colours": 1.0}.items():
        views = {
            "global_0": dino(224, (0.4, 1.0), chance),
            "global_1": dino(224, (0.4, 1.0), chance and 0.1, 0.2),
        }
        found[f"DINO{name}"] = T.Views({**views, "local": (8, dino(96, (0.05, 0.4), chance and 0.5))})
    return found


def crop(size: int, scale: tuple[float, float], *more: Any) -> T.Compose:
    """A view with ``more`` behind its crop and flip."""
    return T.Compose([T.RandomResizedCrop(size, scale=scale), T.RandomHorizontalFlip(), *more])


def dino(size: int, scale: tuple[float, float], blur: float | None, solarize: float = 0.0) -> T.Compose:
    """A view of DINO's; ``blur``: probability, None for no colours at all."""
    if blur is None:
        return crop(size, scale)
    return crop(
        size,
        scale,
        T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
        T.RandomGrayscale(p=0.2),
        T.RandomApply([T.PillowGaussianBlur((0.1, 2.0))], p=blur),
        T.RandomSolarize(128, p=solarize),
    )


@contextmanager
def deciding(how: str) -> Iterator[None]:
    """Engines that are made meanwhile decode several views so."""
    engine = _C.Engine
    _C.Engine = partial(engine, decode_once=how)
    try:
        yield
    finally:
        _C.Engine = engine


def speed(path: Path, transform: Any, how: str, batch_size: int) -> tuple[float, float]:
    """Images a second and CPU microseconds an image, of a loader that has begun."""
    options: dict[str, Any] = {"transform": transform, "shuffle": True, "seed": 0, "drop_last": True}
    with deciding(how), DataLoader(path, batch_size, cache="off", **options) as loader:
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        began, cpu = time.perf_counter(), time.process_time()
        count = batch_size * sum(1 for _ in iterator)
        return count / (time.perf_counter() - began), 1e6 * (time.process_time() - cpu) / count


def turns(path: Path, views: T.Views, batch_size: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """What :func:`speed` says of each way, in turn."""
    jobs = {name: (views, how) for name, how in WAYS.items()}
    jobs["one view"] = (T.Views({views.names[0]: views.transforms[0]}), "cheaper")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for turn in range(rounds):
        for name, (transform, how) in list(jobs.items())[:: 1 if turn % 2 else -1]:
            found[name].append(speed(path, transform, how, batch_size))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--count", type=int, default=1000, help="least number of images, which are repeated")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--only", default="", help="run only recipes whose name has this")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    options = parser.parse_args(arguments)
    check_repeats(options.repeats)
    print(f"{facts()['cpu']}, {facts()['cores']} cores")
    rows = []
    with tempfile.TemporaryDirectory() as work:
        repeat_images(options.images, Path(work) / "images", options.count)
        for entries, arguments_of_pack in ENTRIES.items():
            path = Path(work) / entries.replace(" ", "-")
            pack_folder(Path(work) / "images", path, *arguments_of_pack)
            chosen = [(name, views) for name, views in recipes().items() if options.only in name]
            for recipe, views in chosen:
                found = turns(path, views, options.batch_size, options.repeats)
                apart = [cpu for _, cpu in found["apart"]]
                for way, runs in found.items():
                    speeds = summarize([one for one, _ in runs])
                    cpus = summarize([cpu for _, cpu in runs])
                    ratio = summarize([a / cpu for a, (_, cpu) in zip(apart, runs, strict=True)])
                    spread = f"{cpus.low:.0f} to {cpus.high:.0f}"
                    rows.append((recipe, entries, way, f"{speeds.median:.0f}", f"{cpus.median:.0f}", spread,
                                 ratio.text(2)))  # fmt: skip
    print(table(("recipe", "set", "decoded", "images/s", "CPU us", "spread", "apart / this"), rows))


if __name__ == "__main__":
    sys.exit(main())
