"""What torchdata's StatefulDataLoader promises, with a state saved before every batch.

As in its tests: at the start, in the middle, after the last batch (the epoch is over: nothing is left of
it), after the end (the next epoch follows), over several epochs, through JSON, into a fresh loader and into
one that is running. And what it refuses: another number of threads.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, same
from pictures import jpegs
from plain_pack import plain_pack
from torch.utils.data import BatchSampler, Dataset, IterableDataset, RandomSampler, WeightedRandomSampler

import fastload
from fastload import DataLoader, PackedDataset, Ranks, SubsetSampler, WeightedSampler
from fastload import transforms as T

CROP = T.RandomResizedCrop(16)


class Squares(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 21

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([float(i * i)]), i


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    """Another stretch of numbers each epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        return ((torch.tensor([i]), i) for i in range(self.epoch * 100, self.epoch * 100 + 21))


class GlobalRandom:
    """A sampler that draws from Python's and NumPy's global generators, as users' do."""

    def __iter__(self) -> Iterator[int]:
        ids = random.sample(range(21), 15) + np.random.randint(0, 21, 6).tolist()
        return iter(ids)

    def __len__(self) -> int:
        return 21


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> list[PackedDataset]:
    root, blobs = tmp_path_factory.mktemp("sets"), jpegs(21)
    return [
        plain_pack(root / "whole", blobs, [i % 5 for i in range(21)]),
        plain_pack(root / "half", blobs[:9], [i % 5 for i in range(9)]),
    ]


as_tensor = T.ToDtype("uint8")


def noisy(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return image.float() + torch.rand(image.shape, generator=generator)


def listed(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([image for image, _ in samples]), torch.tensor([label for _, label in samples])


WEIGHTS = [float(1 + i % 3) for i in range(21)]
SHUFFLED = {"batch_size": 4, "shuffle": True}
# Kind of loader: its data, and its options (or what makes them, where they hold a state of their own).
KINDS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "sequential": ("packed", lambda: {"batch_size": 4}),
    "shuffled": ("packed", lambda: SHUFFLED),
    "drop_last": ("packed", lambda: {**SHUFFLED, "drop_last": True}),
    "one_batch": ("packed", lambda: {**SHUFFLED, "batch_size": 50}),
    "divides": ("packed", lambda: {**SHUFFLED, "batch_size": 7}),
    "single": ("packed", lambda: {**SHUFFLED, "batch_size": 1}),
    "autotuned": ("packed", lambda: {**SHUFFLED, "autotune": True, "prefetch_factor": 5}),
    "python_transform": (
        "packed",
        lambda: {**SHUFFLED, "transform": T.Compose([CROP, T.ToDtype("uint8"), noisy])},
    ),
    "collate": ("packed", lambda: {**SHUFFLED, "collate_fn": listed}),
    "mixed": ("mix", lambda: SHUFFLED),
    "mixed_in_order": ("mix", lambda: {"batch_size": 4, "drop_last": True}),
    "weighted": ("packed", lambda: {"batch_size": 4, "sampler": WeightedSampler(WEIGHTS, 22)}),
    "weighted_once": ("packed", lambda: {"batch_size": 4, "sampler": WeightedSampler(WEIGHTS, 14, False)}),
    "subset": ("packed", lambda: {"batch_size": 4, "sampler": SubsetSampler(range(2, 21, 2))}),
    "torch_sampler": ("packed", lambda: {"batch_size": 4, "sampler": WeightedRandomSampler(WEIGHTS, 22)}),
    "global_random": ("packed", lambda: {"batch_size": 4, "sampler": GlobalRandom()}),
    "batch_sampler": (
        "packed",
        lambda: {"batch_sampler": BatchSampler(RandomSampler(range(21)), 4, drop_last=False)},
    ),
    "torch_dataset": ("torch", lambda: SHUFFLED),
    "torch_dataset_workers": ("torch", lambda: {**SHUFFLED, "num_workers": 1}),
    "stream": ("stream", lambda: {"batch_size": 4}),
    "stream_drop_last": ("stream", lambda: {"batch_size": 4, "drop_last": True}),
}
SLOW = ("torch_dataset_workers", "single")  # processes and many batches: fewer states are tried


def make(kind: str, sets: list[PackedDataset], **more: Any) -> DataLoader:
    """A fresh loader, as the run would make it that resumes."""
    data, options = KINDS[kind]
    if data in ("torch", "stream"):
        return DataLoader(Squares() if data == "torch" else Stream(), **{"seed": 4, **options(), **more})
    packed = sets[0] if data == "packed" else fastload.mix(sets, weights=[1, 2], num_samples=22)
    return DataLoader(packed, **{"seed": 4, "transform": CROP, "num_workers": 2, **options(), **more})


def run(loader: DataLoader) -> tuple[list[Any], list[dict[str, Any]]]:
    """An epoch's batches, and the states before each of them and after the last."""
    batches, states = [], [loader.state_dict()]
    for images, labels in loader:
        batches.append((images.clone(), labels.clone()))
        states.append(loader.state_dict())
    return batches, states


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_loader_goes_on_from_every_state(kind: str, sets: list[PackedDataset]) -> None:
    loader = make(kind, sets)
    epochs = [run(loader) for _ in range(3)]
    assert not same(epochs[0][0], epochs[1][0]) or kind in ("sequential", "mixed_in_order")
    keys = set(epochs[0][1][0])
    for number, (batches, states) in enumerate(epochs[:2]):
        assert KINDS[kind][0] == "stream" or len(batches) == len(loader)
        for step in range(0, len(states), 5 if kind in SLOW else 1):
            text = json.dumps(states[step])
            assert len(text) < 1000
            assert set(states[step]) == keys
            resumed = make(kind, sets)
            resumed.load_state_dict(json.loads(text))
            assert resumed.state_dict() == states[step]
            assert same(all_batches(resumed), batches[step:])
            assert same(all_batches(resumed), epochs[number + 1][0])
            resumed.close()
    loader.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SLOW])
def test_a_running_loader_goes_back_and_forth(kind: str, sets: list[PackedDataset]) -> None:
    batches, states = run(make(kind, sets))
    loader = make(kind, sets)
    for step in (2, 0, len(batches), 1):
        step = min(step, len(batches))
        loader.load_state_dict(states[step])
        assert loader.state_dict() == states[step]
        rest: list[Any] = []
        for images, labels in loader:
            rest.append((images.clone(), labels.clone()))
            if step == 0 and len(rest) == 2:
                break  # the next state is loaded in the middle of the epoch
        assert same(rest, batches[step:] if step else batches[:2])


@pytest.mark.parametrize("kind", ["shuffled", "mixed", "weighted", "batch_sampler", "python_transform"])
def test_the_end_of_an_epoch(kind: str, sets: list[PackedDataset]) -> None:
    """After the last batch nothing is left of the epoch; after the end the next one follows."""
    loader = make(kind, sets)
    iterator = iter(loader)
    for _ in range(len(loader)):
        next(iterator)
    over = loader.state_dict()
    with pytest.raises(StopIteration):
        next(iterator)
    ended = loader.state_dict()
    second = all_batches(loader)
    assert (over["epoch"], ended["epoch"], ended["position"]) == (0, 1, 0)
    resumed = make(kind, sets)
    resumed.load_state_dict(over)
    assert all_batches(resumed) == []
    assert same(all_batches(resumed), second)
    resumed.load_state_dict(ended)
    assert same(all_batches(resumed), second)


@pytest.mark.parametrize("kind", ["shuffled", "mixed", "python_transform"])
@pytest.mark.parametrize("threads", [1, 5])
def test_another_number_of_threads_is_no_matter(kind: str, threads: int, sets: list[PackedDataset]) -> None:
    batches, states = run(make(kind, sets))
    resumed = make(kind, sets, num_workers=threads, prefetch_factor=threads)
    resumed.load_state_dict(states[2])
    assert same(all_batches(resumed), batches[2:])


@pytest.mark.filterwarnings("ignore:The epoch's last batch")
@pytest.mark.parametrize(
    "kind", ["shuffled", "mixed", "weighted", "subset", "torch_sampler", "global_random"]
)
@pytest.mark.parametrize("world", [2, 4])
def test_another_number_of_ranks_at_the_same_global_batch(
    kind: str, world: int, sets: list[PackedDataset]
) -> None:
    batches, states = run(make(kind, sets))
    whole = [labels.tolist() for _, labels in batches]
    for step in (0, 2):
        ranks = [make(kind, sets, batch_size=4 // world, ranks=Ranks(r, world)) for r in range(world)]
        for rank in ranks:
            rank.load_state_dict(states[step])
        found = [
            [int(y) for y in torch.cat(step_labels)]
            for step_labels in zip(
                *[[labels for _, labels in all_batches(rank)] for rank in ranks], strict=True
            )
        ]
        assert found[:-1] == whole[step:-1]
        assert len(found) == len(whole) - step


def test_the_users_random_state_is_left_alone(sets: list[PackedDataset]) -> None:
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    all_batches(make("global_random", sets))
    assert (random.random(), np.random.rand()) == expected
