"""Ranks by arithmetic: equal counts, disjoint samples, nothing lost; also after a resume on other ranks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.sampler import Partition
from fastload.sampler.order import PADDING

sizes = st.integers(1, 400)
small = st.integers(1, 9)


def all_ranks(batch: int, world: int, drop: bool, padding: str = "mark") -> list[Partition]:
    return [Partition(batch, rank, world, drop, padding) for rank in range(world)]


def gathered(total: int, start: int, ranks: list[Partition]) -> list[int]:
    steps = ranks[0].num_batches(total, start)
    return [int(p) for k in range(steps) for part in ranks for p in part.positions(total, start, k)]


@given(sizes, small, small, st.booleans())
def test_counts_are_equal_and_every_sample_comes_once(total: int, batch: int, world: int, drop: bool) -> None:
    ranks = all_ranks(batch, world, drop)
    assert len({part.num_batches(total) for part in ranks}) == 1
    for step in range(ranks[0].num_batches(total)):
        assert len({len(part.positions(total, 0, step)) for part in ranks}) == 1
    real = [p for p in gathered(total, 0, ranks) if p != PADDING]
    whole = total // (batch * world) * batch * world
    assert real == list(range(whole if drop else total))


@given(sizes, small, small)
def test_only_the_last_batch_is_padded_and_as_little_as_possible(total: int, batch: int, world: int) -> None:
    ranks = all_ranks(batch, world, drop=False)
    steps = ranks[0].num_batches(total)
    for part in ranks:
        for step in range(steps - 1):
            assert PADDING not in part.positions(total, 0, step)
    padding = gathered(total, 0, ranks).count(PADDING)
    assert padding < world
    if world == 1:
        assert padding == 0


@given(sizes, small, small)
def test_repeat_fills_up_from_the_beginning(total: int, batch: int, world: int) -> None:
    positions = gathered(total, 0, all_ranks(batch, world, drop=False, padding="repeat"))
    counts = Counter(positions)
    assert set(counts) == set(range(total))
    assert len(positions) - total < world
    extra = positions[total:]
    assert extra == [i % total for i in range(len(extra))]


@given(sizes, small, small, small, st.integers(0, 30))
def test_resume_on_other_ranks_sees_the_rest_once(
    total: int, batch: int, world: int, other: int, steps: int
) -> None:
    """Stopped after some steps and continued on another number of ranks: the union is the epoch."""
    ranks = all_ranks(batch, world, drop=False)
    steps = min(steps, ranks[0].num_batches(total))
    seen = [int(p) for k in range(steps) for part in ranks for p in part.positions(total, 0, k)]
    start = ranks[0].consumed(total, 0, steps)
    seen += gathered(total, start, all_ranks(batch, other, drop=False))
    assert [p for p in seen if p != PADDING] == list(range(total))


@given(sizes, small, small)
def test_equal_global_batches_for_any_number_of_ranks(total: int, batch: int, world: int) -> None:
    one = Partition(batch * world)
    steps = total // (batch * world)
    assert one.num_batches(total) in (steps, steps + 1)
    for step in range(steps):
        joined = np.concatenate([p.positions(total, 0, step) for p in all_ranks(batch, world, False)])
        assert np.array_equal(joined, one.positions(total, 0, step))


@pytest.mark.parametrize(("total", "steps"), [(0, 0), (1, 1), (8, 1), (9, 2)])
def test_number_of_batches(total: int, steps: int) -> None:
    assert Partition(4, 0, 2).num_batches(total) == steps


EXAMPLES = {  # 11 samples on 3 ranks, 2 a batch: the second global batch has 5
    "mark": [[6, -1], [7, 8], [9, 10]],
    "end": [[6, 7], [8, 9], [10, -1]],
    "repeat": [[6, 7], [8, 9], [10, 0]],
    "drop": [[6], [7, 8], [9, 10]],
}


@pytest.mark.parametrize("padding", sorted(EXAMPLES))
def test_how_ranks_share_what_is_left(padding: str) -> None:
    ranks = all_ranks(2, 3, False, padding)
    assert [part.positions(11, 0, 0).tolist() for part in ranks] == [[0, 1], [2, 3], [4, 5]]
    found = [part.positions(11, 0, 1) for part in ranks]
    assert [each.tolist() for each in found] == EXAMPLES[padding]
    assert {each.dtype for each in found} == {np.dtype(np.int64)}
    later = [part.positions(11, 6, 0).tolist() for part in ranks]  # gone on with behind the first
    assert later == EXAMPLES[padding]


def test_a_partition_is_of_one_rank_and_marks_unless_it_is_told() -> None:
    assert Partition(4).positions(6, 0, 1).tolist() == [4, 5]
    assert Partition(4, 0, 2).positions(5, 0, 0).tolist() == [0, 1, -1]
    assert Partition(4, 1, 2).positions(5, 0, 0).tolist() == [2, 3, 4]
    assert Partition(4).num_batches(6) == 2


def test_ranks_of_positions() -> None:
    part = Partition(2, 0, 3)
    assert part.ranks_of(np.arange(12)).tolist() == [0, 0, 1, 1, 2, 2] * 2
    for rank, own in enumerate(all_ranks(2, 3, False)):
        assert set(part.ranks_of(own.positions(12, 0, 1)).tolist()) == {rank}


def test_an_epoch_that_is_over_has_no_batches() -> None:
    assert Partition(4).num_batches(8, 8) == 0
    assert Partition(4).num_batches(8, 9) == 0
    assert Partition(4, drop_last=True).num_batches(7, 4) == 0
    assert Partition(4, 0, 2).consumed(20, 3, 1) == 11
    assert Partition(4, 0, 2).consumed(20, 3, 9) == 20
