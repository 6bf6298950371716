"""Which records have room: the share is exact and evenly spread, for any lengths and any capacity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.cache.layout import choose_room

LENGTHS = st.lists(st.integers(0, 5000), max_size=400).map(lambda sizes: np.array(sizes, np.uint32))


@given(LENGTHS, st.integers(0, 2_000_000))
def test_never_more_than_the_capacity_and_all_that_fits(lengths: np.ndarray, capacity: int) -> None:
    room = choose_room(lengths, capacity)
    used, total = int(lengths[room].sum()), int(lengths.sum())
    assert used <= capacity
    assert not room[lengths == 0].any()
    if total <= capacity:
        assert used == total
    else:
        # Of small sets a run is 1/256 of the set, or one record.
        assert used > capacity - 2 * (total // 256 + 5000)


@pytest.mark.parametrize("share", [0.05, 1 / 3, 0.5, 2 / 3, 0.9])
def test_the_share_is_the_same_everywhere_in_the_set(share: float) -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(50_000, 170_000, 100_000).astype(np.uint32)  # 11 GB: 2600 runs
    ends = np.cumsum(lengths, dtype=np.uint64)
    capacity = int(share * int(ends[-1]))
    room = choose_room(lengths, capacity)
    taken = np.cumsum(np.where(room, lengths, 0), dtype=np.uint64)
    assert capacity - int(taken[-1]) < 170_000  # exact but for one record
    assert np.abs(taken - share * ends).max() < 2 * (4 << 20) + 170_000  # at any point
    runs = np.diff(np.flatnonzero(np.diff(room.astype(np.int8), prepend=0, append=0)))
    assert np.median(runs[::2]) * 110_000 > 3 << 20  # in runs of megabytes


def test_the_number_of_runs_is_bounded() -> None:
    lengths = np.full(3_000_000, 2**28, np.uint32)  # 800 TB
    room = choose_room(lengths, 2**28 * 1_000_000)
    assert room.sum() == 1_000_000
    assert np.count_nonzero(np.diff(room.astype(np.int8))) <= 2 << 16


def test_what_comes_first_has_all_the_room() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 90_000, 3000).astype(np.uint32)
    first = rng.random(3000) < 0.25
    wanted = int(lengths[first].sum())
    for share in (0.3, 0.7, 1.0, 2.0, 9.0):
        room = choose_room(lengths, int(share * wanted), first)
        assert lengths[room].sum() <= share * wanted
        if share >= 1:
            assert room[first & (lengths > 0)].all()
        else:
            assert not (room & ~first)[lengths > 90_000 - wanted // 3000].any()
            assert lengths[room & first].sum() > (share - 0.01) * wanted
    assert choose_room(lengths, 2**40, first).sum() == (lengths > 0).sum()
