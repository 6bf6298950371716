"""The scenarios of bench_doctor.py: a training loop with one thing wrong with it, and the same one mended.

A scenario makes its loaders and its step from a :class:`Place`; what makes the machine itself worse (a slow
disk, a CPU quota, a neighbour) is a context that is open while everything is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from doctor.sets import picture_folder, set_of
from harness.page_cache import evict
from harness.throttle import busy_neighbour, quota_of_cpus, throttled
from stores.line import Line

import fastload
from fastload import transforms as T

__all__ = ["SCENARIOS", "Place", "Scenario"]

SIZE, BATCH = 224, 32
CORES = len(os.sched_getaffinity(0))
FAST = 10_000.0 * CORES  # samples a second of a step that hardly takes any time
DISK = 12 << 20  # bytes a second of the slow disk
LINE = 20e6  # bytes a second of the line to a store ...
LATENCY = 0.02  # ... and the seconds of a request on it
READS = 150  # requests a second of the one that is slow by its heads


@dataclass
class Place:
    """Where a scenario runs: the pictures, and a folder for what is made of them."""

    images: Path
    work: Path
    url: str = ""  # of a set in a store, while there is one
    device: str = "cpu"  # that trains, in the scenarios with a network

    def set(self, name: str) -> Path:
        """A packed set; see doctor/sets.py."""
        return set_of(self.images, self.work, name)

    def loader(self, name: str, **options: Any) -> Any:
        """fastload's over a set; a thread a core, random crops, uint8."""
        given: dict[str, Any] = {"shuffle": True, "seed": 1, "num_workers": CORES, "cache": "off"}
        given |= {"batch_size": BATCH, "drop_last": True, "transform": crops()} | options
        return fastload.DataLoader(self.url or self.set(name), **given)

    def torch_loader(self, **options: Any) -> Any:
        """torch's over the image folder, with Pillow and torchvision."""
        from doctor.torch_loop import folder_loader

        given = {"batch_size": BATCH, "shuffle": True, "drop_last": True} | options
        return folder_loader(picture_folder(self.images, self.work, "plain"), SIZE, **given)

    def evict(self, name: str) -> None:
        """Out of the page cache with a set."""
        for path in self.set(name).iterdir():
            if path.is_file():
                evict(path)


def crops(*more: Any, dtype: str = "uint8") -> Any:
    """The classic job, and more behind it."""
    dtypes = [T.ToDtype(dtype, scale=True)] if dtype != "uint8" else []
    return T.Compose([T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), *dtypes, *more])


@dataclass(frozen=True)
class Scenario:
    """One problem.

    Args:
        name: of it.
        limits: causes that are right.
        fix: the name of the fix that is tried; "" where nothing is to be done.
        before, after: make the loader as it is and as the fix has it.
        step_rate: samples a second of the step, which waits as for a GPU.
        trouble: what is wrong with the machine meanwhile.
        mended: the same once it is mended; None: as before.
        prepare: before each run as it is: what makes it cold.
        compute: CPU seconds a sample of the step besides.
        warm_up: seconds before a loop is measured, at least: a first epoch, where the second one counts.
        model: a network that the place's device trains as the step; "": a step that waits.
    """

    name: str
    limits: tuple[str, ...]
    fix: str
    before: Callable[[Place], Any]
    after: Callable[[Place], Any] | None = None
    step_rate: float = FAST
    trouble: Callable[[Place], AbstractContextManager[Any]] = lambda place: nullcontext()
    mended: Callable[[Place], AbstractContextManager[Any]] | None = None
    prepare: Callable[[Place], None] = lambda place: None
    compute: float = 0.0
    warm_up: float = 0.5
    model: str = ""
    notes: str = field(default="")


def to_tensor(picture: Any) -> torch.Tensor:
    """(C, H, W) uint8, as a loader without a callable delivers it."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def slow_python(picture: Any) -> Any:
    """A callable that keeps the GIL for two milliseconds."""
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    return to_tensor(picture)


def slow_collate(samples: list[Any]) -> Any:
    """A collate function that takes two milliseconds a sample."""
    end = time.perf_counter() + 0.002 * len(samples)
    while time.perf_counter() < end:
        pass
    return torch.utils.data.default_collate(samples)


def _disk(place: Place) -> AbstractContextManager[Any]:
    return throttled(place.set("copies"), DISK)


def _reads(place: Place) -> AbstractContextManager[Any]:
    return throttled(place.set("copies"), READS, reads=True)


@contextmanager
def _line(place: Place) -> Iterator[None]:
    """The set of ordinary pictures in a store, behind a line."""
    folder = place.set("plain")
    with Line(folder.parent, latency=LATENCY, bandwidth=LINE) as line:
        place.url = f"{line.url}/{folder.name}"
        try:
            yield
        finally:
            place.url = ""


def _in_memory(place: Place) -> AbstractContextManager[Any]:
    """What an epoch from the cache, or ``fastload warm``, leaves: every page is in memory."""
    for path in place.set("copies").iterdir():
        path.read_bytes()
    return nullcontext()


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("slow step", ("step",), "", lambda p: p.loader("plain"), step_rate=250),
    Scenario(
        "slow step, one thread", ("step",), "",
        lambda p: p.loader("plain", num_workers=1), step_rate=120,
    ),
    Scenario("a step on the CPU", ("step",), "", lambda p: p.loader("plain"), compute=0.02),
    Scenario(
        "one thread", ("few-workers",), "threads",
        lambda p: p.loader("plain", num_workers=1), lambda p: p.loader("plain"),
    ),
    Scenario(
        "one thread and a step", ("few-workers",), "threads",
        lambda p: p.loader("plain", num_workers=1), lambda p: p.loader("plain"), step_rate=4000,
    ),
    Scenario(
        "progressive files", ("decode",), "baseline",
        lambda p: p.loader("progressive"), lambda p: p.loader("baseline"),
    ),
    Scenario(
        "large pictures", ("decode",), "max-side",
        lambda p: p.loader("large", batch_size=8), lambda p: p.loader("small", batch_size=8),
    ),
    Scenario(
        "large pictures and a step", ("decode",), "max-side",
        lambda p: p.loader("large", batch_size=8), lambda p: p.loader("small", batch_size=8), step_rate=1500,
    ),
    Scenario(
        "no entry points", ("decode",), "entry-points",
        lambda p: p.loader("bare"), lambda p: p.loader("indexed"),
    ),
    Scenario(
        "decoding limits", ("decode",), "decoded-cache",
        lambda p: p.loader("plain"),
        lambda p: p.loader("plain", cache=fastload.Cache("2GB", decoded=512)), warm_up=3.0,
    ),
    Scenario(
        "floats made on the CPU", ("decode", "transform"), "device-normalise",
        lambda p: p.loader("plain", transform=crops(dtype="float32")), lambda p: p.loader("plain"),
        notes="what the device does then is not in it",
    ),
    Scenario(
        "a Python callable", ("python",), "callable",
        lambda p: p.loader("plain", transform=crops(slow_python), num_workers=0),
        lambda p: p.loader("plain", transform=crops(), num_workers=0),
    ),
    Scenario(
        "a Python callable in workers", ("python",), "callable",
        lambda p: p.loader("plain", transform=crops(slow_python)), lambda p: p.loader("plain"),
    ),
    Scenario(
        "a slow collate function", ("collate",), "collate_fn",
        lambda p: p.loader("plain", collate_fn=slow_collate), lambda p: p.loader("plain"),
    ),
    Scenario(
        "uneven pictures", ("prefetch", "decode"), "max-side",
        lambda p: p.loader("uneven", batch_size=8, prefetch_factor=1),
        lambda p: p.loader("even", batch_size=8, prefetch_factor=1),
        notes="the few large ones: prefetch or a smaller side",
    ),
    Scenario(
        "tiny batches", ("batch-size",), "batch-size",
        lambda p: p.loader("small", batch_size=1), lambda p: p.loader("small", batch_size=4),
    ),
    Scenario(
        "a slow disk", ("storage",), "memory-cache",
        lambda p: p.loader("copies"), lambda p: p.loader("copies"), trouble=_disk,
        mended=_in_memory, prepare=lambda p: p.evict("copies"),
    ),
    Scenario(
        "a slow disk and a step", ("storage",), "warm",
        lambda p: p.loader("copies"), lambda p: p.loader("copies"), trouble=_disk, step_rate=400,
        mended=_in_memory, prepare=lambda p: p.evict("copies"),
    ),
    Scenario(
        "a disk with few reads a second", ("storage",), "block",
        lambda p: p.loader("copies"), lambda p: p.loader("copies", shuffle="block"), trouble=_reads,
        prepare=lambda p: p.evict("copies"), warm_up=6.0, notes="its window is read first",
    ),
    Scenario(
        "a store behind a line", ("storage",), "memory-cache",
        lambda p: p.loader("plain"), lambda p: p.loader("plain", cache="2GB"), trouble=_line, warm_up=6.0,
    ),
    Scenario(
        "a CPU quota", ("quota",), "quota",
        lambda p: p.loader("plain"), lambda p: p.loader("plain"),
        trouble=lambda p: quota_of_cpus(CORES / 2), mended=lambda p: nullcontext(),
    ),
    Scenario(
        "a neighbour", ("decode", "transform"), "",
        lambda p: p.loader("plain"), trouble=lambda p: busy_neighbour(CORES),
    ),
    Scenario(
        "torch without workers", ("no-workers",), "workers",
        lambda p: p.torch_loader(), lambda p: p.torch_loader(num_workers=CORES, persistent_workers=True),
    ),
    Scenario(
        "torch with a worker a core", ("decode", "transform"), "fastload",
        lambda p: p.torch_loader(num_workers=CORES, persistent_workers=True),
        lambda p: p.loader("plain", transform=crops(dtype="float32")),
    ),
    Scenario(
        "torch and a slow collate function", ("collate",), "collate_fn",
        lambda p: p.torch_loader(num_workers=CORES, collate_fn=slow_collate, persistent_workers=True),
        lambda p: p.torch_loader(num_workers=CORES, persistent_workers=True),
    ),
    Scenario(
        "torch and a slow step", ("step",), "",
        lambda p: p.torch_loader(num_workers=CORES, persistent_workers=True), step_rate=60,
    ),
)  # fmt: skip
