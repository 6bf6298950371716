"""Where partners come from, at the sizes from which on it changes; and draws of a rank's own sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch.utils.data import BatchSampler, RandomSampler

from fastload.sampler import Partition, make_sampler
from fastload.sampler.drawn import DrawnBatches
from fastload.sampler.mixed import MixedOrder
from fastload.sampler.order import derived_seed, shuffled
from fastload.sampler.partners import Partnering, partners, reach
from fastload.sampler.quality import measure
from fastload.sampler.sampler import Sampler, ShuffledOrder


def sampler_of(n: int, batch: int, **more: Any) -> Sampler:
    return make_sampler(n, Partition(batch), shuffle=more.pop("shuffle", True), seed=5, **more)


def distances(sampler: Sampler, step: int) -> np.ndarray:
    """How many global batches before the sample's own its partners stand."""
    place = np.empty(sampler.total(0), np.int64)
    place[sampler.order.ids(np.arange(len(place)), 0)] = np.arange(len(place))
    batch = sampler.batch(0, 0, step)
    found = partners(sampler, 5, 0, batch, Partnering(9))
    size = sampler.partition.batch_size
    assert batch.positions is not None
    batches = len(place) // size
    return (batch.positions[:, None] // size - place[found] // size) % batches


@pytest.mark.parametrize("size", [8, 9, 16])
def test_partners_are_of_the_eight_batches_before(size: int) -> None:
    found = distances(sampler_of(40 * size, size), 20)
    assert set(found.ravel().tolist()) == set(range(1, 9))


@pytest.mark.parametrize(("batches", "size"), [(40, 7), (15, 8)])
def test_of_small_batches_and_short_epochs_they_come_from_everywhere(batches: int, size: int) -> None:
    found = np.concatenate([distances(sampler_of(batches * size, size), step) for step in range(batches)])
    assert set(found.ravel().tolist()) == set(range(batches))


def test_the_shortest_epoch_that_has_near_ones() -> None:
    assert set(distances(sampler_of(16 * 8, 8), 15).ravel().tolist()) == set(range(1, 9))


def test_how_far_back_they_are() -> None:
    assert reach(sampler_of(40 * 8, 8)) == 80
    assert reach(sampler_of(16 * 8, 8)) == 80
    assert reach(sampler_of(16 * 8 - 1, 8)) == 127  # the whole epoch
    assert reach(sampler_of(16 * 7, 7)) == 0  # everywhere
    assert reach(sampler_of(16 * 7 - 1, 7)) == 111
    assert reach(sampler_of(320, 8, shuffle=False)) == 0
    two = Sampler(ShuffledOrder(640, 5), Partition(4, 0, 2))
    assert reach(two) == 40  # of this rank


def test_how_far_back_they_are_in_a_users_order() -> None:
    own = RandomSampler(range(320))  # type: ignore[arg-type]
    assert reach(sampler_of(320, 8, shuffle=False, sampler=own)) == 80
    assert reach(sampler_of(320, 7, shuffle=False, sampler=own)) == 0
    batches = BatchSampler(own, 8, False)
    listed = make_sampler(320, Partition(8), shuffle=False, seed=5, batch_sampler=batches)
    assert reach(listed) == 0
    assert listed.batch(0, 0, 0).positions is None


def test_draws_tell_ranks_apart_that_have_samplers_of_their_own() -> None:
    positions = np.array([0, 1, 2, 2**33])
    found = [Sampler(ShuffledOrder(9, 1), Partition(3), (rank, 3)).draws(positions) for rank in range(3)]
    assert [each.tolist() for each in found] == [[0, 3, 6, 0], [1, 4, 7, 1], [2, 5, 8, 2]]
    assert {each.dtype for each in found} == {np.dtype(np.uint32)}
    assert Sampler(ShuffledOrder(9, 1), Partition(3)).draws(positions).tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(("total", "block"), [(2**26 - 2, 4096), (2**26, 65536)])
def test_blocks_of_a_mix_are_larger_where_the_epoch_is_long(total: int, block: int) -> None:
    """Of two halves the first block has as many, at places that its own shuffle gives."""
    counts = np.array([total // 2, total // 2])
    ids = MixedOrder(counts, counts, 5, True).ids(np.arange(block), 0)
    places = shuffled(np.arange(block), block, 5, 0)
    assert (ids >= counts[0]).tolist() == (places >= block // 2).tolist()
    own = shuffled(np.arange(block // 2), int(counts[0]), derived_seed(5, 0), 0)
    assert ids[ids < counts[0]].tolist() == own.tolist()


def test_listed_batches_in_numbers() -> None:
    drawn = DrawnBatches([[4, 1], [2], [], [0, 3, 1]], 5, 1)
    assert (drawn.count(0), drawn.total(0)) == (4, 6)
    assert drawn.ids(np.array([5, 0, 2]), 0).tolist() == [1, 4, 2]
    ids, first = drawn.batch(3, 0)
    assert (ids.tolist(), first) == ([0, 3, 1], 3)
    assert drawn.keys(1, 0) == [2]


def test_the_classes_of_a_uniform_shuffle_differ_as_independent_draws_would() -> None:
    """Of two classes as of many: the mean of chi-square over its degrees of freedom is 1."""
    for classes in (2, 3):
        sampler = sampler_of(30_000, 30)
        quality = measure(sampler, np.arange(30_000) % classes)
        assert quality.class_chi2 == pytest.approx(1, abs=0.25)
