"""Orders of sets that change: what was dropped is left out, the others keep their relative order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_forms import how_many

from fastload.sampler import BlockOrder, BlockSampler, ChangingOrder, LeftOutOrder, Partition, Sampler
from fastload.sampler.order import EXACT_LIMIT, shuffled, unshuffled
from fastload.sampler.sampler import SequentialOrder, ShuffledOrder, is_shuffled


@settings(deadline=None, max_examples=how_many(40, 1000))
@given(st.integers(1, 200_000), st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.data())
def test_the_inverse_of_the_shuffle(n: int, seed: int, epoch: int, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=50)))
    assert np.array_equal(unshuffled(shuffled(positions, n, seed, epoch), n, seed, epoch), positions)


@pytest.mark.parametrize("n", [1, EXACT_LIMIT, EXACT_LIMIT + 1, (1 << 40) + 3, 1 << 61])
def test_the_inverse_at_the_edges(n: int) -> None:
    positions = np.unique([i * (n - 1) // 999 for i in range(1000)])
    assert np.array_equal(unshuffled(shuffled(positions, n, 3, 1), n, 3, 1), positions)


@settings(deadline=None, max_examples=how_many(60, 2000))
@given(
    st.integers(1, 3000), st.integers(1, 90), st.integers(1, 20), st.integers(0, 2**64 - 1), st.integers(0, 9)
)
def test_the_inverse_of_blocks(n: int, block: int, blocks: int, seed: int, epoch: int) -> None:
    order = BlockOrder(n, seed, block, block * blocks)
    positions = np.arange(n)
    assert np.array_equal(order.places(order.ids(positions, epoch), epoch), positions)


def orders(n: int, seed: int) -> list[SequentialOrder | ShuffledOrder | BlockOrder]:
    return [SequentialOrder(n), ShuffledOrder(n, seed), BlockOrder(n, seed, 7, 35)]


@settings(deadline=None, max_examples=how_many(60, 2000))
@given(st.integers(1, 2000), st.integers(0, 2**32), st.integers(0, 5), st.data())
def test_the_others_keep_their_relative_order(n: int, seed: int, epoch: int, data: st.DataObject) -> None:
    dropped = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))), np.int64)
    for inner in orders(n, seed):
        order = LeftOutOrder(inner, dropped)
        wanted = [one for one in inner.ids(np.arange(n), epoch).tolist() if one not in set(dropped.tolist())]
        assert order.total(epoch) == len(wanted)
        assert order.ids(np.arange(len(wanted)), epoch).tolist() == wanted
        some = np.array(data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=9)), np.int64)
        assert order.ids(some, epoch).tolist() == [wanted[place] for place in some]


def test_what_an_order_is_shows_through() -> None:
    sequential, random, blocks = (LeftOutOrder(inner, np.array([1, 5])) for inner in orders(100, 3))
    assert not is_shuffled(sequential)
    assert is_shuffled(random)
    assert is_shuffled(ChangingOrder(((0, sequential), (4, random))))
    assert blocks.in_state == "block:7:35"
    assert not hasattr(random, "in_state")


def test_another_generation_from_an_epoch_on() -> None:
    order = ChangingOrder(((0, ShuffledOrder(10, 1)), (3, ShuffledOrder(14, 1))))
    assert [order.total(epoch) for epoch in range(5)] == [10, 10, 10, 14, 14]
    for epoch in range(5):
        inner = ShuffledOrder(order.total(epoch), 1)
        places = np.arange(inner.n)
        assert np.array_equal(order.ids(places, epoch), inner.ids(places, epoch))


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("number", range(3), ids=["sequential", "shuffled", "blocks"])
def test_ranks_have_each_remaining_sample_once(world: int, number: int) -> None:
    dropped = np.arange(3, 300, 11)
    order = LeftOutOrder(orders(300, 4)[number], dropped)
    kind = BlockSampler if isinstance(order.inner, BlockOrder) else Sampler
    seen: list[int] = []
    for rank in range(world):
        sampler = kind(order, Partition(4, rank, world))
        for step in range(sampler.num_batches(2)):
            batch = sampler.batch(2, 0, step)
            assert batch.positions is not None
            real = batch.ids >= 0
            assert np.array_equal(order.ids(batch.positions[real], 2), batch.ids[real])
            seen += batch.ids[real].tolist()
    assert sorted(seen) == sorted({*range(300)} - {*dropped.tolist()})
