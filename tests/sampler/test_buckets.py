"""BucketSampler: batches of one bucket, every sample once, the same on any ranks and after a resume."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from object_sets import object_set

import fastload
from fastload import BucketSampler, DataLoader, Ranks
from fastload.errors import StateError
from fastload.sampler import Partition, Sampler, make_sampler, order_name
from fastload.sampler.buckets import buckets_of

SIZES = [(32, 32), (24, 40), (40, 24), (16, 64)]
COUNT = 103


def pictures(count: int = COUNT) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.integers(10, 90, (count, 2))


def slow_bucket(height: int, width: int) -> int:
    distances = [abs(math.log(width / height) - math.log(w / h)) for h, w in SIZES]
    return distances.index(min(distances))


def sampler(rank: int = 0, world: int = 1, size: int = 6, shuffle: bool = True, **more: Any) -> Sampler:
    given = BucketSampler(pictures(), SIZES, shuffle)
    return make_sampler(COUNT, Partition(size, rank, world, **more), shuffle=False, seed=4, sampler=given)


def flat(lists: list[list[int]]) -> list[int]:
    return [one for part in lists for one in part]


def batches(of: Sampler, epoch: int = 0, start: int = 0) -> list[list[int]]:
    return [of.batch(epoch, start, step).ids.tolist() for step in range(of.num_batches(epoch, start))]


def test_the_bucket_is_the_nearest_by_the_ratios_logarithm() -> None:
    known = np.concatenate([pictures(), [[7, 7], [24, 40], [31, 31], [100, 400]]])
    wanted = [slow_bucket(height, width) for height, width in known.tolist()]
    assert buckets_of(known, SIZES).tolist() == wanted
    assert len(set(wanted)) == 4
    assert buckets_of(np.array([[10, 20]]), [(1, 1), (1, 4), (4, 16)]).tolist() == [0]  # of equals the first


@pytest.mark.parametrize("shuffle", [True, False])
def test_each_batch_is_of_one_bucket_and_each_sample_comes_once(shuffle: bool) -> None:
    buckets = [slow_bucket(*one) for one in pictures().tolist()]
    counts = Counter(buckets)
    for epoch in range(3):
        found = batches(sampler(shuffle=shuffle), epoch)
        assert sorted(flat(found)) == list(range(COUNT))
        assert len(found) == sum(-(-count // 6) for count in counts.values())
        kinds = [{buckets[one] for one in batch} for batch in found]
        assert {len(kind) for kind in kinds} == {1}
        smaller = Counter(min(kind) for kind, batch in zip(kinds, found, strict=True) if len(batch) < 6)
        assert smaller == {bucket: 1 for bucket, count in counts.items() if count % 6}
    first, second = batches(sampler(shuffle=shuffle), 0), batches(sampler(shuffle=shuffle), 1)
    assert (first == second) is not shuffle
    if not shuffle:
        assert flat(first) == sorted(range(COUNT), key=lambda one: (buckets[one], one))


@pytest.mark.parametrize("padding", ["mark", "repeat", "end"])
def test_ranks_share_the_same_global_batches(padding: str) -> None:
    whole = batches(sampler(size=6), 2)
    for world in (2, 3):
        ranks = [sampler(rank, world, 6 // world, padding=padding) for rank in range(world)]
        shares = [batches(one, 2) for one in ranks]
        assert len({len(share) for share in shares}) == 1
        for step, batch in enumerate(whole):
            parts = [share[step] for share in shares]
            assert len({len(part) for part in parts}) == 1  # the same number on all ranks
            joined = [one for part in parts for one in part if one >= 0]
            assert joined[: len(batch)] == batch
            assert set(joined) == set(batch)
        ends = np.cumsum([len(batch) for batch in whole])
        for step, batch in enumerate(whole):
            here = ranks[0].ranks_at(np.arange(ends[step] - len(batch), ends[step]), 2).tolist()
            owners = [rank for rank, share in enumerate(shares) for one in share[step] if one >= 0]
            assert here == owners[: len(batch)]


def test_positions_are_ids_and_going_on_in_the_middle_is_the_same() -> None:
    of = sampler()
    whole = batches(of, 1)
    assert of.ids_at(np.arange(COUNT), 1).tolist() == flat(whole)
    assert len(of) == COUNT
    for steps in range(len(whole) + 1):
        start = of.consumed(1, 0, steps)
        assert start == sum(map(len, whole[:steps]))
        assert batches(of, 1, start) == whole[steps:]
        assert of.consumed(1, start, 2) == sum(map(len, whole[: steps + 2]))
    assert of.reached(1, COUNT + 5) == COUNT
    assert 0 <= of.substitute(1, 2**63) < COUNT


def test_dropped_rests() -> None:
    counts = Counter(slow_bucket(*one) for one in pictures().tolist())
    of = sampler(drop_last=True)
    found = batches(of)
    assert {len(batch) for batch in found} == {6}
    assert len(found) == sum(count // 6 for count in counts.values())
    assert of.total(0) == of.reached(0, COUNT) == 6 * len(found)


def test_a_state_is_of_one_size_of_global_batches(tmp_path: Path) -> None:
    folder, _ = object_set(tmp_path / "set", 40)
    packed = fastload.PackedDataset(folder)
    given = BucketSampler(packed, [(50, 50), (60, 40)])
    options: dict[str, Any] = {"sampler": given, "seed": 1, "collate": "detr"}
    with DataLoader(packed, batch_size=4, **options) as loader:
        wanted = [[int(one["image_id"]) for one in batch["labels"]] for batch in loader]
    assert sorted(flat(wanted)) == [1000 + 7 * number for number in range(40)]
    with DataLoader(packed, batch_size=4, **options) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
    with DataLoader(packed, batch_size=4, **options) as loader:
        loader.load_state_dict(state)
        assert [[int(one["image_id"]) for one in batch["labels"]] for batch in loader] == wanted[3:]
    with DataLoader(packed, batch_size=2, ranks=Ranks(1, 2), **options) as loader:
        loader.load_state_dict(state)
    with (
        DataLoader(packed, batch_size=5, **options) as loader,
        pytest.raises(StateError, match="buckets:2:4"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((pictures(), []), "sizes must be one or more"),
        ((pictures(), [(3, 0)]), "sizes must be one or more"),
        ((np.array([[5, 5], [0, 0]]), SIZES), "The size of 1 picture is not known, the first is sample 1"),
    ],
)
def test_what_cannot_be_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BucketSampler(*given)


def test_arrays_of_other_shapes_and_lengths_are_refused() -> None:
    with pytest.raises(TypeError, match="of heights and widths. Found: list of shape"):
        BucketSampler([1, 2, 3], SIZES)
    with pytest.raises(ValueError, match="the size of 5 pictures, those of the dataset. Found: 103"):
        make_sampler(5, Partition(2), shuffle=False, seed=0, sampler=BucketSampler(pictures(), SIZES))
    with pytest.raises(ValueError, match="padding='drop' and BucketSampler exclude each other"):
        sampler(padding="drop")
    assert order_name(sampler().order, False) == "buckets:4:6:True"
