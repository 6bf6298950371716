"""Orders are the same in every version: a run that goes on after an upgrade sees the rest of its epoch.

What stands here was drawn once and written down. A change of it loses all states that were saved in the
middle of an epoch, and needs another version of the loader's state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from philox_reference import philox, sample_words

from fastload._native import _C
from fastload.sampler import (
    BatchIds,
    BlockOrder,
    BlockSampler,
    Partition,
    RepeatedSampler,
    StickyOrder,
    WeightedSampler,
    block_sampler,
    make_sampler,
    order_name,
)
from fastload.sampler.buckets import BucketSampler
from fastload.sampler.drawn import DrawnOrder
from fastload.sampler.mixed import MixedOrder
from fastload.sampler.order import derived_seed, keyed_bits, random_words, shuffled
from fastload.sampler.packs import PackingSampler
from fastload.sampler.partners import Partnering, _high_product, partners
from fastload.sampler.schedule import Course, MixtureStart, Schedule
from fastload.sampler.scheduled_order import ScheduledOrder

SEED, EPOCH = 2**40 + 3, 2**33 + 5  # more than 32 bits of each count
BLOCKS = [
    *(5, 31, 28, 2, 30, 15, 0, 1, 29, 12, 13, 7, 4, 6, 3, 14, 26, 45, 43, 27, 44, 46, 47, 38, 52, 25),
    *(40, 24, 41, 36, 37, 42, 18, 49, 11, 9, 51, 32, 34, 8, 48, 35, 10, 50, 39, 33, 16, 17, 19, 23, 21),
    *(20, 22),
]


@pytest.mark.parametrize(
    ("n", "first"),
    [
        (10, [4, 0, 6, 1, 9, 2, 3, 8]),
        (1000, [866, 249, 915, 676, 332, 688, 65, 389]),
        (70_000, [17324, 47839, 31207, 815, 64768, 30694, 17520, 50404]),
        (10**9, [31423841, 431734291, 643185189, 186751895, 324700350, 88002366, 695411416, 804113452]),
        (2**61 + 1, [896833114097752646, 2054524168663277053, 131791400378642303, 552318892504593254]),
    ],
)
def test_the_shuffle(n: int, first: list[int]) -> None:
    assert shuffled(np.arange(len(first)), n, SEED, EPOCH).tolist() == first


def test_the_words_that_orders_are_made_of() -> None:
    words = random_words(np.arange(3), SEED, EPOCH).tolist()
    assert words == [0x8E1F2722AB7280F4, 0xBA458F736CD479E5, 0x1ED1309123670279]
    bits = keyed_bits(np.arange(3, dtype=np.uint64), SEED, EPOCH, 2, 7).tolist()
    assert bits == [0x564F9FC3516CEEF8, 0x487F39ECB41C1787, 0x61E28D739FEEA5C1]
    assert derived_seed(SEED, 3) == 0x78D023FD1F98F51D


def test_the_block_shuffle() -> None:
    assert BlockOrder(53, SEED, 4, 16).ids(np.arange(53), EPOCH).tolist() == BLOCKS


def test_the_block_shuffles_batches() -> None:
    order = BlockOrder(53, SEED, 4, 16)
    ranks = [BlockSampler(order, Partition(4, rank, 2)) for rank in (0, 1)]
    assert sorted(i for rank in ranks for i in rank.batch(EPOCH, 0, 0).ids) == sorted(BLOCKS[:8])
    assert [rank.batch(EPOCH, 0, 0).ids.tolist() for rank in ranks] == [[2, 0, 1, 5], [15, 31, 28, 30]]


def test_the_block_shuffle_of_nodes() -> None:
    found = StickyOrder(29, SEED, 4, 24, nodes=3).ids(np.arange(29), EPOCH).tolist()
    assert found == [
        5,
        20,
        17,
        0,
        24,
        28,
        9,
        22,
        12,
        3,
        21,
        16,
        8,
        23,
        14,
        4,
        25,
        18,
        2,
        26,
        13,
        1,
        27,
        19,
        6,
        10,
        15,
        7,
        11,
    ]
    ranks = [block_sampler(29, SEED, (4, 24), 3, Partition(3, rank, 3)) for rank in range(3)]
    assert [rank.batch(EPOCH, 0, 0).ids.tolist() for rank in ranks] == [[0, 5, 9], [24, 20, 22], [17, 12, 28]]


def order_of(sampler: Any, n: int) -> list[int]:
    order = sampler.order(n, SEED)
    return order.ids(np.arange(order.total(EPOCH)), EPOCH).tolist()


def test_samplers_of_our_own() -> None:
    weights = [1, 2, 0, 4, 3]
    assert order_of(WeightedSampler(weights, 8), 5) == [3, 4, 1, 3, 3, 1, 4, 3]
    assert order_of(WeightedSampler(weights, 4, replacement=False), 5) == [3, 1, 4, 0]
    assert order_of(RepeatedSampler(3), 12) == [1, 1, 1, 0, 0, 0, 10, 10, 10, 4, 4, 4]


def test_a_mix() -> None:
    mix = MixedOrder(np.array([10, 4]), np.array([9, 6]), SEED, True)
    positions = np.arange(15)
    assert mix.ids(positions, 0).tolist() == [8, 6, 13, 10, 5, 11, 12, 0, 9, 11, 4, 10, 3, 1, 2]
    assert mix.ids(positions, EPOCH).tolist() == [9, 0, 8, 1, 2, 11, 12, 3, 11, 13, 12, 7, 10, 3, 1]


def scheduled(start: MixtureStart | None = None) -> ScheduledOrder:
    start = start or MixtureStart.of_run(3)
    schedule = Schedule({0: [3, 1, 0], 20: [1, 1, 2]}, 10)
    course = Course(schedule, start, np.array([15, 100, 40]))
    return ScheduledOrder(np.array([10, 4, 20]), ["a", "b", "c"], 15, SEED, course, start)


def test_a_mix_that_changes() -> None:
    """And one that began in the middle of a run: states that were saved in them go on."""
    positions = np.arange(15)
    assert scheduled().ids(positions, 0).tolist() == [8, 6, 5, 13, 10, 0, 9, 4, 3, 1, 11, 12, 2, 7, 11]
    assert scheduled().ids(positions, 2).tolist() == [
        13,
        20,
        18,
        23,
        27,
        29,
        32,
        10,
        15,
        11,
        13,
        21,
        22,
        19,
        33,
    ]
    start = MixtureStart(130, 2, 4, (12, 40, 3), (0, 5, 2), 6, 0x0123456789ABCDEF)
    assert start.to_text() == "1ONaCf&v5v0{{R6r~m^100s;?0PoGKiDyM40W~rF)&"
    assert scheduled(start).ids(positions, 3).tolist() == [
        13,
        29,
        10,
        32,
        15,
        21,
        22,
        19,
        33,
        11,
        24,
        25,
        31,
        28,
        10,
    ]


def test_buckets() -> None:
    buckets = BucketSampler(np.array([[1, 1], [1, 2], [2, 1]] * 5), [(1, 1), (1, 2), (2, 1)])
    sampler = buckets.batches(buckets.order(15, SEED), Partition(4))
    assert sampler.num_batches(EPOCH) == 6
    found = [sampler.batch(EPOCH, 0, step).ids.tolist() for step in range(6)]
    assert found == [[13], [4, 10, 1, 7], [8], [5, 14, 11, 2], [3, 6, 0, 9], [12]]


def test_packs() -> None:
    lengths = [7, 3, 5, 2, 6, 4, 1, 5, 3, 2]
    packing = PackingSampler(lengths, 10)
    sampler = packing.batches(packing.order(10, SEED), Partition(2))
    ids = [sampler.batch(EPOCH, 0, step).ids.tolist() for step in range(sampler.num_batches(EPOCH))]
    assert ids == [[6, 9, 3, 8, 2, 7], [0, 1, 4, 5]]
    assert [sampler.offsets(EPOCH, 0, step).tolist() for step in range(len(ids))] == [[0, 4, 6], [0, 2, 4]]
    assert order_name(sampler.order, False) == "packs:10:2:True:0062945da7bacc47"
    shared = PackingSampler(lengths, 10, costs=[1, 1, 9, 1, 1, 1, 1, 1, 9, 1])
    ranks = [shared.batches(shared.order(10, SEED), Partition(2, rank, 2)) for rank in (0, 1)]
    assert [rank.batch(EPOCH, 0, 0).ids.tolist() for rank in ranks] == [[6, 9, 3, 8, 4, 5], [2, 7, 0, 1]]
    many = PackingSampler(np.arange(1, 70_001) % 50 + 1, 100)
    found = many.batches(many.order(70_000, SEED), Partition(2)).batch(EPOCH, 0, 500).ids.tolist()
    assert found == [8078, 12933, 22833, 67727, 60177, 41260, 38278]


class Drawing:
    """A user's sampler that draws from Python's and NumPy's generators, and from one of its own."""

    def __init__(self) -> None:
        import torch

        self.generator = torch.Generator()
        self.generator.manual_seed(2**35 + 1)

    def __iter__(self) -> Any:
        import random

        import torch

        own = torch.randint(0, 1000, (2,), generator=self.generator).tolist()
        return iter(
            [random.randrange(1000), int(np.random.randint(1000)), *own, int(torch.randint(1000, ()))]
        )


def test_a_users_sampler() -> None:
    assert DrawnOrder(Drawing(), 1000, SEED).ids(np.arange(5), EPOCH).tolist() == [869, 180, 823, 800, 308]


def test_partners() -> None:
    sampler = make_sampler(400, Partition(8, 1, 2), shuffle=True, seed=SEED)
    batch = sampler.batch(EPOCH, 0, 20)
    found = partners(sampler, SEED, EPOCH, batch, Partnering(4, 0.5, 0.5))
    assert found[:3].tolist() == [
        [91, 213, 261, 115, 261, 309, 210],
        [76, 377, 298, -1, -1, -1, -1],
        [-1, -1, -1, -1, -1, -1, -1],
    ]


@pytest.mark.parametrize(
    "draws", [None, np.array([0, 1, 2**31, 2**32 - 1], np.uint32)], ids=["none", "draws"]
)
@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (SEED, EPOCH), (2**64 - 1, 2**64 - 1)])
@pytest.mark.parametrize(("op", "blocks"), [(9, 3), (255, 1), (0, 1 << 16), (14, 0)])
def test_words_of_a_batch_are_each_samples(seed: int, epoch: int, draws: Any, op: int, blocks: int) -> None:
    ids = np.array([0, 2**33 + 1, 2**63 - 1, -1], np.int64)
    found = _C.batch_words(seed, epoch, ids, draws, op, blocks)
    assert (found.shape, found.dtype) == ((4, blocks, 4), np.uint32)
    assert np.array_equal(found, sample_words(seed, epoch, BatchIds(ids, draws), op, blocks))
    for block in range(0, blocks, 9973):
        for row, sample, draw in zip(found, ids, [0] * 4 if draws is None else draws, strict=True):
            wanted = _C.sample_words(seed, epoch, int(sample) % 2**64, int(draw), op, block)
            assert row[block].tolist() == list(wanted)


def test_words_of_a_batch_that_is_a_view_of_others() -> None:
    ids, draws = np.arange(3000, dtype=np.int64), np.arange(3000, dtype=np.uint32)
    ids.setflags(write=False)
    found = _C.batch_words(1, 2, ids[::-3], draws[::3], 5, 7)
    assert np.array_equal(found, sample_words(1, 2, BatchIds(ids[::-3], draws[::3]), 5, 7))
    assert _C.batch_words(1, 2, ids[:0], None, 5, 7).shape == (0, 7, 4)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"blocks": (1 << 16) + 1}, ValueError, r"blocks must be at most 65536\. Found: 65537\."),
        ({"blocks": -1}, TypeError, "incompatible"),
        ({"op": 256}, TypeError, "incompatible"),
        ({"ids": np.zeros(3)}, TypeError, "incompatible"),
        ({"ids": np.zeros((3, 1), np.int64)}, TypeError, "incompatible"),
        ({"draws": np.zeros(3, np.int64)}, TypeError, "incompatible"),
        (
            {"draws": np.zeros(2, np.uint32)},
            ValueError,
            r"draws must have one number for each of 3 ids\. Found: 2\.",
        ),
    ],
)
def test_arguments_that_have_no_words(changed: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"ids": np.zeros(3, np.int64), "draws": None, "op": 5, "blocks": 2}
    with pytest.raises(error, match=words):
        _C.batch_words(1, 2, **given | changed)


def test_philox_of_many_counters_is_philox() -> None:
    counters = np.array([[0] * 4, [2**32 - 1] * 4, [1, 2**31, 3, 4]], np.uint64)
    for key in ((0, 0), (2**32 - 1, 2**32 - 1), (0xA4093822, 0x299F31D0)):
        found = philox(counters, key).tolist()
        assert found == [list(_C.philox4x32(one, list(key))) for one in counters.tolist()]


@pytest.mark.parametrize("n", [1, 3, 2**32 - 1, 2**32, 2**32 + 1, 10**12, 2**62 - 1])
def test_the_high_word_of_a_product(n: int) -> None:
    bits = np.array([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 0x0123456789ABCDEF], np.uint64)
    assert _high_product(bits, n).tolist() == [int(word) * n >> 64 for word in bits]
