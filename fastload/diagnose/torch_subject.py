"""A loader of torch's that is examined: made anew with other arguments, of the same dataset."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset

from fastload.dataset.kind import TorchDataLoader
from fastload.diagnose.passes import Passes

__all__ = ["Files", "Part", "TorchSubject"]

_SAMPLES = 300  # files of a sample
_MOST_BYTES = 256 << 20
_BATCH_SECONDS = 0.2  # a batch that takes longer is made smaller, or trials would see too few
_KEPT = (
    "batch_size",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)


@dataclass(frozen=True)
class Files:
    """Pictures in files, which torchvision's ImageFolder and its like have.

    Args:
        paths, labels: of a sample of them.
        indices: their places in the dataset.
        root: the folder of all of them; "" where it is not known.
        transform: of the pictures, or None.
        load: makes a picture of a path; None: not known.
    """

    paths: list[str]
    labels: list[int]
    indices: list[int]
    root: str
    transform: Any
    load: Any


@dataclass(frozen=True)
class Part:
    """A step of a sample's making: its name, and its seconds a sample in one process."""

    name: str
    words: str
    seconds: float


class TorchSubject:
    """A torch DataLoader.

    Args:
        loader: the user's; never iterated.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.given = dict(getattr(loader, "_arguments", {}))  # of ours, over a torch Dataset
        self.dataset = loader.dataset
        self.batch_size = _batch_size(loader)
        self.workers = int(self.of("num_workers") or 0)
        #: Of batches in trials, where the loader makes them itself.
        self.trial_batch = self.batch_size

    def suit(self, rate: float) -> None:
        """Choose the trials' batches by the rate that one worker has."""
        fitting = max(1, int(rate * max(1, self.workers) * _BATCH_SECONDS))
        self.trial_batch = max(1, min(self.batch_size, fitting))

    def of(self, name: str) -> Any:
        return self.given[name] if name in self.given else getattr(self.loader, name, None)

    @property
    def is_stream(self) -> bool:
        """Whether samples have no numbers."""
        return isinstance(self.dataset, IterableDataset)

    def make(self, indices: Sequence[int] | None = None, **changes: Any) -> Any:
        """The same loader, with arguments changed, and of certain samples only."""
        given = {name: self.of(name) for name in _KEPT} | {"num_workers": self.workers}
        given |= self._order() if indices is None else {"sampler": Passes(indices), "drop_last": True}
        if indices is not None or given["batch_size"] not in (None, 1):
            given["batch_size"] = self.trial_batch
        given |= changes
        if not given["num_workers"]:
            given |= {"prefetch_factor": None, "multiprocessing_context": None}
        else:
            given["persistent_workers"] = True  # so that a new pass does not begin with new processes
        return TorchDataLoader(self.dataset, **given)

    def _order(self) -> dict[str, Any]:
        if self.is_stream:
            return {}
        if self.given:
            own = {name: self.given[name] for name in ("shuffle", "sampler", "batch_sampler")}
            return {name: value for name, value in own.items() if value is not None}
        batches = self.loader.batch_sampler
        if self.of("batch_size") is None and batches is not None:
            return {"batch_sampler": batches, "batch_size": 1, "drop_last": False}
        return {"sampler": self.loader.sampler}

    def parts(self, seconds: float) -> list[Part]:
        """What a sample's making consists of, timed here."""
        if self.is_stream:
            return []
        files = self.files()
        if files is None or files.load is None:
            return [Part("python", f"{type(self.dataset).__name__}[i]", self._item_seconds(seconds))]
        pictures, load = _timed_calls(files.load, files.paths, seconds / 2)
        found = [Part("decode", f"{type(self.dataset).__name__}'s loader", load)]
        for step in _steps(files.transform):
            pictures, taken = _timed_calls(step, pictures, seconds / 4)
            module = type(step).__module__.partition(".")[0]
            known = module in ("torchvision", "torch", "timm", "fastload")
            name = getattr(step, "__qualname__", type(step).__qualname__)
            found.append(Part("transform" if known else "python", name, taken))
        return found

    def _item_seconds(self, seconds: float) -> float:
        count = len(self.dataset)
        places = [(7919 * step) % count for step in range(64)]
        return _timed_calls(self.dataset.__getitem__, places, seconds)[1]

    def collate_seconds(self, seconds: float) -> float:
        """A sample's share of the collate function's time."""
        collate, size = self.of("collate_fn"), min(self.batch_size, 64)
        if self.is_stream or collate is None:
            return 0.0
        samples = [self.dataset[step % len(self.dataset)] for step in range(size)]
        return _timed_calls(lambda _: collate(list(samples)), [0] * 50, seconds)[1] / size

    def files(self) -> Files | None:
        """A sample of the pictures' files; None where the dataset has no such list."""
        dataset, places = self.dataset, None
        while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
            places = [dataset.indices[place] for place in places] if places else list(dataset.indices)
            dataset = dataset.dataset
        listed = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
        if not isinstance(listed, (list, tuple)) or not listed:
            return None
        places = list(range(len(listed))) if places is None else places
        chosen = list(range(0, len(places), max(1, len(places) // _SAMPLES)))[:_SAMPLES]
        found: list[tuple[str, int, int]] = []
        room = _MOST_BYTES
        for place in chosen:
            one = listed[places[place]]
            if not (isinstance(one, (list, tuple)) and len(one) == 2 and isinstance(one[0], (str, Path))):
                return None
            path, label = str(one[0]), one[1]
            if not Path(path).is_file() or not isinstance(label, int):
                return None
            room -= Path(path).stat().st_size
            found.append((path, label, place))
            if room < 0:
                break
        paths, labels, indices = ([one[part] for one in found] for part in range(3))
        of = (getattr(dataset, name, None) for name in ("root", "transform", "loader"))
        root, transform, load = of
        return Files(paths, labels, indices, str(root or ""), transform, load)  # type: ignore[arg-type]


def _batch_size(loader: Any) -> int:
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    if isinstance(size, int):
        return size
    for batch in loader.batch_sampler or ():
        return len(batch)
    return 1


def _steps(transform: Any) -> Iterator[Any]:
    if transform is None:
        return
    inner = getattr(transform, "transforms", None)
    if isinstance(inner, (list, tuple)) and "Compose" in type(transform).__name__:
        for one in inner:
            yield from _steps(one)
        return
    yield transform


def _timed_calls(function: Any, values: Sequence[Any], seconds: float) -> tuple[list[Any], float]:
    """What the function makes of the values, as far as time goes (four at least), and seconds a call."""
    with torch.random.fork_rng(devices=[]):
        began, made = time.perf_counter(), []
        for value in values:
            made.append(function(value))
            if len(made) >= 4 and time.perf_counter() - began > seconds:
                break
        return made, (time.perf_counter() - began) / max(1, len(made))
