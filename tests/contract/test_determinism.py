"""A batch is a function of (dataset, seed, epoch, step, global batch): not of threads or ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from epochs import all_batches, joined, same
from pictures import jpegs
from plain_pack import plain_pack

from fastload import DataLoader, Ranks, errors
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
        train(folder, drop_last=True, batch_size=8 // world, ranks=Ranks(r, world)) for r in range(world)
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
    drawn = train(folder, seed=None, generator=torch.Generator().manual_seed(7))
    batches = all_batches(drawn)
    assert same(batches, all_batches(train(folder, seed=drawn.sampler.seed)))


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


WORLDS = [1, 2, 3, 4, 6, 8]
GLOBAL_BATCH = 24  # all of them divide it


def rank_of(folder: Path, rank: int, world: int, **options: Any) -> DataLoader:
    size = GLOBAL_BATCH // world
    return train(folder, batch_size=size, ranks=Ranks(rank, world), num_workers=1, **options)


@pytest.mark.parametrize("after", WORLDS)
@pytest.mark.parametrize("before", WORLDS)
def test_resume_on_another_number_of_ranks(folder: Path, before: int, after: int) -> None:
    """The union is the remainder of the same global order; every rank's state says the same."""
    whole = all_batches(train(folder, batch_size=GLOBAL_BATCH, drop_last=True))
    states = []
    for rank in range(before):
        stopped = rank_of(folder, rank, before, drop_last=True)
        next(iter(stopped))
        states.append(stopped.state_dict())
    assert all(state == states[0] for state in states)
    resumed = [rank_of(folder, rank, after, drop_last=True) for rank in range(after)]
    for loader in resumed:
        loader.load_state_dict(states[0])
    assert same(joined(all_batches(loader) for loader in resumed), whole[1:])
    following = all_batches(train_in_epoch(folder, 1))
    assert same(joined(all_batches(loader) for loader in resumed), following)


def train_in_epoch(folder: Path, epoch: int) -> DataLoader:
    loader = train(folder, batch_size=GLOBAL_BATCH, drop_last=True)
    loader.set_epoch(epoch)
    return loader


@pytest.mark.filterwarnings("ignore:The epoch's last batch")
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_come_and_go_within_an_epoch(tmp_path: Path, shuffle: bool) -> None:
    """A step on each number of ranks in turn, the global batch with it; three take the uneven rest."""
    numbered = plain_pack(tmp_path, jpegs(53), range(53)).folder
    options = {"batch_size": 1, "shuffle": shuffle, "padding": "mark", "transform": T.RandomResizedCrop(8)}
    state: dict[str, Any] | None = None
    seen: list[int] = []
    for world in [*WORLDS, *reversed(WORLDS)]:
        ranks = [train(numbered, ranks=Ranks(rank, world), **options) for rank in range(world)]
        for loader in ranks:
            if state is not None:
                loader.load_state_dict(state)
            seen += next(iter(loader))[1].tolist()
        state = ranks[0].state_dict()
    assert state is not None
    assert len(seen) == 48
    for rank in range(3):
        loader = train(numbered, ranks=Ranks(rank, 3), **options)
        loader.load_state_dict(state)
        seen += [label for _, labels in all_batches(loader) for label in labels.tolist()]
    assert sorted(seen) == [-100, *range(53)]


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
    with pytest.raises(
        errors.StateError, match="epoch of a loader state must be an integer >= 0 .* Found: -1"
    ):
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
