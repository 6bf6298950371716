"""The block shuffle: a permutation that is a function of (seed, epoch), local on disk, mixed in windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.sampler import BlockOrder, BlockSampler, Partition, default_blocks, make_sampler
from fastload.sampler.quality import measure


def whole(order: BlockOrder, epoch: int = 0) -> np.ndarray:
    return order.ids(np.arange(order.n), epoch)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 5000), st.integers(1, 90), st.integers(1, 20), st.integers(0, 2**64 - 1), st.integers(0, 9)
)
def test_is_a_permutation(n: int, block: int, blocks: int, seed: int, epoch: int) -> None:
    assert np.array_equal(np.sort(whole(BlockOrder(n, seed, block, block * blocks), epoch)), np.arange(n))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3000), st.integers(1, 40), st.data())
def test_any_part_is_the_same_as_in_the_whole(n: int, block: int, data: st.DataObject) -> None:
    order = BlockOrder(n, 5, block, 4 * block)
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20)))
    assert np.array_equal(order.ids(positions, 3), whole(order, 3)[positions])


def test_a_window_holds_whole_blocks() -> None:
    order = BlockOrder(1000, 1, 10, 100)
    for epoch in range(3):
        windows = whole(order, epoch).reshape(10, 100)
        assert len(np.unique(windows)) == 1000
        for window in windows:
            _, counts = np.unique(window // 10, return_counts=True)
            assert counts.tolist() == [10] * 10
            assert not np.array_equal(window, np.sort(window))


def test_the_partial_block_may_stand_anywhere() -> None:
    """It is whole, in one window or across two neighbours, and not always in the same."""
    found = set()
    for epoch in range(40):
        order = BlockOrder(105, 1, 10, 10)
        places = np.flatnonzero(whole(order, epoch) >= 100)
        assert places[-1] - places[0] < 20
        found.add(int(places[0]) // 10)
    assert len(found) > 5


def test_differs_by_seed_and_epoch_also_within_the_window() -> None:
    orders = [whole(BlockOrder(4096, seed, 8, 512), epoch) for seed in (0, 1) for epoch in (0, 1)]
    for i, first in enumerate(orders):
        for second in orders[:i]:
            assert np.mean(first == second) < 0.01
    one_window = [whole(BlockOrder(512, 0, 512, 512), epoch) for epoch in (0, 1)]
    assert np.mean(one_window[0] == one_window[1]) < 0.02


def test_each_block_comes_to_each_place_equally_often() -> None:
    counts = np.zeros((20, 20))
    for seed in range(2000):
        first = whole(BlockOrder(100, seed, 5, 5))[::5] // 5
        counts[np.arange(20), first] += 1
    statistic = ((counts - 100) ** 2 / 100).sum()
    assert statistic < 361 + 5 * np.sqrt(2 * 361)


def batches(n: int, batch: int, world: int, start: int = 0, epoch: int = 2) -> list[list[np.ndarray]]:
    """By rank and step."""
    found = []
    for rank in range(world):
        sampler = BlockSampler(BlockOrder(n, 7, 8, 256), Partition(batch, rank, world, padding="mark"))
        steps = range(sampler.num_batches(epoch, start))
        found.append([sampler.batch(epoch, start, step).ids for step in steps])
    return found


@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_ranks_together_are_one_rank(world: int) -> None:
    alone = batches(3000, 96, 1)[0]
    ranks = batches(3000, 96 // world, world)
    for step, expected in enumerate(alone[:-1]):
        assert np.array_equal(np.concatenate([rank[step] for rank in ranks]), expected)
    last = np.concatenate([rank[-1] for rank in ranks])
    assert sorted(last[last >= 0]) == sorted(alone[-1])
    every = np.concatenate([ids for rank in ranks for ids in rank])
    assert sorted(every[every >= 0]) == list(range(3000))


def test_a_stopped_epoch_goes_on_with_another_number_of_ranks_and_batch_size() -> None:
    first = [ids for step in range(5) for ids in [batches(3000, 48, 2)[rank][step] for rank in range(2)]]
    rest = [ids for rank in batches(3000, 20, 3, start=5 * 96) for ids in rank]
    every = np.concatenate([*first, *rest])
    assert sorted(every[every >= 0]) == list(range(3000))


def test_a_rank_gets_most_of_its_blocks_whole() -> None:
    """Of the records that come to a rank in an epoch, the share whose block is mostly that rank's."""
    ranks = [np.concatenate(rank) for rank in batches(40_000, 64, 8)]
    owners = np.stack([np.bincount(ids[ids >= 0] // 8, minlength=5000) for ids in ranks])
    assert owners.max(axis=0).sum() / 40_000 > 0.7  # without arranging: 0.37


def test_default_blocks_are_about_a_mebibyte_and_a_quarter_gibibyte() -> None:
    assert default_blocks(1_281_167, 1_281_167 * 110_000, None, None) == (10, 2440)
    assert default_blocks(100, 100 * 50_000_000, None, None) == (1, 5)
    assert default_blocks(60_000, 60_000 * 784, 64, 1000) == (64, 1024)
    assert default_blocks(60_000, 60_000 * 784, None, 1000) == (1000, 1000)
    for block, window in ((0, None), (5, 4), (1, 0)):
        with pytest.raises(ValueError, match="Block.size must be at least 1"):
            default_blocks(100, 100_000, block, window)


def test_quality_tells_orders_apart() -> None:
    labels = np.repeat(np.arange(100), 200)
    partition = Partition(128)
    found = [
        measure(sampler, labels)
        for sampler in (
            make_sampler(20_000, partition, shuffle=True, seed=1),
            BlockSampler(BlockOrder(20_000, 1, 4, 4000), partition),
            BlockSampler(BlockOrder(20_000, 1, 64, 640), partition),
            make_sampler(20_000, partition, shuffle=False, seed=1),
        )
    ]
    classes = [quality.classes for quality in found]
    assert classes == sorted(classes, reverse=True)
    assert classes[0] == pytest.approx(100 * (1 - 0.99**128), rel=0.03)
    assert classes[-1] < 3
    assert found[0].class_chi2 == pytest.approx(1, abs=0.05)
    assert found[0].distance == pytest.approx(1 / 3, abs=0.01)
    assert found[2].distance == pytest.approx(1 / 3, abs=0.05)
    assert found[-1].distance == 0
    together = [quality.together for quality in found]
    assert together == sorted(together)
    assert together[0] == pytest.approx(128 / 20_000, abs=0.003)
    assert together[-1] > 0.98
