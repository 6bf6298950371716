"""A Python callable at the end of the transform: where it runs best, and torch's loader with the same one.

    python benchmarks/bench_callables.py IMAGE_FOLDER

RandomResizedCrop(224), flip, and one of four callables on the Pillow picture: light (NumPy, 0.1 ms), one that
keeps the GIL (pure Python, 5 ms), one that releases it (Pillow's blur, some ms), and one that returns a float
tensor. fastload runs its callables in the consumer's thread (0) and in 1, 2 and 3 worker processes; a
prototype has a pool of 2 Python threads, which the loader lacks because they would share the process's random
generators; torch has 1, 2 and 3 workers. Loaders take turns (A B C, then C B A), each measured in mid-epoch.
CPU time is that of the whole session: start it with ``setsid -w`` if the session has other processes.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import MINIMUM_REPEATS, check_repeats, summarize, table
from harness.rounds import Clock
from loaders.jobs import random_crop
from PIL import Image, ImageFilter
from sets.images import pictures_in
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, RandomSampler, default_collate

from fastload import DataLoader
from fastload import transforms as T
from fastload.errors import SlowPathWarning

SIDE = 224
OURS, THEIRS = (0, 1, 2, 3), (1, 2, 3)
THREADS = 2  # of the prototype
WARM = 8  # batches that are not measured: everything that is read ahead is under way then
HEAVY_SECONDS = 0.005


def light(picture: Image.Image) -> Any:
    """A line of NumPy."""
    return np.asarray(picture) ^ np.uint8(255)


def keeps(picture: Image.Image) -> Any:
    """Pure Python, which holds the GIL for 5 ms of CPU time."""
    count, end = 0, time.thread_time() + HEAVY_SECONDS
    while time.thread_time() < end:
        count += 1
    return np.asarray(picture) ^ np.uint8(count % 256)


def releases(picture: Image.Image) -> Any:
    """Pillow's blur, which lets go of the GIL."""
    return np.asarray(picture.filter(ImageFilter.GaussianBlur(20)))


def tensor(picture: Image.Image) -> torch.Tensor:
    """What ToTensor does."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div_(255)


CALLABLES: dict[str, Callable[[Image.Image], Any]] = {
    "light": light,
    "keeps the GIL": keeps,
    "releases the GIL": releases,
    "returns a tensor": tensor,
}


class Pictures(Dataset[Any]):
    """torch's side: Pillow decodes, crops and mirrors."""

    def __init__(self, paths: Sequence[Path], function: Callable[[Image.Image], Any]) -> None:
        self._paths = paths
        self._function = function

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        with Image.open(self._paths[number]) as image:
            picture = image.convert("RGB")
        left, top, width, height = random_crop(*picture.size)
        box = (left, top, left + width, top + height)
        picture = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self._function(picture), 0


def _batches(ids: Sequence[Any], batch: int) -> RandomSampler:
    """An epoch that nobody sees the end of."""
    return RandomSampler(ids, replacement=True, num_samples=2000 * batch)


def fastload_batches(packed: Path, count: int, batch: int, workers: int, *functions: Any) -> Any:
    """fastload's loader."""
    steps = [T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), *functions]
    sampler = _batches(range(count), batch)
    return DataLoader(
        packed,
        batch,
        sampler=sampler,
        num_workers=workers,
        seed=0,
        cache="off",
        transform=T.Compose(steps),
    )


def threaded_batches(packed: Path, count: int, batch: int, function: Any) -> Iterator[Any]:
    """fastload's pictures, and the callable in a pool of threads, some batches ahead."""

    def one(pixels: torch.Tensor) -> Any:
        return function(Image.fromarray(pixels.permute(1, 2, 0).numpy()))

    loader = fastload_batches(packed, count, batch, THREADS)
    with loader, ThreadPoolExecutor(THREADS) as pool:
        ahead: deque[tuple[list[Future[Any]], torch.Tensor]] = deque()
        for images, labels in loader:
            ahead.append(([pool.submit(one, image) for image in images], labels))
            if len(ahead) > THREADS:
                futures, own = ahead.popleft()
                yield default_collate([future.result() for future in futures]), own


def torch_batches(paths: Sequence[Path], batch: int, workers: int, function: Any) -> Any:
    """torch's loader."""
    return TorchLoader(Pictures(paths, function), batch, sampler=_batches(paths, batch), num_workers=workers)


def speed(make: Callable[[], Any], batch: int, seconds: float) -> tuple[float, float]:
    """Pictures a second in the middle of an epoch, and milliseconds of CPU time a picture."""
    batches = iter(make())
    for _ in range(WARM):
        next(batches)
    count, clock = 0, Clock()
    while clock.read()["seconds"] < seconds:
        next(batches)
        count += batch
    spent = clock.read()
    return count / spent["seconds"], 1e3 * spent["cpu_seconds"] / count


def candidates(
    paths: Sequence[Path], packed: Path, batch: int, function: Any
) -> dict[str, Callable[[], Any]]:
    """All that take turns."""
    count = len(paths)
    found: dict[str, Callable[[], Any]] = {
        f"fastload, {workers}": partial(fastload_batches, packed, count, batch, workers, function)
        for workers in OURS
    }
    found["prototype, threads"] = partial(threaded_batches, packed, count, batch, function)
    for workers in THEIRS:
        found[f"torch, {workers}"] = partial(torch_batches, paths, batch, workers, function)
    return found


def rows(runs: dict[str, list[tuple[float, float]]], name: str) -> Iterator[tuple[str, ...]]:
    """Of each loader: its speed, its ratio to the best of torch's in the same round, and its CPU time."""
    middle = {loader: summarize([rate for rate, _ in values]) for loader, values in runs.items()}
    best = max((loader for loader in runs if loader.startswith("torch")), key=lambda one: middle[one].median)
    for loader, values in runs.items():
        ratio = summarize([own / other for (own, _), (other, _) in zip(values, runs[best], strict=True)])
        cpu = summarize([cpu for _, cpu in values])
        title = loader + " (best)" * (loader == best)
        yield name, title, middle[loader].text(0), ratio.text(2), cpu.text(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds per loader and round")
    parser.add_argument("--only", default="", help="run only callables whose name has this")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    options = parser.parse_args(argv)
    check_repeats(options.repeats)
    warnings.simplefilter("ignore", SlowPathWarning)
    warnings.filterwarnings("ignore", "This DataLoader will create")
    torch.set_num_threads(1)
    print(f"{facts()['cpu']}, {facts()['cores']} cores")
    found: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as work:
        packed = Path(work) / "packed"
        pack_folder(options.images, packed)
        paths = pictures_in(options.images)
        for name, function in CALLABLES.items():
            if options.only not in name:
                continue
            jobs = candidates(paths, packed, options.batch_size, function)
            runs: dict[str, list[tuple[float, float]]] = {loader: [] for loader in jobs}
            for turn in range(options.repeats):
                for loader, make in list(jobs.items())[:: 1 if turn % 2 else -1]:
                    runs[loader].append(speed(make, options.batch_size, options.seconds))
                print(f"{name}: round {turn + 1}", file=sys.stderr)
            found += rows(runs, name)
    print(table(("callable", "loader", "pictures/s", "to torch's best", "CPU ms a picture"), found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
