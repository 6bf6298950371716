"""A torch DataLoader under test: loaders like it with other arguments, and a sample of its files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset

from fastload.dataset.views import TorchDataLoader
from fastload.diagnose.trial import FixedOrder
from fastload.loader.view import view_of

# ---- The torch loader under test --------------------------------------------------------------------

_SAMPLES = 300  # files in a sample of them
_MOST_BYTES = 256 << 20
_BATCH_SECONDS = 0.1  # of one process; slower batches are made smaller, or trials would have too few
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
    """A sample of the picture files of torchvision's ImageFolder or a similar dataset.

    Args:
        paths, labels: of the sample.
        indices: their indices in the dataset.
        root: the folder of all files; "": not known.
        transform: of the pictures, or None.
        load: loads a picture from a path; None: not known.
    """

    paths: list[str]
    labels: list[int]
    indices: list[int]
    root: str
    transform: Any
    load: Any


class TorchLoaderUnderTest:
    """A torch DataLoader, from which loaders with other arguments are made.

    Args:
        loader: the user's; never iterated.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        view = view_of(loader)
        self._arguments = None if view is None else view.arguments  # of fastload's over a torch Dataset
        self.dataset = loader.dataset
        self.batch_size = _batch_size(loader)
        self.workers = int(self.of("num_workers") or 0)
        #: Batch size in trials, unless a batch sampler makes the batches.
        self.trial_batch = self.batch_size
        #: Whether workers outlive a pass in trials.
        self.keeps_workers = True

    def suit(self, rate: float) -> None:
        """Choose the trials' batch size by the rate of one process."""
        fitting = max(1, int(rate * _BATCH_SECONDS))
        self.trial_batch = max(1, min(self.batch_size, fitting))

    def of(self, name: str) -> Any:
        """Return an argument of the loader by its name; None if it has none."""
        return getattr(self._arguments or self.loader, name, None)

    @property
    def is_stream(self) -> bool:
        """Whether samples have no indices."""
        return isinstance(self.dataset, IterableDataset)

    @property
    def pass_samples(self) -> int:
        """Samples of a pass; 0: not known, for a stream without a length."""
        try:
            return len(self.loader) * self.batch_size
        except TypeError:
            return 0

    def make(self, indices: Sequence[int] | None = None, **changes: Any) -> Any:
        """Make the same loader with changed arguments, over ``indices`` only, if given."""
        arguments = {name: self.of(name) for name in _KEPT} | {"num_workers": self.workers}
        arguments |= self._order() if indices is None else {"sampler": FixedOrder(indices), "drop_last": True}
        if indices is not None or arguments["batch_size"] not in (None, 1):
            arguments["batch_size"] = self.trial_batch
        arguments |= changes
        if not arguments["num_workers"]:
            arguments |= {"prefetch_factor": None, "multiprocessing_context": None}
        else:
            # Unless passes are short, a new one must not start new processes: a trial has more of them.
            arguments.setdefault("persistent_workers", self.keeps_workers)
        return TorchDataLoader(self.dataset, **arguments)

    def _order(self) -> dict[str, Any]:
        if self.is_stream:
            return {}
        if self._arguments is not None:
            own = {name: self.of(name) for name in ("shuffle", "sampler", "batch_sampler")}
            return {name: value for name, value in own.items() if value is not None}
        batches = self.loader.batch_sampler
        if self.of("batch_size") is None and batches is not None:
            return {"batch_sampler": batches, "batch_size": 1, "drop_last": False}
        return {"sampler": self.loader.sampler}

    def item_seconds(self, seconds: float) -> float:
        """Time samples in this process; 0 for a stream."""
        if self.is_stream:
            return 0.0
        count = len(self.dataset)
        places = [(7919 * step) % count for step in range(64)]
        with torch.random.fork_rng(devices=[]):
            began, done = time.perf_counter(), 0
            for place in places:
                self.dataset[place]
                done += 1
                if done >= 4 and time.perf_counter() - began > seconds:
                    break
            return (time.perf_counter() - began) / done

    def files(self) -> Files | None:
        """Return a sample of the picture files; None if the dataset does not list them."""
        dataset, places = self.dataset, None
        while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
            places = [dataset.indices[place] for place in places] if places else list(dataset.indices)
            dataset = dataset.dataset
        listed = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
        if not isinstance(listed, (list, tuple)) or not listed:
            return None
        places = list(range(len(listed))) if places is None else places
        chosen = list(range(0, len(places), max(1, len(places) // _SAMPLES)))[:_SAMPLES]
        files: list[tuple[str, int, int]] = []
        room = _MOST_BYTES
        for place in chosen:
            item = listed[places[place]]
            if not (isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], (str, Path))):
                return None
            path, label = str(item[0]), item[1]
            if not Path(path).is_file() or not isinstance(label, int):
                return None
            room -= Path(path).stat().st_size
            files.append((path, label, place))
            if room < 0:
                break
        paths, labels, indices = ([file[part] for file in files] for part in range(3))
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
