"""Ranks by arithmetic: equal counts, disjoint samples, nothing lost; also after a resume on other ranks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.sampler import Partition
from fastload.sampler.partition import PADDING

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
