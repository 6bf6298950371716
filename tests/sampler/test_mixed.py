"""The order of a mix: exact shares, each part walked through before it begins anew, O(1), divisible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.sampler import Partition, Sampler
from fastload.sampler.mixed import MixedOrder, block_ends, shares
from fastload.sampler.order import derived_seed, shuffled


def order_of(sizes: list[int], counts: list[int], seed: int = 3, shuffle: bool = True) -> MixedOrder:
    return MixedOrder(np.array(sizes), np.array(counts), seed, shuffle)


def epoch_ids(order: MixedOrder, epoch: int) -> list[int]:
    return order.ids(np.arange(order.total(epoch)), epoch).tolist()


def plain_walk(sizes: list[int], part: int, seed: int, steps: int) -> list[int]:
    """The obvious way: shuffle after shuffle of one part, its first ``steps`` ids."""
    first, size = sum(sizes[:part]), sizes[part]
    rounds = range(-(-steps // size))
    walk = [shuffled(np.arange(size), size, derived_seed(seed, part), turn) + first for turn in rounds]
    return np.concatenate(walk)[:steps].tolist() if steps else []


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ([10, 7], [10, 7]),
        ([10, 7], [3, 30]),
        ([5], [12]),
        ([1, 100, 13], [1, 50, 9]),
        ([3000, 9000, 70000], [6000, 4000, 1]),
        ([40000, 300], [9000, 900]),
    ],
)
def test_each_part_is_walked_in_its_own_order_through_all_epochs(sizes: list[int], counts: list[int]) -> None:
    order = order_of(sizes, counts)
    ends = np.cumsum(sizes)
    found: list[list[int]] = [[] for _ in sizes]
    for epoch in range(3):
        ids = epoch_ids(order, epoch)
        parts = np.searchsorted(ends, ids, side="right")
        assert np.bincount(parts, minlength=len(sizes)).tolist() == counts
        for part in range(len(sizes)):
            found[part] += [i for i, p in zip(ids, parts, strict=True) if p == part]
    assert found == [plain_walk(sizes, part, 3, 3 * counts[part]) for part in range(len(sizes))]


def test_positions_in_any_order_and_number_give_the_same() -> None:
    order, again = order_of([900, 40], [9000, 1000]), order_of([900, 40], [9000, 1000])
    whole = np.array(epoch_ids(order, 5))
    positions = np.random.default_rng(0).permutation(10000)
    assert np.array_equal(again.ids(positions, 5), whole[positions])
    for position in (0, 4095, 4096, 9999):
        assert again.ids(np.array([position]), 5)[0] == whole[position]


def test_seed_and_epoch_change_which_part_comes_when() -> None:
    def parts(seed: int, epoch: int) -> list[bool]:
        return [i < 50 for i in epoch_ids(order_of([50, 50], [50, 50], seed), epoch)]

    assert parts(1, 0) == parts(1, 0)
    assert parts(1, 0) != parts(1, 1)
    assert parts(1, 0) != parts(2, 0)


def test_equal_parts_have_orders_of_their_own() -> None:
    ids = epoch_ids(order_of([50, 50], [50, 50]), 0)
    assert [i for i in ids if i < 50] != [i - 50 for i in ids if i >= 50]


def test_without_shuffle_parts_follow_one_another_and_epochs_are_equal() -> None:
    order = order_of([5, 4], [3, 6], shuffle=False)
    assert epoch_ids(order, 0) == epoch_ids(order, 7) == [0, 1, 2, 5, 6, 7, 8, 5, 6]
    assert order.repeats
    assert not order_of([5, 4], [5, 4], shuffle=False).repeats


def test_the_mix_is_even_within_an_epoch() -> None:
    """Every block has its share; within one the parts are shuffled (a run of 60 of 1/2 would be a bug)."""
    counts = [5000, 5000, 100]
    ids = epoch_ids(order_of([20000, 20000, 20000], counts), 1)
    parts = np.searchsorted([20000, 40000], ids, side="right")
    first = np.bincount(parts[:4096], minlength=3)
    assert np.abs(first - np.array(counts) * 4096 / 10100).max() <= 2
    changes = np.flatnonzero(np.diff(parts))
    assert np.diff(changes).max() < 60


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=6), st.integers(7, 400))
@settings(deadline=None, max_examples=150)
def test_block_ends(counts: list[int], block: int) -> None:
    wanted = np.array(counts)
    ends = block_ends(wanted, block)
    total = sum(counts)
    assert ends[-1].tolist() == counts
    assert (np.diff(ends, axis=0) >= 0).all()
    borders = np.minimum(np.arange(len(ends)) * block, total)
    assert np.array_equal(ends.sum(axis=1), borders)
    assert np.abs(ends - borders[:, None] * wanted / total).max() < 2


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8), st.integers(0, 10**12))
def test_shares_are_the_weights_rounded(weights: list[float], total: int) -> None:
    counts = shares(np.array(weights), total)
    ideal = np.array(weights) / sum(weights) * total
    assert counts.sum() == total
    assert np.abs(counts - ideal).max() <= 1 + 1e-9 * total


def test_long_epochs_cost_nothing() -> None:
    """10^9 positions of parts of 10^8 samples: a batch in the middle of epoch 17 needs no list."""
    order = order_of([10**8, 10**8 + 7], [7 * 10**8, 3 * 10**8])
    ids = order.ids(np.arange(512) + 612_345_678, 17)
    assert len(np.unique(ids)) == 512
    assert 250 < (ids < 10**8).sum() < 450


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_ranks_divide_a_mix_and_go_on_anywhere(world: int) -> None:
    order = order_of([70, 20], [60, 60])
    whole = epoch_ids(order, 2)
    ranks = [Sampler(order, Partition(24 // world, rank, world, drop_last=True)) for rank in range(world)]
    for start in (0, 24, 48):
        steps = range(ranks[0].num_batches(2, start))
        found = [int(i) for step in steps for rank in ranks for i in rank.batch(2, start, step).ids]
        assert found == whole[start:]
    draws = ranks[-1].batch(2, 0, 0).draws
    assert draws is not None
    assert draws.tolist() == list(range(24))[-24 // world :]
