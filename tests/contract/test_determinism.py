"""A batch is a function of (dataset, seed, epoch, step, global batch): not of threads or ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from epochs import all_batches, joined, same

from fastload import DataLoader, errors
from fastload import transforms as T

TRAIN = T.Compose(
    [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))]
)


def train(folder: Path, **options: Any) -> DataLoader:
    settings = {"batch_size": 8, "shuffle": True, "seed": 7, "num_workers": 2, "transform": TRAIN, **options}
    return DataLoader(folder, **settings)


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
def test_any_number_of_threads(folder: Path, threads: int) -> None:
    with train(folder, num_workers=1) as one, train(folder, num_workers=threads) as many:
        for _ in range(2):
            assert same(all_batches(one), all_batches(many))


@pytest.mark.parametrize("world", [2, 4])
def test_any_number_of_ranks_at_equal_global_batch(folder: Path, world: int) -> None:
    whole = all_batches(train(folder, drop_last=True))
    ranks = [
        train(folder, drop_last=True, batch_size=8 // world, rank=r, world_size=world) for r in range(world)
    ]
    assert same(joined(all_batches(rank) for rank in ranks), whole)


def test_epochs_advance_by_themselves_and_differ(folder: Path) -> None:
    loader = train(folder)
    first, second = all_batches(loader), all_batches(loader)
    assert not same(first, second)
    again = train(folder)
    again.set_epoch(1)
    assert same(all_batches(again), second)
    again.sampler.set_epoch(0)
    assert same(all_batches(again), first)


def test_seed_changes_order_and_augmentation(folder: Path) -> None:
    assert not same(all_batches(train(folder)), all_batches(train(folder, seed=8)))
    generator = torch.Generator().manual_seed(7)
    assert same(all_batches(train(folder, seed=None, generator=generator)), all_batches(train(folder)))


@pytest.mark.parametrize("through_json", [False, True])
def test_resume_from_every_step(folder: Path, through_json: bool) -> None:
    """The state is saved before every batch and at the end; each is resumed into a fresh loader."""
    loader = train(folder)
    states, batches = [loader.state_dict()], []
    for images, labels in loader:
        batches.append((images.clone(), labels.clone()))
        states.append(loader.state_dict())
    following = all_batches(loader)
    assert len(batches) == 7
    for step, state in enumerate(states):
        assert len(json.dumps(state)) < 1000
        assert state.keys() == states[0].keys()
        resumed = train(folder)
        resumed.load_state_dict(json.loads(json.dumps(state)) if through_json else state)
        rest = all_batches(resumed)
        if step == len(states) - 1:  # the epoch was over: the next one follows
            assert same(rest, [])
            rest = all_batches(resumed)
            assert same(rest, following)
        else:
            assert same(rest, batches[step:])
            assert same(all_batches(resumed), following)


def test_state_after_the_epochs_end_is_the_next_epochs_beginning(folder: Path) -> None:
    loader = train(folder)
    all_batches(loader)
    resumed = train(folder)
    resumed.load_state_dict(loader.state_dict())
    assert same(all_batches(resumed), all_batches(loader))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (4, 1), (2, 4), (1, 8)])
@pytest.mark.parametrize("steps", [1, 3])
def test_resume_on_another_number_of_ranks(folder: Path, before: int, after: int, steps: int) -> None:
    whole = all_batches(train(folder, drop_last=True))
    stopped = train(folder, drop_last=True, batch_size=8 // before, rank=0, world_size=before)
    iterator = iter(stopped)
    for _ in range(steps):
        next(iterator)
    state = stopped.state_dict()
    ranks = []
    for rank in range(after):
        loader = train(folder, drop_last=True, batch_size=8 // after, rank=rank, world_size=after)
        loader.load_state_dict(state)
        ranks.append(all_batches(loader))
    assert same(joined(ranks), whole[steps:])


def test_state_counts_what_was_received_not_what_was_prefetched(folder: Path) -> None:
    loader = train(folder, prefetch_factor=6)
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict()["position"] == 8
    del iterator
    assert loader.state_dict()["position"] == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [({"seed": 1}, "seed was 7, is 1"), ({"shuffle": False}, "shuffle was True, is False")],
)
def test_a_state_of_other_options_is_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    state = train(folder).state_dict()
    with pytest.raises(errors.StateError, match=message):
        train(folder, **options).load_state_dict(state)


def test_a_state_of_another_dataset_is_refused(folder: Path) -> None:
    loader = train(folder)
    with pytest.raises(errors.StateError, match="dataset was 'x'"):
        loader.load_state_dict({**loader.state_dict(), "dataset": "x"})
    with pytest.raises(errors.StateError, match="Not a loader state"):
        loader.load_state_dict({"epoch": 1})
    with pytest.raises(errors.StateError, match="epoch of a loader state must be an integer >= 0. Found: -1"):
        loader.load_state_dict({**loader.state_dict(), "epoch": -1})


def test_lightnings_order_of_calls(folder: Path) -> None:
    """iter, load_state_dict, iter, set_epoch of the resumed epoch, then the batches."""
    loader = train(folder)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    state = loader.state_dict()
    rest = all_batches(iterator)
    other = train(folder)
    iter(other)
    other.load_state_dict(state)
    iterator = iter(other)
    other.sampler.set_epoch(state["epoch"])
    assert same(all_batches(iterator), rest)
