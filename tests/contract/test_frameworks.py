"""What integrations of frameworks ask of the loader; the frameworks' own tests are in tests/foreign."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import fastload
from fastload import transforms as T
from fastload.errors import StateError
from fastload.integrations.lightning import epoch_of_fabric
from fastload.loader.view import viewed
from fastload.sampler import Partition, make_sampler

CROP = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])


def rows(loader: Any) -> list[list[float]]:
    """Each batch's labels and the sum of its pixels."""
    return [[*labels.tolist(), float(images.double().sum())] for images, labels in loader]


def test_iteration_begins_at_a_batch_of_the_epoch(folder: Path) -> None:
    whole = fastload.DataLoader(folder, 4, shuffle=True, transform=CROP, seed=3)
    first, second = rows(whole), rows(whole)
    skipping = fastload.DataLoader(folder, 4, shuffle=True, transform=CROP, seed=3)
    assert rows(skipping._iterate(skip=5)) == first[5:]
    assert rows(skipping) == second
    skipping.load_state_dict({**whole.state_dict(), "epoch": 0, "position": 40})
    assert rows(skipping._iterate(skip=5)) == first[5:]  # counted from the epoch's beginning
    assert rows(fastload.DataLoader(folder, 4, transform=CROP, seed=3)._iterate(skip=99)) == []


@pytest.mark.parametrize(("total", "world", "drop_last", "expected"), [
    (51, 2, False, 3),
    (48, 2, False, 0),
    (51, 2, True, 0),
    (51, 1, False, 3),
])  # fmt: skip
def test_remainder_is_what_the_last_batch_has(total: int, world: int, drop_last: bool, expected: int) -> None:
    partition = Partition(4, 0, world, drop_last)
    assert make_sampler(total, partition, shuffle=False, seed=0).remainder(0) == expected


def test_remainder_of_listed_batches_is_that_of_the_last_round() -> None:
    batches = [[0, 1, 2], [3], [4, 5]]
    sampler = make_sampler(6, Partition(1, 0, 2), shuffle=False, seed=0, batch_sampler=batches)
    assert sampler.remainder(0) == 2
    sampler = make_sampler(6, Partition(1, 0, 3), shuffle=False, seed=0, batch_sampler=batches)
    assert sampler.remainder(0) == 0


def test_uneven_batches_can_be_had_for_a_while(folder: Path) -> None:
    loaders = [
        fastload.DataLoader(folder, 5, transform=CROP, seed=3, ranks=fastload.Ranks(rank, 2, handshake="off"))
        for rank in range(2)
    ]
    last = [[labels.tolist() for _, labels in loader][-1] for loader in loaders]
    assert [len(labels) for labels in last] == [1, 1]
    for loader in loaders:
        assert loader.batch_sampler.even_batches
    three = torch.utils.data.Subset(range(13), range(13))
    pair = [
        fastload.DataLoader(three, 5, ranks=fastload.Ranks(rank, 2, handshake="off")) for rank in range(2)
    ]
    assert [len(list(loader)[-1]) for loader in pair] == [2, 2]
    for loader in pair:
        loader.batch_sampler.even_batches = False
    assert sorted(int(x) for loader in pair for x in list(loader)[-1]) == [10, 11, 12]
    for loader in pair:
        loader.batch_sampler.even_batches = True
    assert [len(list(loader)[-1]) for loader in pair] == [2, 2]


def test_arguments_that_a_framework_decides_are_amended_before_iteration(folder: Path) -> None:
    loader = fastload.DataLoader(folder, 8, transform=CROP, seed=3)
    viewed(loader, "the test").amend(batch_size=4)
    assert loader.batch_size == loader.batch_sampler.batch_size == 4
    assert {len(labels) for _, labels in loader} == {4}
    with pytest.raises(StateError, match="batch_size cannot change after the first batch"):
        viewed(loader, "the test").amend(batch_size=8)


def test_no_framework_is_imported(folder: Path) -> None:
    program = (
        "import sys, fastload; from fastload import transforms as T\n"
        f"loader = fastload.DataLoader({str(folder)!r}, 4, transform=T.CenterCrop(16), seed=0)\n"
        "assert loader._is_accelerate_prepared; list(loader); loader.batch_sampler; loader.set_epoch(1)\n"
        "print(sorted(m for m in sys.modules if m in ('accelerate', 'lightning', 'transformers')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_variables_of_a_training_function_are_not_kept_alive() -> None:
    """Whoever looks for a framework's wrapper among the callers looks into no other frame."""

    class Images:
        pass

    def train() -> tuple[bool, int, int]:
        images = Images()
        known = weakref.ref(images)
        epochs = epoch_of_fabric(3, 7), epoch_of_fabric(7, 7)
        del images
        gc.collect()
        return known() is None, *epochs

    assert train() == (True, 3, 7)
