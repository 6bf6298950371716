"""Small jobs, whose epochs :mod:`epoch_steps` disturbs: 24 tiny pictures in batches of four, two epochs.

A job keeps what its consumer received, goes on after an interruption as a careful program does, and says in
the end what was lost, came twice, or was left over.
"""

from __future__ import annotations

import gc
import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import field_samples
import numpy as np
import torch
from plain_pack import plain_pack
from process import tasks
from simulated_gpu import SimulatedGpu
from torch.utils.data import Dataset

import fastload
from fastload import DataLoader, Ragged
from fastload import transforms as T
from fastload.backends import choice
from fastload.errors import SlowPathWarning, StateError

RECORDS, SIDE, BATCH, EPOCHS = 24, 8, 4, 2
BATCHES = RECORDS // BATCH  # of an epoch
SEED = 3


class Interrupted(Exception):
    """What a program's own handler of a signal raises."""


def pack(folder: Path) -> None:
    """The sets: raw pictures, labelled with their number; samples of many fields."""
    pixels = np.random.default_rng(0).integers(0, 256, (RECORDS, SIDE, SIDE, 3), np.uint8)
    plain_pack(folder / "set", [p.tobytes() for p in pixels], range(RECORDS), raw_size=(SIDE, SIDE))
    fastload.pack(
        field_samples.Samples(RECORDS), folder / "fields", field_samples.SCHEMA, shard_size=20_000, num_proc=1
    )


def brighten(image: torch.Tensor) -> torch.Tensor:
    """A Python callable."""
    return image + 1


def first_letters(batch: dict[str, Any]) -> Any:
    """A program's own way to make a batch."""
    return batch["image"], [words[:4] for words in batch["caption"]], batch["second"]


class Numbers(Dataset[Any]):
    """A torch Dataset."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 2, 2), float(index)), index


NATIVE = T.Compose([T.RandomResizedCrop(SIDE - 2), T.ToDtype("uint8")])
PYTHON = T.Compose([T.RandomResizedCrop(SIDE - 2), T.ToDtype("uint8"), brighten])
FLOAT = T.Compose([T.RandomResizedCrop(SIDE - 2), T.ToDtype("float32")])
ANY_SIZE = T.Compose([T.RandomHorizontalFlip(), T.ToDtype("uint8"), brighten])  # decoded by the workers
FIELDS = ["image", "mask", "caption", "boxes", "track", "facts", "second"]
#: Loaders by name. "set" and "fields" stand for the packed sets, "cache" for a folder.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"transform": NATIVE, "num_workers": 2},
    "workers": {"transform": PYTHON, "num_workers": 2},
    "persistent": {"transform": PYTHON, "num_workers": 2, "persistent_workers": True},
    "any_size": {"transform": ANY_SIZE, "num_workers": 2},
    "inline": {"transform": PYTHON, "num_workers": 0},
    "batch_transform": {"transform": FLOAT, "num_workers": 2, "batch_transform": T.RandomErasing(1.0)},
    "device": {"transform": FLOAT, "num_workers": 2, "device": "cuda", "prefetch_factor": 3},
    "cached": {"transform": NATIVE, "num_workers": 2, "cache": "cache"},
    "torch_dataset": {"dataset": Numbers(), "num_workers": 2},
    "fields": {"dataset": "fields", "fields": FIELDS, "transform": NATIVE, "num_workers": 2},
    "own_collate": {
        "dataset": "fields",
        "fields": FIELDS,
        "transform": NATIVE,
        "num_workers": 2,
        "collate": first_letters,
    },
}
#: Whose batches are made by processes.
WITH_WORKERS = ("workers", "persistent", "any_size", "torch_dataset")


warnings.filterwarnings("ignore", category=SlowPathWarning)
simulated: list[SimulatedGpu] = []  # of this process


def make(kind: str, folder: Path, seed: int = 0) -> DataLoader:
    """A loader. A device is simulated; ``seed`` is of the order in which things happen there."""
    options = {"dataset": "set", "shuffle": True, "seed": SEED, "batch_size": BATCH, **KINDS[kind]}
    if isinstance(options["dataset"], str):
        options["dataset"] = folder / options["dataset"]
    if "cache" in options:
        options["cache"] = folder / "cache"
    if "device" in options:
        gpu = SimulatedGpu(seed)
        simulated.append(gpu)
        choice.find_gpu = lambda device: None if device is None else gpu  # type: ignore[assignment]
        choice.goes_to_gpu = lambda device: device is not None  # type: ignore[assignment]
    return DataLoader(**options)


def print_of(batch: Any) -> int:
    """A number for the bytes of a batch."""
    for gpu in simulated:
        gpu.synchronize()
    return zlib.crc32(_bytes_of(batch))


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return np.ascontiguousarray(value.numpy()).tobytes()
    if isinstance(value, Ragged):
        return _bytes_of([value.values, value.offsets])
    if isinstance(value, dict):
        return _bytes_of(list(value.items()))
    if isinstance(value, list | tuple):
        return b"".join(_bytes_of(one) for one in value)
    return repr(value).encode()


class Job:
    """A consumer of two epochs.

    Args:
        kind: which loader.
        folder: of the set.
        wanted: what the batches are, by their order; empty: to be found out.
        recovery: after an interruption go on by "state" (a new loader), by the same "iterator", or by a new
            iterator of the same loader ("again", from its own state).
        seed: of a simulated device.
    """

    def __init__(
        self, kind: str, folder: Path, wanted: list[int], recovery: str = "state", seed: int = 0
    ) -> None:
        self.kind, self.folder, self.wanted, self.recovery, self.seed = kind, folder, wanted, recovery, seed
        self.got: list[int] = []
        self.loader: DataLoader | None = None
        self.iterator: Iterator[Any] | None = None
        self.state: dict[str, Any] | None = None  # to be loaded
        self.looked_back = self.over = False
        self.in_hand: Any = None  # a batch that has come, and is not counted yet
        self.interruptions: list[str] = []
        #: Called with the number of batches so far, in the loop's body.
        self.on_batch: Callable[[int], None] = lambda count: None

    def run(self, interruptions: tuple[type[BaseException], ...] = ()) -> None:
        """Both epochs; whatever is raised of ``interruptions`` is survived."""
        while True:
            try:
                if not self.over:
                    self.consume()
                    self.over = True
                self.finish()
                return
            except interruptions as error:
                self.interruptions.append(repr(error))
                self.recover(interruptions)

    def consume(self) -> None:
        """Until the second epoch's end, from wherever it is."""
        if self.loader is None:
            self.loader = make(self.kind, self.folder, self.seed)
        self.load()
        while self.epoch() < EPOCHS:
            if self.iterator is None:
                self.iterator = iter(self.loader)
            for self.in_hand in self.iterator:  # noqa: B020
                # No signal is handled between the iterator's return and this.
                self.take()
                self.on_batch(len(self.got))
                if len(self.got) == BATCHES + 2 and not self.looked_back:
                    break
            self.iterator = None
            if len(self.got) == BATCHES + 2 and not self.looked_back:
                self.state, self.looked_back = self.loader.state_dict(), True
                self.load()

    def take(self) -> None:
        """Count the batch in hand, once: the last line calls nothing, so no signal is handled within it."""
        if self.in_hand is not None:
            number = print_of(self.in_hand)
            self.got, self.in_hand = [*self.got, number], None

    def load(self) -> None:
        """Load the state that waits for it; one whose loading is interrupted is loaded again."""
        if self.state is not None:
            assert self.loader is not None
            self.loader.load_state_dict(self.state)
            self.state = None

    def epoch(self) -> int:
        """Where the loader says it is."""
        assert self.loader is not None
        return int(self.loader.state_dict()["epoch"])

    def finish(self) -> None:
        """Let everything go."""
        if self.loader is not None:
            self.loader.close()
        self.iterator = self.loader = None
        gc.collect()

    def recover(self, interruptions: tuple[type[BaseException], ...]) -> None:
        """What a program does that was interrupted and goes on."""
        self.take()
        if self.loader is None or self.over:
            return
        if self.recovery == "iterator" and self.iterator is not None:
            return
        self.iterator = None
        if self.recovery == "state":
            if self.state is None:
                self.state = self.loader.state_dict()
            self.loader.close()
            self.loader = None
        elif self.state is None:
            self.state = self.loader.state_dict()

    def verdict(self) -> list[str]:
        """What is wrong with the batches."""
        if self.got == self.wanted:
            return []
        lost = [i for i, wanted in enumerate(self.wanted) if wanted not in self.got]
        more = [i for i, found in enumerate(self.got) if found not in self.wanted]
        what = f"{len(self.got)} batches of {len(self.wanted)}; lost {lost}, unknown {more}"
        what += f"; interrupted by {self.interruptions}"
        return [what if lost or more or len(self.got) != len(self.wanted) else f"another order; {what}"]


def expected(kind: str, folder: Path) -> list[int]:
    """What the batches of both epochs are."""
    job = Job(kind, folder, [])
    job.run()
    assert len(job.got) == EPOCHS * BATCHES == len(set(job.got)), (kind, job.got)
    return job.got


class Holdings:
    """Threads and descriptors before and after."""

    def __init__(self) -> None:
        self.tasks, self.files = set(tasks()), self._files()

    @staticmethod
    def _files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def left(self, job: Job, until: Callable[[], bool]) -> list[str]:
        """What is there besides, once ``until`` says that enough time has passed."""
        while True:
            gc.collect()
            more = {name for task, name in tasks().items() if task not in self.tasks}
            files = self._files() - self.files
            if job.kind in WITH_WORKERS and job.interruptions:
                files = 0  # an interrupt within torch's own clearing up leaves pipes
            if not more and files <= 0:
                return []
            if until():
                found = [f"threads are left: {sorted(more)}"] if more else []
                names = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
                return found + ([f"{files} descriptors are left: {names}"] if files > 0 else [])


def after_fork(kind: str, job: Job, use: str) -> list[str]:
    """What a child does with the job of its parent, or beside it; what is wrong there."""
    if use == "fresh":
        own = Job(kind, job.folder, job.wanted, seed=job.seed)
        own.run()
        return [f"in the child: {word}" for word in own.verdict()]
    if use == "inherited" and job.loader is not None and job.loader._epochs.backend is not None:
        try:
            for _ in job.iterator if job.iterator is not None else job.loader:
                return ["the parent's loader gave the child a batch"]
        except StateError as error:
            return [] if "fork" in str(error) else [f"the child's error says nothing of fork: {error}"]
    if use == "close" and job.loader is not None:
        job.loader.close()
        job.loader = job.iterator = None
        gc.collect()
    return []
