"""The shuffle: a uniform permutation found position by position, without a list."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.sampler.order import EXACT_LIMIT, shuffled


def order(n: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return shuffled(np.arange(n), n, seed, epoch)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000, EXACT_LIMIT, EXACT_LIMIT + 1, 100_003, 1 << 17, 300_000])
def test_is_a_permutation(n: int) -> None:
    assert np.array_equal(np.sort(order(n, 5, 2)), np.arange(n))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 200_000), st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.data())
def test_any_part_is_the_same_as_in_the_whole(n: int, seed: int, epoch: int, data: st.DataObject) -> None:
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20)))
    assert np.array_equal(shuffled(positions, n, seed, epoch), order(n, seed, epoch)[positions])


@pytest.mark.parametrize("n", [1000, EXACT_LIMIT + 1])
def test_differs_by_seed_and_epoch(n: int) -> None:
    orders = [order(n, seed, epoch) for seed in (0, 1, 2**63) for epoch in (0, 1, 2**33)]
    assert len(orders) == 9
    for i, first in enumerate(orders):
        for second in orders[:i]:
            assert np.mean(first == second) < 0.01


def test_sizes_that_share_a_domain_are_unrelated() -> None:
    small, large = order(70_000), order(70_001)
    assert np.mean(small[:5000] == large[:5000]) < 0.01


def chi_square_bound(degrees: int, sigmas: float = 5.0) -> float:
    return degrees + sigmas * math.sqrt(2 * degrees)


def test_every_permutation_of_four_is_equally_likely() -> None:
    counts = Counter(tuple(order(4, seed, 1)) for seed in range(12_000))
    expected = 12_000 / 24
    statistic = sum((counts[p] - expected) ** 2 / expected for p in permutations(range(4)))
    assert statistic < chi_square_bound(23)


@pytest.mark.parametrize("n", [4096, 100_003])
def test_each_position_gets_each_id_equally_often(n: int) -> None:
    """Chi-square over (position block, id block), and of the distance between neighbours."""
    blocks, runs = 16, 40
    counts = np.zeros((blocks, blocks))
    gaps = np.zeros(blocks)
    for epoch in range(runs):
        ids = order(n, 3, epoch)
        at = np.arange(n) * blocks // n
        np.add.at(counts, (at, ids * blocks // n), 1)
        difference = np.mod(np.diff(ids), n)
        gaps += np.bincount(difference * blocks // n, minlength=blocks)
    expected = runs * n / blocks**2
    assert ((counts - expected) ** 2 / expected).sum() < chi_square_bound(blocks**2)
    expected = gaps.sum() / blocks
    assert ((gaps - expected) ** 2 / expected).sum() < chi_square_bound(blocks)


def test_a_billion_samples_need_no_list() -> None:
    n = 10**9
    tracemalloc.start()
    ids = shuffled(np.arange(n - 512, n), n, 1, 4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert len(set(ids.tolist())) == 512
    assert ids.min() >= 0
    assert ids.max() < n
    assert np.ptp(ids) > n // 2


def test_philox_known_answers() -> None:
    """Random123's known-answer vectors for philox4x32-10."""
    from fastload._native import _C

    ones = 0xFFFFFFFF
    assert _C.philox4x32([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert _C.philox4x32([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    counter = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert _C.philox4x32(counter, [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]
