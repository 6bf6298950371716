"""fork() while Python callables run: the child does not hang, nor train on wrong batches."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from process import in_child
from torch import _C

from fastload import DataLoader
from fastload import transforms as T
from fastload.backends import callables as worker_stage
from fastload.errors import StateError

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def brighten(image: torch.Tensor) -> torch.Tensor:
    """A Python callable that takes a while, as a user's does: at most moments one is under way."""
    time.sleep(0.001)
    return image


def open_loader(folder: Path, **options: Any) -> DataLoader:
    steps = [T.RandomResizedCrop(32), T.ToDtype("uint8"), brighten]
    return DataLoader(folder, 4, shuffle=True, seed=1, num_workers=2, transform=T.Compose(steps), **options)


def goes_on(loader: DataLoader, iterator: Iterator[Any]) -> None:
    with pytest.raises(StateError, match=r"before fork\(\)"):
        next(iterator)


def begins_an_epoch(loader: DataLoader, iterator: Iterator[Any]) -> None:
    with pytest.raises(StateError, match=r"before fork\(\)"):
        next(iter(loader))


def closes(loader: DataLoader, iterator: Iterator[Any]) -> None:
    loader.close()


def makes_its_own(loader: DataLoader, iterator: Iterator[Any]) -> None:
    del iterator
    loader.close()
    with open_loader(Path(loader.dataset.folder)) as fresh:
        labels = [label for _, labels in fresh for label in labels.tolist()]
    assert len(labels) == 52


@pytest.mark.parametrize("use", [goes_on, begins_an_epoch, closes, makes_its_own])
def test_a_forked_child_does_not_hang(folder: Path, use: Callable[[DataLoader, Iterator[Any]], None]) -> None:
    """The moments are random, from a fixed seed: batches are queued, under way and complete."""
    moments = random.Random(5)
    loader = open_loader(folder, prefetch_factor=4)
    for _ in range(6):
        iterator = iter(loader)
        for _ in range(moments.randrange(1, 6)):
            next(iterator)
        time.sleep(moments.uniform(0, 0.01))
        assert in_child(partial(use, loader, iterator)) == 0
        assert sum(1 for _ in iterator) > 0, "the parent goes on"
    loader.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_torch_knows_none_of_the_parents_workers_in_the_child(folder: Path, persistent: bool) -> None:
    """It keeps them by the iterator's address, and an iterator made in the child may get the same one."""
    loader = open_loader(folder, persistent_workers=persistent)
    iterator = iter(loader)
    next(iterator)
    addresses = [id(stage._iterator) for stage in worker_stage._stages if stage._iterator is not None]
    assert addresses

    def makes_others() -> None:
        for address in addresses:
            _C._set_worker_pids(address, (os.getpid(),))  # refuses those that it has
            _C._remove_worker_pids(address)

    assert in_child(makes_others) == 0
    assert sum(1 for _ in iterator) > 0, "the parent goes on"
    loader.close()
