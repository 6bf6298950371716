"""What bench_threads.py gives to threads: jobs of fastload, torch with Pillow, and the machine itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.rounds import skip
from loaders.candidates import torch_pil
from loaders.jobs import JOBS as LOADER_JOBS
from loaders.jobs import MEAN, STD
from recipes.fastload import transform_of

__all__ = ["CONTROLS", "JOBS", "PACKS", "Job", "Work", "open_job"]

#: Options of ``fastload pack``, by the name of the set.
PACKS: dict[str, tuple[str, ...]] = {
    "packed": (),
    "coefficients": ("--coefficients",),
    "raw": ("--raw",),
}


@dataclass(frozen=True)
class Job:
    """What is made of which set, in batches of so many."""

    pack: str
    recipe: str = ""  # a name in recipes/named.py; without one the crop and the flip
    normalize: bool = True
    batch: int = 64


JOBS = {
    "u8": Job("packed", normalize=False),
    "f32": Job("packed"),
    "coefficients": Job("coefficients"),
    "raw": Job("raw"),
    "rand_augment": Job("packed", "rand_augment"),
    "dino": Job("packed", "dino", batch=16),
}
TORCH = {"torch f32": "train_f32", "torch rand_augment": "rand_augment"}
CONTROLS = ("arithmetic", "copy")


@dataclass(frozen=True)
class Work:
    """One process's part."""

    job: str  # a key of JOBS, of TORCH, or of CONTROLS
    folder: Path  # has ``images`` and the sets of PACKS
    threads: int
    rank: int = 0
    ranks: int = 1


def open_job(work: Work) -> tuple[Any, Iterator[int]]:
    """The loader, None where it tells nothing of itself, and the endless sizes of its batches."""
    if work.job == "arithmetic":
        return None, arithmetic()
    if work.job == "copy":
        return None, copies()
    if work.job in TORCH:
        job = LOADER_JOBS[TORCH[work.job]]
        return None, torch_pil.batches(job, "", work.threads, work.folder / "images", work.folder)
    loader = loader_of(work)
    return loader, sizes_of(loader)


def loader_of(work: Work) -> Any:
    """fastload.DataLoader for a job."""
    from fastload import DataLoader, Ranks
    from fastload import transforms as t

    job = JOBS[work.job]
    steps = [t.RandomResizedCrop(224), t.RandomHorizontalFlip()]
    steps += [t.Normalize(mean=MEAN, std=STD)] if job.normalize else []
    return DataLoader(
        work.folder / job.pack,
        batch_size=job.batch,
        shuffle=True,
        drop_last=True,
        num_workers=work.threads,
        seed=0,
        ranks=Ranks(work.rank, work.ranks, handshake="off"),
        cache="off",
        transform=transform_of(job.recipe) if job.recipe else t.Compose(steps),
    )


def sizes_of(loader: Any) -> Iterator[int]:
    """Samples of each batch, epoch after epoch."""
    if len(loader) == 0:
        skip("a rank's epoch has no whole batch: there must be more --images")
    while True:
        for batch in loader:
            yield len(batch["label"] if isinstance(batch, dict) else batch[1])


def arithmetic() -> Iterator[int]:
    """Units of work that hardly touches memory: how much slower is a core when the others work, too?"""
    square: Callable[[float], float] = math.sqrt
    while True:
        for _ in range(100):
            sum(square(value) for value in range(1000))
        yield 1


def copies() -> Iterator[int]:
    """Megabytes copied from memory to memory, past every cache."""
    import numpy as np

    source, target = (np.ones(64 << 20, np.uint8) for _ in range(2))
    while True:
        np.copyto(target, source)
        yield 64
