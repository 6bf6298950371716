"""Where a loader's seed comes from: the argument, else torch's generator, once, when iteration begins."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import same

from fastload import DataLoader, Ranks, errors
from fastload import transforms as T

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


def epoch(folder: Path, **options: Any) -> list[Any]:
    return list(DataLoader(folder, 8, shuffle=True, num_workers=2, transform=CROP, **options))


def test_manual_seed_decides_and_different_seeds_differ(folder: Path) -> None:
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(epoch(folder))
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


def test_a_generator_decides_and_torchs_own_is_left_alone(folder: Path) -> None:
    before = torch.get_rng_state()
    runs = [epoch(folder, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_is_drawn_as_torchs_loader_draws_its_own(folder: Path) -> None:
    """One int64 of torch's default generator, when iteration begins; other generators are left alone."""
    random.seed(0)
    np.random.seed(0)
    states = random.getstate(), np.random.get_state()[1].copy()  # type: ignore[union-attr,index]
    torch.manual_seed(5)
    expected = int(torch.empty((), dtype=torch.int64).random_().item())
    after = torch.get_rng_state()
    torch.manual_seed(5)
    loader = DataLoader(folder, 8, shuffle=True, transform=CROP)
    assert loader.state_dict()["seed"] is None
    next(iter(loader))
    assert loader.state_dict()["seed"] == loader.sampler.seed == expected
    assert torch.equal(torch.get_rng_state(), after)
    next(iter(loader))
    assert torch.equal(torch.get_rng_state(), after)
    assert random.getstate() == states[0]
    assert (np.random.get_state()[1] == states[1]).all()  # type: ignore[index]


def test_seed_argument_draws_nothing(folder: Path) -> None:
    before = torch.get_rng_state()
    assert same(epoch(folder, seed=7), epoch(folder, seed=7))
    assert torch.equal(torch.get_rng_state(), before)


def test_two_loaders_of_one_program_shuffle_differently(folder: Path) -> None:
    torch.manual_seed(0)
    assert not same(epoch(folder), epoch(folder))


def test_a_state_brings_its_seed(folder: Path) -> None:
    loader = DataLoader(folder, 8, shuffle=True, transform=CROP)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    resumed = DataLoader(folder, 8, shuffle=True, transform=CROP)
    resumed.load_state_dict(state)
    assert same(list(iterator), list(resumed))
    assert resumed.state_dict()["seed"] == state["seed"]
    other = DataLoader(folder, 8, shuffle=True, transform=CROP, seed=state["seed"] ^ 1)
    with pytest.raises(errors.StateError, match="seed was"):
        other.load_state_dict(state)


def test_a_state_of_before_the_first_batch_leaves_the_seed_to_be_drawn(folder: Path) -> None:
    torch.manual_seed(3)
    expected = epoch(folder)
    state = DataLoader(folder, 8, shuffle=True, transform=CROP).state_dict()
    assert state["seed"] is None
    resumed = DataLoader(folder, 8, shuffle=True, transform=CROP)
    resumed.load_state_dict(state)
    torch.manual_seed(3)
    assert same(list(resumed), expected)


def test_ranks_without_a_process_group_say_which_seed_they_take(folder: Path) -> None:
    loaders = [DataLoader(folder, 8, True, transform=CROP, ranks=Ranks(r, 2)) for r in range(2)]
    for loader in loaders:
        with pytest.warns(UserWarning, match=r"no process group in which to agree.*seed is 0.*Pass seed="):
            next(iter(loader))
    for loader in (DataLoader(folder, 8, transform=T.CenterCrop(8), ranks=Ranks(0, 2)),):
        next(iter(loader))  # nothing random: nothing to say


@pytest.mark.parametrize("seed", ["a", 1.5, True])
def test_a_seed_that_is_no_integer(folder: Path, seed: Any) -> None:
    with pytest.raises(TypeError, match="seed must be an integer"):
        DataLoader(folder, seed=seed)
