"""Hits of the disk tier beside exact Belady, LRU and a fixed share, on the same traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from disk_sets import Belady, Lru, bytes_for, opened
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload._native import _C
from fastload.cache.disk_files import expected_hits
from fastload.sampler import Partition, Sampler
from fastload.sampler.sampler import ShuffledOrder
from fastload.sampler.upcoming import NOT_NEEDED, level_of, needs_all, use_levels

COUNT, BATCH, EPOCHS, KNOWN = 1200, 25, 24, 16
SIDE = 8

Trace = list[npt.NDArray[np.int64]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    folder = tmp_path_factory.mktemp("hits") / "set"
    blobs = [np.full(3 * SIDE * SIDE, i % 251, np.uint8).tobytes() for i in range(COUNT)]
    return plain_pack(folder, blobs, range(COUNT), raw_size=(SIDE, SIDE))


def sampler_of(nodes: int) -> Sampler:
    return Sampler(ShuffledOrder(COUNT, 11), Partition(BATCH, 0, nodes, drop_last=True))


def trace_of(sampler: Sampler) -> Trace:
    """What rank 0 reads, epoch by epoch."""
    steps = range(sampler.num_batches(0))
    return [np.concatenate([sampler.batch(e, 0, s).ids for s in steps]) for e in range(EPOCHS + KNOWN)]


def levels_of(epoch: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    levels = np.full(COUNT, NOT_NEEDED, np.uint16)
    levels[epoch] = level_of(np.arange(len(epoch)), len(epoch))
    return levels


def tier_hits(tier: _C.DiskTier, trace: Trace, length: int, told: bool) -> list[float]:
    """The share of hits in each epoch; the tier is told the order, or nothing."""
    shares = []
    for number, epoch in enumerate(trace[:EPOCHS]):
        if told:
            masks = np.zeros(COUNT, np.uint16)
            for k, later in enumerate(trace[number : number + KNOWN]):
                masks[later] |= np.uint16(1 << k)
            tier.set_order(number, masks, levels_of(epoch))
        hits = 0
        for at, sample in enumerate(epoch.tolist()):
            if at % BATCH == 0:
                tier.move(number, level_of(at, len(epoch)), False)
            if tier.find(sample, length) is not None:
                hits += 1
            else:
                tier.store(sample, b"x" * length)
        shares.append(hits / len(epoch))
    return shares


def exact_hits(cache: Belady | Lru, trace: Trace) -> list[float]:
    return [float(np.mean([cache.hit(sample) for sample in epoch.tolist()])) for epoch in trace[:EPOCHS]]


@pytest.mark.parametrize("nodes", [2, 4, 8])
@pytest.mark.parametrize("share", [1 / 8, 1 / 3])
def test_a_node_of_several_gets_what_exact_belady_gets(
    tmp_path: Path, dataset: PackedDataset, nodes: int, share: float
) -> None:
    """Within 4 points, with slots drawn at random, and 16 epochs known of each; LRU is far behind."""
    length = 3 * SIDE * SIDE
    room, trace = int(COUNT * share), trace_of(sampler_of(nodes))
    with opened(dataset, tmp_path, bytes_for([length] * COUNT, room)) as tier:
        assert tier.room_records == room
        ours = np.mean(tier_hits(tier, trace, length, told=True)[EPOCHS // 2 :])
        counts = tier.counts()
    exact = np.mean(exact_hits(Belady(room, np.concatenate(trace).tolist()), trace)[EPOCHS // 2 :])
    lru = np.mean(exact_hits(Lru(room), trace)[EPOCHS // 2 :])
    assert exact - 0.04 < ours <= exact + 0.01
    assert ours > max(1.4 * share, lru + 0.1)
    assert abs(expected_hits(share, 1 / nodes) - exact) < 0.04
    assert counts["held_records"] == room
    assert counts["dropped"] == counts["stored"] - room


def test_a_node_that_reads_everything_has_its_share_and_nobody_has_more(
    tmp_path: Path, dataset: PackedDataset
) -> None:
    """Each record once an epoch: what is put there comes after its use. Belady writes for nothing."""
    length, room, trace = 3 * SIDE * SIDE, COUNT // 3, trace_of(sampler_of(1))
    with opened(dataset, tmp_path, bytes_for([length] * COUNT, room)) as tier:
        ours = tier_hits(tier, trace, length, told=False)
        assert tier.counts()["stored"] == room
        assert tier_hits(tier, trace, length, told=True)[1:] == pytest.approx([1 / 3] * (EPOCHS - 1))
        assert tier.counts()["stored"] == room  # nor does a tier that is told the order write any more
    exact = exact_hits(Belady(room, np.concatenate(trace).tolist()), trace)
    assert ours[1:] == pytest.approx([1 / 3] * (EPOCHS - 1))
    assert max(exact) <= 1 / 3 + 1e-9
    assert np.mean(exact_hits(Lru(room), trace)[1:]) < 0.1
    assert expected_hits(1 / 3) == pytest.approx(1 / 3)
    assert expected_hits(1 / 12, 1 / 4, is_sticky=True) == pytest.approx(1 / 3)
    assert expected_hits(1 / 3, 1 / 4, is_sticky=True) == 1


def test_what_is_not_needed_any_more_goes(tmp_path: Path, dataset: PackedDataset) -> None:
    length, room = 3 * SIDE * SIDE, 100
    with opened(dataset, tmp_path, bytes_for([length] * COUNT, room)) as tier:
        for sample in range(room):
            tier.store(sample, b"x" * length)
        tier.store(1000, b"x" * length)
        assert tier.find(1000, length) is None  # nothing is known: all stays
        masks = np.zeros(COUNT, np.uint16)
        masks[1000:1100] = 0b11
        tier.set_order(5, masks, np.full(COUNT, 10, np.uint16))
        tier.move(4, 0, False)
        tier.store(1000, b"x" * length)
        assert tier.find(1000, length) is None  # of another epoch
        tier.move(5, 0, False)
        for sample in range(1000, 1100):
            tier.store(sample, b"x" * length)
        there = [tier.find(sample, length) is not None for sample in range(1000, 1100)]
        assert sum(there) > 60  # of 24 slots at random one at least is an old one, most often
        assert not any(tier.find(sample, length) is not None for sample in range(100, 1000))


@pytest.mark.parametrize("ahead", [False, True])
def test_records_read_ahead_of_the_next_epoch(tmp_path: Path, dataset: PackedDataset, ahead: bool) -> None:
    """A record that is being read for the next epoch is not needed in that any more once it was read."""
    length = 3 * SIDE * SIDE
    with opened(dataset, tmp_path, bytes_for([length] * COUNT, 1)) as tier:
        tier.store(1, b"x" * length)
        masks, levels = np.zeros(COUNT, np.uint16), np.full(COUNT, 5, np.uint16)
        masks[1], masks[2] = 0b100, 0b1010  # needed in 2 epochs; in 1 and in 3
        tier.set_order(0, masks, levels)
        tier.move(0, 100, ahead)
        tier.store(2, b"x" * length)
        assert (tier.find(2, length) is None) == ahead


def test_levels_are_those_of_the_batches() -> None:
    for world, ranks in ((1, range(1)), (4, range(4)), (4, range(1, 3)), (8, range(6, 8))):
        sampler = Sampler(ShuffledOrder(COUNT, 3), Partition(BATCH, ranks.start, world, drop_last=True))
        levels = use_levels(sampler, 2, ranks, COUNT, lambda: False)
        assert levels is not None
        seen = np.zeros(COUNT, bool)
        for rank in ranks:
            part = Partition(BATCH, rank, world, drop_last=True)
            of_rank = Sampler(ShuffledOrder(COUNT, 3), part)
            for step in range(of_rank.num_batches(2)):
                ids = of_rank.batch(2, 0, step).ids
                seen[ids] = True
                positions = part.positions(COUNT, 0, step)
                assert (levels[ids] == level_of(positions, COUNT)).all()
        assert ((levels != NOT_NEEDED) == seen).all()
        assert needs_all(sampler, ranks, COUNT) == (len(ranks) == world)
    assert use_levels(sampler, 2, ranks, COUNT, lambda: True) is None
