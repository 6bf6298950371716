"""One run of bench_memory: iterates a loader, and samples the memory of its whole process tree meanwhile.

Prints one JSON line: seconds of the imports and to the first batch, and the samples ("curve"): seconds
since the first batch, samples consumed, PSS in MB anonymous and of mapped files.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.machine import session_memory
from loaders.jobs import MEAN, STD

BATCH = 256
PATH = "/data/imagenet21k/train/n{label:08d}/n{label:08d}_{number:08d}.JPEG"


@dataclass
class Curve:
    """Memory over time: whenever asked, but at most every ``interval`` seconds."""

    interval: float
    began: float = field(default_factory=time.monotonic)
    points: list[dict[str, float]] = field(default_factory=list)
    _next: float = 0.0

    def sample(self, samples: int) -> None:
        now = time.monotonic() - self.began
        if now < self._next:
            return
        memory = session_memory(os.getsid(0))
        self.points.append(
            {"seconds": now, "samples": samples, "anonymous": memory.anonymous, "file": memory.file}
        )
        self._next = time.monotonic() - self.began + self.interval


def fastload_batches(dataset: Path, records: int, threads: int) -> Callable[[], Iterator[int]]:
    """The train job over a packed dataset, with ``threads`` threads."""
    from fastload import DataLoader
    from fastload import transforms as t

    steps = [t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.Normalize(mean=MEAN, std=STD)]

    def batches() -> Iterator[int]:
        loader = DataLoader(
            dataset,
            batch_size=BATCH,
            shuffle=True,
            drop_last=True,
            num_workers=threads,
            transform=t.Compose(steps),
        )
        for _images, labels in loader:
            yield len(labels)

    return batches


def torch_batches(dataset: Path, records: int, threads: int) -> Callable[[], Iterator[int]]:
    """torch's DataLoader over a Python list of ``records`` paths, with ``threads`` worker processes.

    A sample only looks at its path: that alone writes its reference count, and so copies the page from
    the parent into the worker. Decoding would add time, not memory.
    """
    import torch

    class Paths(torch.utils.data.Dataset[int]):
        def __init__(self) -> None:
            self.paths = [PATH.format(label=i // 1300, number=i) for i in range(records)]

        def __len__(self) -> int:
            return len(self.paths)

        def __getitem__(self, index: int) -> int:
            return len(self.paths[index])

    def batches() -> Iterator[int]:
        loader: Any = torch.utils.data.DataLoader(
            Paths(), BATCH, shuffle=True, drop_last=True, num_workers=threads, multiprocessing_context="fork"
        )
        for lengths in loader:
            yield len(lengths)

    return batches


def main() -> None:
    started = float(os.environ["BENCH_STARTED"])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=["fastload", "torch"])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    make = fastload_batches if arguments.loader == "fastload" else torch_batches
    batches = make(arguments.dataset, arguments.records, arguments.threads)
    imported = time.monotonic()
    samples, iterator = 0, batches()
    samples += next(iterator)
    first = time.monotonic()
    curve = Curve(arguments.seconds / 20, first)
    for count in iterator:
        samples += count
        curve.sample(samples)
        if time.monotonic() - first > arguments.seconds:
            break
    values = {
        "imports": imported - started,
        "first_after_imports": first - imported,
        "samples": samples,
        "rate": samples / (time.monotonic() - first),
        "curve": curve.points,
    }
    print(json.dumps(values), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
