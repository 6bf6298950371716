"""WeightedSampler and SubsetSampler: distributions, determinism, any number of ranks, errors."""

from __future__ import annotations

import numpy as np
import pytest

from fastload.sampler import Partition, Sampler, SubsetSampler, WeightedSampler, make_sampler


def build(sampler: object, n: int, seed: int = 3, world: int = 1, rank: int = 0, batch: int = 4) -> Sampler:
    return make_sampler(n, Partition(batch, rank, world), shuffle=False, seed=seed, sampler=sampler)  # type: ignore[arg-type]


def ids(sampler: Sampler, epoch: int = 0, start: int = 0) -> list[int]:
    steps = range(sampler.num_batches(epoch, start))
    return [int(i) for step in steps for i in sampler.batch(epoch, start, step).ids]


def test_weights_with_replacement_are_frequencies() -> None:
    weights = [0.0, 1.0, 2.0, 0.0, 7.0]
    found = np.bincount(ids(build(WeightedSampler(weights, 20000), 5, batch=500)), minlength=5)
    expected = np.array(weights) * 2000
    assert found[0] == found[3] == 0
    used = expected > 0
    chi_square = ((found[used] - expected[used]) ** 2 / expected[used]).sum()
    assert chi_square < 18.4  # 2 degrees of freedom: exceeded by one seed in 10,000


def test_one_weight_is_always_drawn() -> None:
    assert ids(build(WeightedSampler([0, 0, 5, 0], 9), 4)) == [2] * 9


def test_without_replacement_every_sample_comes_once_the_heavy_first() -> None:
    weights = np.where(np.arange(1000) < 100, 50.0, 1.0)
    drawn = ids(build(WeightedSampler(weights.tolist(), 200, replacement=False), 1000))
    assert len(set(drawn)) == 200
    heavy = sum(i < 100 for i in drawn)
    assert heavy > 90  # in proportion to the sizes it would be 20
    everything = ids(build(WeightedSampler([1.0, 0.0, 3.0], 2, replacement=False), 3))
    assert sorted(everything) == [0, 2]


def test_without_replacement_the_first_draw_has_the_weights_probabilities() -> None:
    sampler = build(WeightedSampler([1.0, 2.0, 7.0], 1, replacement=False), 3)
    found = np.bincount([int(sampler.batch(epoch, 0, 0).ids[0]) for epoch in range(3000)], minlength=3)
    expected = np.array([300, 600, 2100])
    assert ((found - expected) ** 2 / expected).sum() < 18.4


@pytest.mark.parametrize("replacement", [True, False])
def test_draws_depend_on_seed_and_epoch_only(replacement: bool) -> None:
    def draw(seed: int, epoch: int) -> list[int]:
        return ids(build(WeightedSampler([1.0] * 50, 40, replacement), 50, seed), epoch)

    assert draw(1, 0) == draw(1, 0)
    assert draw(1, 0) != draw(1, 1)
    assert draw(1, 0) != draw(2, 0)


@pytest.mark.parametrize(
    "sampler",
    [
        WeightedSampler([1.0, 5.0] * 20, 48),
        WeightedSampler([1.0, 5.0] * 20, 24, replacement=False),
        SubsetSampler(range(3, 39, 2)),
    ],
)
@pytest.mark.parametrize("world", [2, 3, 6])
def test_ranks_together_draw_what_one_does_from_any_position(
    sampler: WeightedSampler | SubsetSampler, world: int
) -> None:
    whole = ids(build(sampler, 40, batch=6), 4)
    ranks = [build(sampler, 40, world=world, rank=rank, batch=6 // world) for rank in range(world)]
    for start in (0, 6, 12):
        steps = range(ranks[0].num_batches(4, start))
        found = [int(i) for step in steps for rank in ranks for i in rank.batch(4, start, step).ids]
        assert found == whole[start:]


def test_repeated_draws_are_told_apart() -> None:
    draws = build(WeightedSampler([1.0] * 5, 12), 5).batch(0, 0, 1).draws
    assert draws is not None
    assert draws.tolist() == [4, 5, 6, 7]
    assert build(WeightedSampler([1.0] * 5, 5, replacement=False), 5).batch(0, 0, 0).draws is None
    assert build(SubsetSampler([1, 2]), 5).batch(0, 0, 0).draws is None
    assert build(SubsetSampler([1, 2, 1]), 5).batch(0, 0, 0).draws is not None


def test_a_subset_in_the_lists_order_or_shuffled() -> None:
    chosen = [9, 2, 5, 7]
    assert ids(build(SubsetSampler(chosen, shuffle=False), 10), 3) == chosen
    epochs = {tuple(ids(build(SubsetSampler(chosen), 10), epoch)) for epoch in range(30)}
    assert len(epochs) > 10
    assert all(sorted(epoch) == sorted(chosen) for epoch in epochs)
    assert len(SubsetSampler(chosen)) == 4


def test_a_substitute_is_of_the_same_subset() -> None:
    sampler = build(SubsetSampler([3, 4]), 10)
    assert {sampler.substitute(0, word) for word in (0, 2**63, 2**64 - 1)} == {3, 4}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WeightedSampler([1.0, -1.0], 2), "finite numbers >= 0"),
        (lambda: WeightedSampler([1.0, float("nan")], 2), "finite numbers >= 0"),
        (lambda: WeightedSampler([0.0, 0.0], 2), "must not be all 0. Found: 2 weights"),
        (lambda: WeightedSampler([1.0, -1.0, float("nan")], 2), "Found: -1.0 for sample 1 and 1 more"),
        (lambda: WeightedSampler([[1.0]], 2), r"Found the shape \(1, 1\)"),
        (lambda: WeightedSampler([1.0], 0), "num_samples must be >= 1. Found: 0"),
        (lambda: WeightedSampler([1.0, 0.0], 2, replacement=False), "at most 1,"),
        (lambda: build(WeightedSampler([1.0], 1), 3), "weights must have 3 numbers"),
        (lambda: SubsetSampler([]), "at least one sample id"),
    ],
)
def test_errors(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_ids_outside_the_dataset_are_refused() -> None:
    with pytest.raises(IndexError, match="sample id 10; legal are 0 to 9"):
        build(SubsetSampler([3, 10]), 10)


def test_samplers_say_what_they_are() -> None:
    assert (
        repr(WeightedSampler([1, 2, 3], 7)) == "WeightedSampler(3 weights, num_samples=7, replacement=True)"
    )
    assert repr(SubsetSampler([5], shuffle=False)) == "SubsetSampler(1 id, shuffle=False)"
