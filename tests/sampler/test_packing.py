"""PackingSampler: packs within their bounds, every sample once, the same on any ranks and after a resume."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from drawn_lengths import long, usual
from packing_reference import best_fit, first_fit, next_fit, shares

from fastload import PackingSampler
from fastload._native import _C
from fastload.sampler import Partition, make_sampler
from fastload.sampler.order import derived_seed, round_keys, shuffled
from fastload.sampler.packs import WINDOW, PackBatches, PackedOrder, share
from fastload.sampler.sampler import MappedSampler
from fastload.sampler.upcoming import NOT_NEEDED, use_levels

SEED, COUNT = 7, 10_000  # three windows
TOKENS = 8192
MANY = 32 * TOKENS  # fewer packs, which the slow reference looks through


def batches_of(
    given: PackingSampler, rank: int = 0, world: int = 1, size: int = 16, **more: Any
) -> PackBatches:
    partition = Partition(size, rank, world, **more)
    made = make_sampler(given._length, partition, shuffle=False, seed=SEED, sampler=given)
    assert isinstance(made, PackBatches)
    return made


def packs_of(of: PackBatches, epoch: int, start: int, step: int) -> list[list[int]]:
    """The packs of a batch, by what a consumer has: ids, and offsets."""
    ids, offsets = of.batch(epoch, start, step).ids.tolist(), of.offsets(epoch, start, step).tolist()
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    return [ids[begin:end] for begin, end in pairwise(offsets)]


def run_of(of: PackBatches, epoch: int = 0, start: int = 0) -> list[list[list[int]]]:
    return [packs_of(of, epoch, start, step) for step in range(of.num_batches(epoch, start))]


def as_set(packs: Iterable[list[int]]) -> list[list[int]]:
    return sorted(pack for pack in packs if pack != [-1])


def flat(packs: Iterable[Iterable[Any]]) -> list[Any]:
    return [one for pack in packs for one in pack]


# ---- The core against the reference ----


def drawn_window(rng: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    bounds, count = int(rng.integers(1, 4)), int(rng.integers(0, 130))
    most = rng.integers(1, 60, bounds).tolist()
    few = rng.random(bounds) < 0.4  # amounts that seldom bound a pack, and often are equal
    amounts = [
        np.minimum(rng.integers(0, 4, count), limit) if is_few else rng.integers(0, limit + 1, count)
        for is_few, limit in zip(few, most, strict=True)
    ]
    return np.stack(amounts).astype(np.int32), most


def test_windows_are_those_of_the_reference() -> None:
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(120):
        amounts, most = drawn_window(rng)
        members, ends = _C.pack_window(amounts, most)
        found = [part.tolist() for part in np.split(members, ends[:-1])] if len(ends) else []
        assert found == best_fit(amounts.tolist(), most)
        several += any(len(pack) > 2 for pack in found)
    assert several > 30
    lengths = usual(WINDOW).tokens.astype(np.int32)[None]
    members, ends = _C.pack_window(lengths, [MANY])
    assert [part.tolist() for part in np.split(members, ends[:-1])] == best_fit(lengths.tolist(), [MANY])


@pytest.mark.parametrize("count", [65_537, 70_001, 131_072])
def test_counts_are_those_of_the_windows_of_the_shuffle(count: int) -> None:
    lengths = usual(count).tokens.astype(np.int32)[None]
    windows = -(-count // WINDOW)
    for keys in (round_keys(count, SEED, 3), None):
        positions = np.arange(count)
        ids = positions if keys is None else shuffled(positions, count, SEED, 3)
        counts, largest = _C.count_packs(lengths, [TOKENS], keys, 0, windows)
        for window in range(windows):
            here = np.ascontiguousarray(lengths[:, ids[window * WINDOW : (window + 1) * WINDOW]])
            _, ends = _C.pack_window(here, [TOKENS])
            assert counts[window] == len(ends)
            assert largest[window] == np.diff(ends, prepend=0).max()


def test_what_the_core_refuses() -> None:
    lengths = np.array([[5, 6, -1]], np.int32)
    with pytest.raises(ValueError, match=r"from 0 to 10. Found: -1, number 2 of its window"):
        _C.pack_window(lengths, [10])
    with pytest.raises(ValueError, match="from 0 to 5. Found: 6, number 1"):
        _C.pack_window(lengths, [5])
    with pytest.raises(ValueError, match="one to three bounds"):
        _C.pack_window(lengths, [10, 10])
    with pytest.raises(ValueError, match="A window has at most 4096 samples. Found: 4097"):
        _C.pack_window(np.ones((1, 4097), np.int32), [10])
    with pytest.raises(ValueError, match="Windows must be from 0 to 1. Found: 0 to 2"):
        _C.count_packs(lengths, [10], None, 0, 2)


def test_ranks_share_as_the_reference_does() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        ranks = int(rng.integers(1, 9))
        rooms = rng.integers(0, 5, ranks).tolist()
        costs = rng.integers(0, 12, sum(rooms)).tolist()
        assert share(costs, rooms) == shares(costs, rooms)


# ---- An epoch ----


@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_is_the_packs_of_its_windows(shuffle: bool) -> None:
    lengths = usual(COUNT).tokens
    of = batches_of(PackingSampler(lengths, MANY, shuffle=shuffle))
    found = flat(run_of(of, 2))
    wanted: list[list[int]] = []
    ids = shuffled(np.arange(COUNT), COUNT, SEED, 2) if shuffle else np.arange(COUNT)
    for window, begin in enumerate(range(0, COUNT, WINDOW)):
        here = ids[begin : begin + WINDOW]
        packs = [here[pack].tolist() for pack in best_fit([lengths[here].tolist()], [MANY])]
        order = np.arange(len(packs))
        if shuffle:
            order = shuffled(order, len(packs), derived_seed(SEED, 1 + window), 2)
        wanted += [packs[number] for number in order]
    assert found == wanted
    assert sorted(flat(found)) == list(range(COUNT))
    assert of.total(2) == len(wanted)
    assert of.num_batches(2) == -(-len(wanted) // 16)
    assert (run_of(of, 3)[0] == run_of(of, 2)[0]) is not shuffle


def test_packs_hold_every_bound() -> None:
    lengths = usual(COUNT)
    limits = {"pictures": (lengths.pictures, 12), "patches": (lengths.of_pictures * 4, 16_384)}
    given = PackingSampler(lengths.tokens, TOKENS, limits=limits, long="skip")
    packs = flat(run_of(batches_of(given)))
    assert sorted(flat(packs)) == np.flatnonzero(lengths.of_pictures * 4 <= 16_384).tolist()
    assert given.skipped == COUNT - len(given) > 0
    most = [[int(one[pack].sum()) for pack in packs] for one in lengths]
    assert max(most[0]) <= TOKENS
    assert max(most[2]) == 12
    assert max(most[1]) <= 4096
    alone = flat(run_of(batches_of(PackingSampler(lengths.tokens, TOKENS))))
    assert max(int(lengths.pictures[pack].sum()) for pack in alone) > 12


def test_packs_are_full() -> None:
    for drawn, least in ((usual, 0.998), (long, 0.995)):
        lengths = drawn(40_000).tokens
        given = PackingSampler(lengths, TOKENS, long="skip")
        kept = lengths[lengths <= TOKENS]
        assert (len(kept) < len(lengths)) is (drawn is long)
        packs = PackedOrder(given, SEED).packs(0)
        assert kept.sum() / (packs * TOKENS) >= least
        shuffle = kept[shuffled(np.arange(len(kept)), len(kept), SEED, 0)].tolist()
        assert packs < first_fit(shuffle, TOKENS, 8, False) < next_fit(shuffle, TOKENS)


def test_ranks_wait_little_for_each_other() -> None:
    lengths = usual(24_000)
    given = PackingSampler(lengths.tokens, TOKENS, costs=lengths.of_pictures)
    ranks = [batches_of(given, rank, 4, 4) for rank in range(4)]
    steps = ranks[0].num_batches(0) - 1
    loads = np.array(
        [[lengths.of_pictures[of.batch(0, 0, step).ids].sum() for of in ranks] for step in range(steps)]
    )
    one = batches_of(given, size=16)
    costs = [
        [int(lengths.of_pictures[pack].sum()) for pack in packs_of(one, 0, 0, step)] for step in range(steps)
    ]
    naive = np.array(costs).reshape(steps, 4, 4).sum(2)
    idle = [float(np.mean(1 - each.mean(1) / each.max(1))) for each in (loads, naive)]
    assert idle[0] <= 0.06 < idle[1]


# ---- Ranks ----


@pytest.mark.parametrize("padding", ["mark", "repeat", "end", "drop"])
def test_ranks_share_the_same_global_batches(padding: str) -> None:
    given = PackingSampler(usual(COUNT).tokens, TOKENS)
    whole = run_of(batches_of(given), 1)
    assert len(whole[-1]) % 8  # the last one does not divide
    for world in (2, 4, 8):
        ranks = [batches_of(given, rank, world, 16 // world, padding=padding) for rank in range(world)]
        runs = [run_of(of, 1) for of in ranks]
        assert {len(run) for run in runs} == {len(whole)}
        for step, packs in enumerate(whole):
            parts = [run[step] for run in runs]
            joined = as_set(flat(parts))
            is_last = step == len(whole) - 1
            if padding == "repeat" and is_last:
                assert {*map(tuple, joined)} >= {*map(tuple, packs)}
            else:
                assert joined == as_set(packs)
            sizes = {len(part) for part in parts}
            assert len(sizes) == 1 or (padding == "drop" and is_last)
        if padding == "mark":
            assert all(pack == [-1] or -1 not in pack for run in runs for step in run for pack in step)


def test_dropped_rests() -> None:
    given = PackingSampler(usual(COUNT).tokens, TOKENS)
    of = batches_of(given, drop_last=True)
    assert of.num_batches(0) == of.total(0) // 16
    assert {len(packs) for packs in run_of(of)} == {16}
    assert not of.has_batch(0, 0, of.num_batches(0))
    assert len(of) == len(flat(flat(run_of(of)))) < COUNT
    assert len(batches_of(given)) == COUNT


def test_going_on_at_drawn_steps_on_other_ranks() -> None:
    given = PackingSampler(usual(COUNT).tokens, TOKENS)
    whole = run_of(batches_of(given), 1)
    rng = np.random.default_rng(2)
    for world in (1, 2, 4, 8):
        steps = rng.choice(len(whole), 2, replace=False).tolist()
        for done in [*steps, len(whole)]:
            again = PackingSampler(usual(COUNT).tokens, TOKENS)
            ranks = [batches_of(again, rank, world, 16 // world) for rank in range(world)]
            start = ranks[0].consumed(1, 0, done)
            assert start == min(done * 16, ranks[0].total(1))
            runs = [run_of(of, 1, start) for of in ranks]
            assert {len(run) for run in runs} == {len(whole) - done}
            for step, packs in enumerate(whole[done:]):
                assert as_set(flat(run[step] for run in runs)) == as_set(packs)


def test_windows_are_counted_as_far_as_a_step_needs() -> None:
    given = PackingSampler(usual(40 * WINDOW).tokens, TOKENS)
    of = batches_of(given)
    order = of.order
    assert isinstance(order, PackedOrder)
    assert of.has_batch(0, 0, 0)
    assert of.consumed(0, 0, 1) == 16
    of.batch(0, 0, 0)
    known = order._known(0)[0].ends
    assert len(known) == 8  # of 40 windows
    total = of.total(0)
    assert len(order._known(0)[0].ends) == 40
    assert order._known(0)[0].ends[:8].tolist() == known.tolist()
    assert of.reached(0, total + 100) == total
    assert of.reached(0, 5) == 5
    assert of.reached(0, 0) == 0
    assert of.has_batch(0, 0, of.num_batches(0) - 1)
    assert not of.has_batch(0, 0, of.num_batches(0))
    packs = [len(pack) for step in range(30) for pack in packs_of(of, 0, 0, step)]
    assert max(packs) <= order.largest(0)
    assert of.most(0) == 16 * order.largest(0)
    assert abs(of.typical - 16 * np.mean(packs)) < 8


def test_a_disk_tier_is_told_when_samples_are_needed() -> None:
    given = PackingSampler(usual(COUNT).tokens, TOKENS)
    whole = batches_of(given)
    levels = use_levels(whole, 0, range(1), COUNT, lambda: False)
    assert levels is not None
    assert (levels != NOT_NEEDED).all()
    first = flat(packs_of(whole, 0, 0, 0))
    assert levels[first].max() < np.delete(levels, first).min()
    ranks = [batches_of(given, rank, 2, 8) for rank in range(2)]
    of_first = use_levels(ranks[0], 0, range(1), COUNT, lambda: False)
    assert of_first is not None
    for step in range(ranks[0].num_batches(0) - 1):
        assert (of_first[ranks[0].batch(0, 0, step).ids] != NOT_NEEDED).all()
        assert (of_first[ranks[1].batch(0, 0, step).ids] == NOT_NEEDED).all()
    ids = np.arange(COUNT)[::-1] + 5
    mapped: Any = MappedSampler(whole, ids, False)
    moved = use_levels(mapped, 0, range(1), COUNT + 5, lambda: False)
    assert moved is not None
    assert moved[ids].tolist() == levels.tolist()
    assert mapped.offsets(0, 0, 0).tolist() == whole.offsets(0, 0, 0).tolist()


# ---- The sampler's arguments, words and state ----


def test_what_it_prints() -> None:
    lengths = np.append(usual(COUNT).tokens, [8193, 9000])
    given = PackingSampler(lengths, TOKENS, long="skip")
    packs = PackedOrder(given, 0).packs(0)
    wanted = f"10,000 samples in {packs:,} packs of 8,192 tokens, 99.{{}}% full, 2 longer left out"
    assert str(given) in [wanted.format(tenth) + " (epoch 0 of seed 0)" for tenth in range(10)]
    of = batches_of(given)
    of.order.begin(3)  # type: ignore[attr-defined]
    assert str(given).endswith("(epoch 3 of seed 7)")
    assert str(PackingSampler([3, 4, 5], 7, shuffle=False)) == "3 samples in 2 packs of 7 tokens, 85.7% full"
    assert repr(given) == "PackingSampler(10002 samples, tokens=8192, shuffle=True)"
    again = pickle.loads(pickle.dumps(given))
    assert again.digest == given.digest
    assert run_of(batches_of(again)) == run_of(batches_of(given))


def test_the_digest_names_lengths_and_bounds() -> None:
    lengths, one = [3, 4, 5], np.ones(3, int)
    whole = PackingSampler(lengths, 9)
    assert PackingSampler(np.array(lengths, np.uint8), 9, costs=[1, 2, 3]).digest == whole.digest
    others = [
        PackingSampler([3, 5, 4], 9),
        PackingSampler(lengths, 8),
        PackingSampler(lengths, 9, limits={"pictures": (one, 2)}),
        PackingSampler(lengths, 9, limits={"pictures": (one, 3)}),
        PackingSampler(lengths, 9, limits={"patches": (one, 3)}),
        PackingSampler(lengths, 9, limits={"pictures": (2 * one, 3)}),
    ]
    assert len({whole.digest, *(other.digest for other in others)}) == 7
    with_costs = PackingSampler(lengths, 9, costs=[1, 2, 3])
    assert batches_of(with_costs).order.agreed != batches_of(whole).order.agreed  # type: ignore[attr-defined]


def test_how_a_state_of_another_order_differs() -> None:
    lengths = usual(500).tokens
    saved = batches_of(PackingSampler(lengths, TOKENS), size=4, world=4).order.in_state  # type: ignore[attr-defined]
    assert len(json.dumps(saved)) < 200

    def said(of: PackBatches) -> str:
        return str(of.differs(saved))

    for world in (1, 2, 8):
        same = batches_of(PackingSampler(lengths, TOKENS), size=16 // world, world=world)
        assert same.order.in_state == saved  # type: ignore[attr-defined]
    fewer = batches_of(PackingSampler(lengths, TOKENS), size=4, world=2)
    assert said(fewer) == ""  # positions are numbers of packs
    assert "packs had 8192 tokens, now 4200" in said(batches_of(PackingSampler(lengths, 4200, long="skip")))
    assert "the lengths or limits of PackingSampler have changed" in said(
        batches_of(PackingSampler(lengths + 1, TOKENS, long="skip"), size=16)
    )
    unshuffled = batches_of(PackingSampler(lengths, TOKENS, shuffle=False), size=16)
    assert "PackingSampler.shuffle was True, is False" in said(unshuffled)
    assert fewer.differs(True) is None
    assert fewer.differs("buckets:2:4:True") is None


ONE = {"lengths": [4, 4]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lengths": [4, 0, 5, -2]},
            r">= 1. Found: 2 samples with less, the first: 1 \(0\), 3 \(-2\)",
        ),
        (
            {"lengths": [4, 11, 5, 12]},
            r"2 samples with more than 10 tokens; .* are 1 \(11\), 3 \(12\)",
        ),
        ({"lengths": [11, 12], "long": "skip"}, "a pack of 10 tokens: the shortest of 2 has 11 tokens"),
        ({**ONE, "long": "cut"}, "must be 'raise' or 'skip'. Found: 'cut'"),
        ({**ONE, "tokens": 0}, "tokens must be from 1 to 2147483647 a pack. Found: 0"),
        ({**ONE, "tokens": 2**31}, "Found: 2147483648"),
        ({**ONE, "limits": {"pictures": ([1, 3], 2)}}, r"1 sample with more than 2 pictures; .* 1 \(4, 3\)"),
        ({**ONE, "limits": {"pictures": ([1], 2)}}, r"limits\['pictures'\] must have 2 numbers.* Found: 1"),
        ({**ONE, "limits": {"pictures": ([1, -1], 2)}}, r"must be >= 0. Found: 1 sample with less"),
        ({**ONE, "limits": dict.fromkeys("abc", ([1, 1], 2))}, "at most 2, beside tokens. Found: 3, a, b, c"),
        ({**ONE, "costs": [1, -1]}, "costs must be >= 0"),
        ({**ONE, "costs": [1]}, "costs must have 2 numbers"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PackingSampler(**{"tokens": 10, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lengths": [1.5, 2]}, "must be integers of shape .*Found: list of float64"),
        ({"lengths": [[1, 2]]}, r"Found: list of int64 and shape \(1, 2\)"),
        ({"lengths": []}, "one for each sample"),
        ({"lengths": [4], "tokens": True}, "bounded by an integer. Found: True"),
        ({"lengths": [4], "limits": {"pictures": [1]}}, "a dict of pairs"),
        ({"lengths": [4], "limits": [("pictures", ([1], 2))]}, "a dict of pairs"),
        ({"lengths": [4], "costs": [0.5]}, "costs must be integers"),
    ],
)
def test_other_types_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        PackingSampler(**{"tokens": 10, **given})


def test_lengths_of_another_dataset_are_refused() -> None:
    with pytest.raises(ValueError, match="the lengths of 5 samples, those of the dataset. Found: 3"):
        make_sampler(5, Partition(2), shuffle=False, seed=0, sampler=PackingSampler([1, 2, 3], 9))
