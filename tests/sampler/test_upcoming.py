"""When a node needs each sample, against an obvious count; and what orders say of themselves."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from torch.utils.data import SequentialSampler

import fastload.sampler.drawn
import fastload.sampler.upcoming
from fastload.sampler import (
    BlockOrder,
    BlockSampler,
    Partition,
    SubsetSampler,
    WeightedSampler,
    make_sampler,
    order_name,
)
from fastload.sampler.drawn import DrawnOrder
from fastload.sampler.sampler import GrowingOrder, Sampler, SequentialOrder, ShuffledOrder, is_shuffled
from fastload.sampler.upcoming import NOT_NEEDED, level_of, needs_all, use_levels

COUNT = 100
SAMPLERS: dict[str, Any] = {
    "shuffled": {"shuffle": True},
    "in order": {"shuffle": False},
    "subset": {"shuffle": False, "sampler": SubsetSampler(range(0, COUNT, 3))},
    "weighted": {"shuffle": False, "sampler": WeightedSampler([1.0] * COUNT, 150)},
}


def by_hand(samplers: list[Any], epoch: int, count: int) -> list[int]:
    """The level of each sample's first use in these ranks' batches."""
    levels, total = [NOT_NEEDED] * count, samplers[0].total(epoch)
    for sampler in samplers:
        for step in range(sampler.num_batches(epoch)):
            batch = sampler.batch(epoch, 0, step)
            for sample, position in zip(batch.ids.tolist(), batch.positions.tolist(), strict=True):
                if sample >= 0:
                    levels[sample] = min(levels[sample], position * 65534 // total)
    return levels


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("chunk", [8, 20, 1 << 16])
def test_levels_are_of_the_first_use(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastload.sampler.upcoming, "_CHUNK", chunk)
    ranks = [make_sampler(COUNT, Partition(5, r, 4), seed=3, **SAMPLERS[name]) for r in range(4)]
    total = ranks[0].total(1) // 20 * 20  # how the last batch is divided is another matter
    for own in (range(4), range(2), range(1, 3), range(3, 4)):
        found = use_levels(ranks[0], 1, own, COUNT, lambda: False)
        assert found is not None
        assert found.dtype == np.uint16
        wanted = by_hand([ranks[rank] for rank in own], 1, COUNT)
        early = [level < level_of(total, ranks[0].total(1)) for level in wanted]
        assert [a for a, e in zip(found.tolist(), early, strict=True) if e] == [
            b for b, e in zip(wanted, early, strict=True) if e
        ]
    assert any(early)
    assert use_levels(ranks[0], 1, range(4), COUNT, lambda: True) is None


def test_levels() -> None:
    assert NOT_NEEDED == 65535
    assert [level_of(position, 100) for position in (0, 1, 50, 99)] == [0, 655, 32767, 64878]
    assert level_of(10**9 - 1, 10**9) == 65533
    assert level_of(0, 0) == 0


def test_who_needs_all() -> None:
    partition = Partition(5, 0, 4)
    whole = [SequentialOrder(COUNT), ShuffledOrder(COUNT, 3), BlockOrder(COUNT, 3, 4, 16)]
    for order in whole:
        assert needs_all(Sampler(order, partition), range(4), COUNT)
        assert not needs_all(Sampler(order, partition), range(3), COUNT)
        assert not needs_all(Sampler(order, partition), range(4), COUNT + 1)
    other = make_sampler(COUNT, partition, seed=3, **SAMPLERS["weighted"])
    assert not needs_all(other, range(4), 150)


def test_what_orders_say_of_themselves() -> None:
    block = BlockOrder(COUNT, 3, 4, 16)
    assert order_name(block, True) == "block:4:16"
    assert (order_name(ShuffledOrder(9, 1), True), order_name(SequentialOrder(9), False)) == (True, False)
    for order in (block, ShuffledOrder(9, 1), SequentialOrder(9), GrowingOrder(lambda: 9, True, 1)):
        assert (order.repeats, order.is_drawn) == (False, False)
    assert [is_shuffled(order) for order in (block, ShuffledOrder(9, 1), SequentialOrder(9))] == [
        True,
        True,
        False,
    ]


def test_lists_and_torchs_sequential_sampler_are_not_shuffled() -> None:
    class Own:
        def __iter__(self) -> Any:
            return iter([2, 0, 1])

    class Switched(Own):
        shuffle = False

    known: list[Any] = [[0, 1], (0, 1), range(3), SequentialSampler(range(3)), Switched()]
    assert [DrawnOrder(each, 3, 1).shuffle for each in known] == [False] * 5
    assert DrawnOrder(Own(), 3, 1).shuffle
    assert (DrawnOrder(Own(), 3, 1).repeats, DrawnOrder(Own(), 3, 1).is_drawn) == (True, True)


def test_what_is_no_number_stands_for_itself_as_minus_two() -> None:
    order = DrawnOrder(["a", 3, ("b", 4)], None, 1)
    assert order.ids(np.arange(3), 0).tolist() == [-2, 3, -2]
    assert order.keys(np.array([2, 0]), 0) == [("b", 4), "a"]


def test_a_sampler_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def __iter__(self) -> Any:
            while True:
                yield 1

    monkeypatch.setattr(fastload.sampler.drawn, "_MOST", 50)
    with pytest.raises(ValueError, match="drew 50 times in one epoch and has not come to an end"):
        DrawnOrder(Endless(), 3, 1).total(0)
    assert DrawnOrder(list(islice(Endless(), 49)), 3, 1).total(0) == 49


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_of_a_block_shuffles_positions_are_those_that_get_them(world: int) -> None:
    order = BlockOrder(COUNT, 3, 4, 20)
    ranks = [BlockSampler(order, Partition(20 // world, rank, world)) for rank in range(world)]
    positions = np.random.default_rng(1).permutation(COUNT)
    owners = ranks[0].ranks_at(positions, 2)
    assert sorted(set(owners.tolist())) == list(range(world))
    for rank, sampler in enumerate(ranks):
        ids = np.concatenate([sampler.batch(2, 0, step).ids for step in range(COUNT // 20)])
        places = np.concatenate([sampler.batch(2, 0, step).positions for step in range(COUNT // 20)])
        assert sorted(positions[owners == rank]) == sorted(places)
        assert np.array_equal(order.ids(places, 2), ids)
