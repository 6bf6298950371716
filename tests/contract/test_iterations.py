"""Several iterations of one loader, one iteration in several threads, errors: no sample lost or repeated."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, same
from process import in_child, left_over, settled, tasks
from torch.utils.data import Dataset, IterableDataset

from fastload import DataLoader, errors
from fastload import transforms as T

CROP = T.RandomResizedCrop(16)


def as_array(image: Any) -> Any:
    return torch.from_numpy(np.array(image))


class Counted(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 52

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.001)  # lets the other threads in
        return torch.full((2,), float(i)), i


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        return ((torch.full((2,), float(i)), i) for i in range(52))


class Picky(Dataset[int]):
    """Samples 5 and 6 are errors."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> int:
        if i in (5, 6):
            raise KeyError(f"no sample {i}")
        return i


def make(kind: str, folder: Path, **options: Any) -> DataLoader:
    if kind in ("packed", "callable"):
        tail = [as_array] if kind == "callable" else []
        return DataLoader(
            folder,
            **{
                "batch_size": 3,
                "transform": T.Compose([CROP, *tail]),
                "num_workers": 2,
                "seed": 1,
                **options,
            },
        )
    dataset: Any = Stream() if kind == "stream" else Counted()
    workers = 2 if kind == "workers" else 0
    return DataLoader(dataset, **{"batch_size": 3, "num_workers": workers, "seed": 1, **options})


def labels_of(batches: list[Any]) -> list[int]:
    """The samples' numbers: of the packed ones the label is the number modulo 5, so batches are compared."""
    return sorted(int(label) for _, labels in batches for label in labels)


@pytest.mark.parametrize(
    ("kind", "consumers"),
    [(kind, count) for kind in ("packed", "torch") for count in range(1, 9)]
    + [("callable", 3), ("workers", 4), ("stream", 5)],
)
def test_threads_that_share_an_iterator_get_each_batch_once(kind: str, consumers: int, folder: Path) -> None:
    expected = all_batches(make(kind, folder))
    iterator = iter(make(kind, folder))
    found: list[Any] = []
    failures: list[BaseException] = []

    def consume() -> None:
        try:
            for images, labels in iterator:
                found.append((images.clone(), labels.clone()))
                time.sleep(0)
        except BaseException as error:
            failures.append(error)

    users = [threading.Thread(target=consume) for _ in range(consumers)]
    for user in users:
        user.start()
    for user in users:
        user.join(60)
    assert not any(user.is_alive() for user in users)
    assert failures == []
    key = [(labels.tolist(), images.sum().item()) for images, labels in found]
    assert sorted(key) == sorted((labels.tolist(), images.sum().item()) for images, labels in expected)


@pytest.mark.parametrize("kind", ["packed", "torch"])
def test_ctrl_c_reaches_the_main_thread_while_another_one_waits_for_a_batch(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    """The main thread waits for a lock that another thread holds, inside a batch that takes a second."""

    inside = tmp_path / "inside"

    def slow(samples: list[Any]) -> Any:
        inside.touch()
        time.sleep(1)
        return samples

    def use() -> None:
        iterator = iter(make(kind, folder, collate_fn=slow, prefetch_factor=None))
        user = threading.Thread(target=lambda: list(iterator), daemon=True)
        user.start()
        assert settled(inside.exists, True)
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def wait_for_the_lock() -> None:
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            list(iterator)

        with pytest.raises(KeyboardInterrupt):
            wait_for_the_lock()

    assert in_child(use) == 0


@pytest.mark.parametrize("kind", ["packed", "callable", "torch", "workers", "stream"])
def test_zipped_and_nested_iterations_are_passes_of_their_own(kind: str, folder: Path) -> None:
    options = {} if kind == "stream" else {"shuffle": True}
    other = make(kind, folder, **options)
    epochs = [all_batches(other) for _ in range(4)]
    loader = make(kind, folder, **options)
    pairs = [(all_batches([a])[0], all_batches([b])[0]) for a, b in zip(loader, loader, strict=True)]
    assert same([a for a, _ in pairs], epochs[0])
    assert same([b for _, b in pairs], epochs[1])
    assert not same(epochs[0], epochs[1]) or kind == "stream"
    loader = make(kind, folder, **options)
    inner = []
    outer = []
    for step, batch in enumerate(loader):
        outer += all_batches([batch])
        if step < 3:
            inner.append(all_batches(loader))
    assert same(outer, epochs[0])
    for number, found in enumerate(inner):
        assert same(found, epochs[1 + number])


def test_iterations_beyond_the_most_lanes_share_them(folder: Path) -> None:
    other = make("packed", folder, shuffle=True)
    epochs = [all_batches(other) for _ in range(6)]
    loader = make("packed", folder, shuffle=True)
    found: list[list[Any]] = [[] for _ in range(6)]
    for step in zip(*[loader] * 6, strict=True):
        for mine, batch in zip(found, step, strict=True):
            mine += all_batches([batch])
    assert len(loader._epochs.lanes.backends) == 4
    for mine, expected in zip(found, epochs, strict=True):
        assert same(mine, expected)
    assert loader.stats()["samples"] == 6 * 52


def test_an_iterator_that_is_only_held_costs_no_threads(folder: Path) -> None:
    gc.collect()
    before = tasks()
    loader = make("packed", folder)
    held = []
    for _ in range(10):
        held.append(iter(loader))
        next(held[-1])
    assert len(loader._epochs.lanes.backends) == 1
    loader.close()
    assert left_over(before) == set()


def test_the_state_is_that_of_the_iteration_that_was_asked_last(folder: Path) -> None:
    loader = make("packed", folder, shuffle=True)
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 3)
    next(first)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (0, 6)
    rest = all_batches(first)
    resumed = make("packed", folder, shuffle=True)
    again = iter(loader)
    next(again)
    resumed.load_state_dict({**loader.state_dict(), "epoch": 0, "position": 6})
    assert same(all_batches(resumed), rest)


def test_with_persistent_workers_the_older_iteration_says_that_it_is_over(folder: Path) -> None:
    loader = make("workers", folder, persistent_workers=True)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert next(second)[1].tolist() == [0, 1, 2]
    with pytest.raises(errors.StateError, match="took over its workers"):
        next(first)
    assert len(all_batches(second)) == 17
    assert len(all_batches(loader)) == 18


@pytest.mark.parametrize("workers", [0, 2])
def test_iteration_goes_on_after_a_datasets_error(workers: int) -> None:
    loader = DataLoader(Picky(), batch_size=2, num_workers=workers)
    iterator = iter(loader)
    found: list[Any] = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except KeyError:
            found.append(loader.state_dict()["position"])
        except StopIteration:
            break
    assert found == [[0, 1], [2, 3], 6, 8, [8, 9], [10, 11]]
    resumed = DataLoader(Picky(), batch_size=2, num_workers=workers)
    resumed.load_state_dict({**resumed.state_dict(), "seed": loader.state_dict()["seed"], "position": 8})
    assert [batch.tolist() for batch in resumed] == [[8, 9], [10, 11]]


def test_next_within_next_is_an_error_and_no_deadlock() -> None:
    iterators: list[Any] = []

    class Curious(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> int:
            return int(next(iterators[0]))

    iterators.append(iter(DataLoader(Curious())))
    with pytest.raises(errors.StateError, match="under way"):
        next(iterators[0])


class Slow(Dataset[int]):
    """Sample 2 takes until there is a file ``go``."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.go = folder / "inside", folder / "go"

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> int:
        if i == 2:
            self.inside.touch()
            while not self.go.exists():
                time.sleep(0.01)
        return i


def test_a_timeout_loses_no_batch(tmp_path: Path) -> None:
    """On a busy machine there may be others than the one in sample 2."""
    dataset = Slow(tmp_path)
    iterator = iter(DataLoader(dataset, num_workers=1, timeout=0.5))
    found: list[int] = []
    lost: list[str] = []
    while len(found) < 6:
        try:
            found.append(next(iterator).item())
        except errors.NotDelivered as error:
            lost.append(str(error))
            if len(found) == 2:
                dataset.go.touch()
    assert dataset.go.exists()
    assert all("timed out" in text for text in lost)
    assert found == list(range(6))
    assert list(iterator) == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_is_in_next_does_not_hang(tmp_path: Path) -> None:
    dataset = Slow(tmp_path)
    loader = DataLoader(dataset, batch_size=1)
    iterator = iter(loader)
    user = threading.Thread(target=lambda: list(iterator))
    user.start()
    assert settled(dataset.inside.exists, True)

    def use() -> None:
        dataset.go = tmp_path  # its own is not held up
        next(iterator)
        assert len(list(loader)) == 6

    assert in_child(use) == 0
    assert user.is_alive()
    dataset.go.touch()
    user.join()


BATCHES = {
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "nested_last": lambda: (1, torch.nested.nested_tensor([torch.zeros(2)])),
    "none": lambda: None,
    "text": lambda: "text",
    "dict": lambda: {"a": 1},
    "scalar": lambda: [torch.tensor(1)],
    "object": lambda: (object(),),
}


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_any_batch_passes_through_untouched(kind: str) -> None:
    batch = BATCHES[kind]()
    loader = DataLoader(range(6), batch_size=2, collate_fn=lambda _: batch)
    assert [found is batch for found in loader] == [True] * 3
    assert loader.stats()["samples"] in (3, 6)


@pytest.mark.parametrize("kind", ["packed", "torch"])
def test_a_loader_that_has_begun_takes_a_state_with_another_drawn_seed(kind: str, folder: Path) -> None:
    options = {"shuffle": True, "seed": None}
    saved = make(kind, folder, **options)
    iterator = iter(saved)
    next(iterator)
    state = saved.state_dict()
    rest = all_batches(iterator)
    loader = make(kind, folder, **options)
    begun = iter(loader)
    next(begun)
    assert loader.state_dict()["seed"] != state["seed"]
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert same(all_batches(loader), rest)
    assert same(all_batches(loader), all_batches(saved))
    with pytest.raises(errors.StateError, match="another seed"):
        next(begun)
    given = make(kind, folder, shuffle=True, seed=5)
    with pytest.raises(errors.StateError, match="seed was"):
        given.load_state_dict(state)
