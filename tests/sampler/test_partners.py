"""Partners of mosaics and mixes: positions of the epoch's own order, drawn by sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler, SequentialSampler

from fastload._native import _C
from fastload.sampler import BatchIds, Partition, Sampler, make_sampler
from fastload.sampler.buckets import BucketSampler
from fastload.sampler.drawn import DrawnOrder
from fastload.sampler.keyed import RepeatedSampler, SubsetSampler, WeightedSampler
from fastload.sampler.mixed import MixedOrder
from fastload.sampler.partners import Partnering, _high_product, partners, reach
from fastload.sampler.sampler import MappedSampler, SequentialOrder, is_shuffled

SEED = 11
OP = _C.DRAW_OPS["partner"]


def sampler_of(n: int = 50, rank: int = 0, world: int = 1, **more: Any) -> Any:
    partition = Partition(6, rank, world)
    return make_sampler(n, partition, shuffle=more.pop("shuffle", True), seed=SEED, **more)


def plain(sampler: Any, epoch: int, sample: int, draw: int, of: Partnering) -> list[int]:
    """One sample's partners, word by word."""

    def bits(block: int, half: int) -> int:
        words = _C.sample_words(SEED, epoch, sample, draw, OP, block)
        return int(words[2 * half]) << 32 | int(words[2 * half + 1])

    def uniform(block: int, half: int) -> float:
        return (bits(block, half) >> 11) * 2.0**-53

    def partner(number: int) -> int:
        return int(sampler.substitute(epoch, bits(2 + number // 2, number % 2)))

    first = [partner(i) if uniform(0, 0) < of.p else -1 for i in range(of.tiles - 1)]
    if of.mixup == 0.0:
        return first
    mixed = uniform(0, 1) < of.mixup
    second = [partner(of.tiles - 1) if mixed else -1]
    second += [partner(i) if mixed and uniform(1, 0) < of.p else -1 for i in range(of.tiles, of.count)]
    return first + second


@pytest.mark.parametrize(
    "of", [Partnering(4), Partnering(4, 0.5), Partnering(9, 0.7, 0.4), Partnering(1, 1.0, 0.5)]
)
def test_they_are_drawn_by_sample_alone(of: Partnering) -> None:
    sampler = sampler_of()
    batch = BatchIds(np.arange(40, dtype=np.int64), None)
    found = partners(sampler, SEED, 2, batch, of)
    assert found.dtype == np.int64
    assert found.shape == (40, of.count)
    assert found.tolist() == [plain(sampler, 2, int(i), 0, of) for i in batch.ids]
    assert not np.array_equal(found, partners(sampler, SEED, 3, batch, of))


def test_padding_has_none_and_repeats_have_others() -> None:
    sampler = sampler_of()
    batch = BatchIds(np.array([3, -1, 3], np.int64), np.array([0, 0, 1], np.uint32))
    found = partners(sampler, SEED, 0, batch, Partnering(4))
    assert found[1].tolist() == [-1, -1, -1]
    assert found[0].tolist() != found[2].tolist()
    assert found[2].tolist() == plain(sampler, 0, 3, 1, Partnering(4))


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_and_where_an_epoch_is_taken_up_change_nothing(world: int) -> None:
    whole: dict[int, list[int]] = {}
    one, of = sampler_of(), Partnering(4)
    for step in range(one.num_batches(0)):
        batch = one.batch(0, 0, step)
        whole.update(zip(batch.ids.tolist(), partners(one, SEED, 0, batch, of).tolist(), strict=True))
    assert len(whole) == 50
    for rank in range(world):
        shared = sampler_of(rank=rank, world=world)
        assert shared.num_batches(0, 13) > 0
        for step in range(shared.num_batches(0, 13)):
            batch = shared.batch(0, 13, step)
            found = partners(shared, SEED, 0, batch, of).tolist()
            assert found == [whole.get(i, [-1] * 3) for i in batch.ids.tolist()]


def test_a_choice_of_samples_has_partners_of_its_own() -> None:
    chosen = np.array([7, 30, 12, 44, 5, 5], np.int64)
    batch = BatchIds(np.array([7, 12], np.int64), None)
    of = Partnering(9, 1.0, 1.0)
    mapped = MappedSampler(sampler_of(len(chosen)), chosen, repeats=True)
    subset = sampler_of(50, shuffle=False, sampler=SubsetSampler([7, 30, 12, 44, 5]))
    for sampler in (mapped, subset):
        found = partners(sampler, SEED, 1, batch, of)
        assert set(found.ravel().tolist()) <= set(chosen.tolist())
        assert found.tolist() == [plain(sampler, 1, int(i), 0, of) for i in batch.ids]


def test_weights_hold_for_partners() -> None:
    weights = [1.0] * 25 + [0.0] * 25
    sampler = sampler_of(50, shuffle=False, sampler=WeightedSampler(weights, 200))
    batch = BatchIds(np.arange(50, dtype=np.int64), None)
    assert partners(sampler, SEED, 0, batch, Partnering(9)).max() < 25


def all_batches(epoch: int, start: int = 0, world: int = 1, **more: Any) -> dict[int, list[int]]:
    """Of each sample of a long order its partners, over all ranks."""
    found: dict[int, list[int]] = {}
    for rank in range(world):
        sampler = make_sampler(
            more.get("n", 600),
            Partition(16 // world, rank, world),
            shuffle=more.get("shuffle", True),
            seed=SEED,
        )
        sampler.begun = more.get("begun")
        for step in range(sampler.num_batches(epoch, start)):
            batch = sampler.batch(epoch, start, step)
            rows = partners(sampler, SEED, epoch, batch, Partnering(9, 0.9, 0.5)).tolist()
            found |= {i: row for i, row in zip(batch.ids.tolist(), rows, strict=True) if i >= 0}
    return found


def test_in_long_epochs_they_are_of_the_batches_before() -> None:
    """By plain integers: the same eight places of one of the eight global batches before."""
    sampler = make_sampler(600, Partition(20), shuffle=True, seed=SEED)
    order = sampler.ids_at(np.arange(600), 1).tolist()
    of, seen = Partnering(4), set()
    for step in range(30):
        batch = sampler.batch(1, 0, step)
        found = partners(sampler, SEED, 1, batch, of)
        for row, sample in enumerate(batch.ids.tolist()):
            place = order.index(sample) % 20
            for number in range(3):
                words = _C.sample_words(SEED, 1, sample, 0, OP, 2 + number // 2)
                bits = int(words[2 * (number % 2)]) << 32 | int(words[2 * (number % 2) + 1])
                begin, inside = min(place // 8 * 8, 12), (bits >> 58) % 8
                position = 20 * (step - 1 - (bits >> 61)) + begin + inside
                assert found[row, number] == order[position % 600]
                seen.add((bits >> 61, begin, inside))
    assert len(seen) == 8 * 3 * 8


def test_of_long_epochs_ranks_and_resumes_have_the_same() -> None:
    whole = all_batches(0)
    assert len(whole) == 600
    assert all_batches(0, world=2) == whole
    rest = all_batches(0, start=320)
    assert rest.items() <= whole.items()
    # Another global batch goes on by that of the run that began the epoch, until the next one.
    for begun, same in (((0, 16), True), ((1, 16), False), (None, False)):
        sampler = make_sampler(600, Partition(10), shuffle=True, seed=SEED)
        sampler.begun = begun
        batch = sampler.batch(0, 320, 2)
        found = partners(sampler, SEED, 0, batch, Partnering(9, 0.9, 0.5)).tolist()
        assert ([whole[i] for i in batch.ids.tolist()] == found) is same


def test_partners_of_a_rank_are_its_own_of_before() -> None:
    for rank in range(2):
        sampler = make_sampler(600, Partition(8, rank, 2), shuffle=True, seed=SEED)
        batches = [sampler.batch(0, 0, step) for step in range(30)]
        for step in range(8, 30):
            own = {i for batch in batches[step - 8 : step] for i in batch.ids.tolist()}
            assert set(partners(sampler, SEED, 0, batches[step], Partnering(9)).ravel().tolist()) <= own


def test_what_is_not_shuffled_has_partners_from_everywhere() -> None:
    sampler = make_sampler(600, Partition(16), shuffle=False, seed=SEED)
    batch = sampler.batch(0, 0, 20)
    of = Partnering(9)
    found = partners(sampler, SEED, 0, batch, of)
    assert found.tolist() == [plain(sampler, 0, int(i), 0, of) for i in batch.ids]


@pytest.mark.parametrize(
    "order",
    [
        DrawnOrder(SequentialSampler(range(600)), 600, 0),
        DrawnOrder(list(range(600)), 600, 0),
        DrawnOrder(DistributedSampler(range(600), 1, 0, shuffle=False), 600, 0),
        BucketSampler([(1, 1)] * 600, [(8, 8)], shuffle=False).order(600, 0),
        RepeatedSampler(3, shuffle=False).order(600, 0),
        MixedOrder(np.array([600]), np.array([600]), 0, shuffle=False),
        SequentialOrder(600),
    ],
    ids=["torch", "list", "distributed", "buckets", "repeated", "mixed", "sequential"],
)
def test_orders_that_are_not_shuffled_are_known(order: Any) -> None:
    assert not is_shuffled(order)
    sampler = Sampler(order, Partition(16))
    assert reach(sampler) == 0
    positions = np.arange(320, 336)
    batch = BatchIds(order.ids(positions, 0), None, positions)
    found = partners(sampler, SEED, 0, batch, Partnering(9))
    assert np.ptp(found) > 0.7 * np.ptp(order.ids(np.arange(600), 0))


@pytest.mark.parametrize(("size", "place", "most"), [(1, 0, 0.05), (2, 1, 0.05), (9, 8, 0.1), (17, 16, 0.1)])
def test_no_place_of_a_batch_meets_the_same_few(size: int, place: int, most: float) -> None:
    """The share of mosaics with a picture twice; of 64 samples, three at random, it is 0.046."""
    sampler = make_sampler(20_000, Partition(size), shuffle=True, seed=SEED)
    twice = []
    for step in range(20_000 // size - 1):
        batch = sampler.batch(0, 0, step)
        batch = BatchIds(batch.ids[place:][:1], None, batch.positions[place:][:1])
        twice.append(len(set(partners(sampler, SEED, 0, batch, Partnering(4))[0].tolist())) < 3)
        if len(twice) == 1_000:
            break
    assert np.mean(twice) < most


def test_every_pair_meets_as_often_over_epochs() -> None:
    """Chi-square of who is whose partner, 399 degrees of freedom: 492 is exceeded once in a thousand."""
    counts = np.zeros((160, 160))
    for epoch in range(150):
        sampler = make_sampler(160, Partition(8), shuffle=True, seed=SEED)
        for step in range(sampler.num_batches(epoch)):
            batch = sampler.batch(epoch, 0, step)
            rows = partners(sampler, SEED, epoch, batch, Partnering(4))
            np.add.at(counts, (batch.ids[:, None], rows), 1)
    assert counts.sum() == 150 * 160 * 3
    assert np.diag(counts).sum() == 0  # the windows leave the sample's own batch out
    pooled = counts.reshape(20, 8, 20, 8).sum((1, 3))
    expected = np.full((20, 20), 64.0) - 8 * np.eye(20)
    expected *= counts.sum() / expected.sum()
    assert ((pooled - expected) ** 2 / expected).sum() < 492


def test_every_sample_is_a_partner_as_often() -> None:
    """Chi-square with fixed draws, 49 degrees of freedom: 85.4 is exceeded once in a thousand."""
    sampler = sampler_of()
    counts = np.zeros(50)
    for epoch in range(40):
        batch = BatchIds(np.arange(50, dtype=np.int64), None)
        counts += np.bincount(partners(sampler, SEED, epoch, batch, Partnering(4)).ravel(), minlength=50)
    expected = counts.sum() / 50
    assert expected == 120
    assert ((counts - expected) ** 2 / expected).sum() < 85.4


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(1, 2**62 - 1))
def test_products_of_64_bits(word: int, n: int) -> None:
    assert _high_product(np.array([word], np.uint64), n).tolist() == [word * n >> 64]
