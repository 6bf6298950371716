"""RepeatedSampler against DeiT's RASampler; copies drawn anew, on different ranks; resumed; errors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_pack import plain_pack

import fastload
from fastload import DataLoader, Ranks, RepeatedSampler
from fastload import transforms as T
from fastload.sampler import Partition, Sampler, make_sampler


def build(
    sampler: RepeatedSampler, n: int, world: int = 1, rank: int = 0, batch: int = 4, **options: Any
) -> Sampler:
    partition = Partition(batch, rank, world, **options)
    return make_sampler(n, partition, shuffle=False, seed=3, sampler=sampler)


def batches(sampler: Sampler, epoch: int = 0, start: int = 0) -> list[list[int]]:
    steps = range(sampler.num_batches(epoch, start))
    return [sampler.batch(epoch, start, step).ids.tolist() for step in steps]


def rasampler(order: list[int], repeats: int, rank: int, world: int) -> list[int]:
    """``RASampler.__iter__`` of DeiT's samplers.py, behind its shuffle."""
    indices = [sample for sample in order for _ in range(repeats)]
    total_size = math.ceil(len(order) * repeats / world) * world
    indices += indices[: total_size - len(indices)]
    return indices[rank:total_size:world][: math.floor(len(order) // 256 * 256 / world)]


@pytest.mark.parametrize("repeats", [1, 2, 3, 4])
@pytest.mark.parametrize("world", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [256, 700, 1024])
def test_ranks_get_what_deits_sampler_gives_them(n: int, world: int, repeats: int) -> None:
    whole = build(RepeatedSampler(1, num_samples=n), n, batch=n)
    for epoch in (0, 1):
        order = whole.batch(epoch, 0, 0).ids.tolist()
        assert sorted(order) == list(range(n))
        for rank in range(world):
            sampler = build(RepeatedSampler(repeats), n, world, rank, batch=8)
            found = [sample for batch in batches(sampler, epoch) for sample in batch]
            assert found == rasampler(order, repeats, rank, world)


@pytest.mark.parametrize("total", [96, 97, 101, 30])
def test_global_batches_are_the_same_for_any_number_of_ranks(total: int) -> None:
    made = RepeatedSampler(3, num_samples=total)
    wanted = batches(build(made, 100, batch=12))
    for world in (2, 3, 4, 6):
        ranks = [batches(build(made, 100, world, rank, 12 // world)) for rank in range(world)]
        assert len({len(one) for one in ranks}) == 1
        for step, whole in enumerate(wanted):
            parts = [rank[step] for rank in ranks]
            assert len({len(part) for part in parts}) == 1
            joined = [sample for turn in zip(*parts, strict=True) for sample in turn]
            assert [sample for sample in joined if sample >= 0] == whole
            assert abs(max(part.count(-1) for part in parts) - min(part.count(-1) for part in parts)) <= 1


def test_copies_of_a_sample_are_on_different_ranks_and_draw_apart() -> None:
    ranks = [build(RepeatedSampler(3), 300, 3, rank).batch(0, 0, 0) for rank in range(3)]
    ids = np.stack([rank.ids for rank in ranks])
    assert (ids == ids[0]).all()
    draws = np.stack([rank.draws for rank in ranks])
    assert len(np.unique(draws)) == draws.size


@pytest.mark.parametrize("padding", ["repeat", "drop", "end"])
def test_the_last_batch_of_an_epoch(padding: str) -> None:
    parts = [
        batches(build(RepeatedSampler(2, False, 11), 9, 2, rank, 4, padding=padding))[-1] for rank in (0, 1)
    ]
    ends = {"repeat": [[4, 5], [4, 0]], "drop": [[4, 5], [4]], "end": [[4, 5], [4, -1]]}
    assert parts == ends[padding]


def test_resumed_anywhere() -> None:
    sampler = build(RepeatedSampler(3), 512)
    whole = batches(sampler, 4)
    for steps in (1, 7, 100):
        assert batches(sampler, 4, sampler.consumed(4, 0, steps)) == whole[steps:]


def test_a_loaders_copies_are_cropped_anew(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8)
    data = plain_pack(tmp_path, [p.tobytes() for p in pixels], range(20), raw_size=(16, 16))
    options: dict[str, Any] = {"transform": T.RandomResizedCrop(8), "seed": 1, "num_workers": 2}
    with DataLoader(data, 10, sampler=RepeatedSampler(2), **options) as loader:
        found = [(images.clone(), labels.clone()) for images, labels in loader]
        assert [len(labels) for _, labels in found] == [10, 10]
        state = loader.state_dict()
    for images, labels in found:
        assert torch.equal(labels[::2], labels[1::2])
        assert not any(torch.equal(a, b) for a, b in zip(images[::2], images[1::2], strict=True))
    halves = []
    for rank in (0, 1):
        with DataLoader(
            data, 5, sampler=RepeatedSampler(2), ranks=Ranks(rank, 2, handshake="off"), **options
        ) as loader:
            halves.append([(images.clone(), labels.clone()) for images, labels in loader])
    for step, (images, labels) in enumerate(found):
        for rank in (0, 1):
            assert torch.equal(halves[rank][step][0], images[rank::2])
            assert torch.equal(halves[rank][step][1], labels[rank::2])
    assert state["position"] in (0, 20)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: RepeatedSampler(0), ValueError, "num_repeats must be >= 1. Found: 0"),
        (lambda: RepeatedSampler(2.5), TypeError, "num_repeats must be an integer. Found: 2.5"),  # type: ignore[arg-type]
        (lambda: RepeatedSampler(2, num_samples=0), ValueError, "num_samples must be >= 1. Found: 0"),
        (
            lambda: build(RepeatedSampler(2, num_samples=21), 10),
            ValueError,
            "num_samples must be at most 20, 2 times each of 10 samples. Found: 21",
        ),
    ],
)
def test_arguments_are_checked(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()
    assert repr(fastload.RepeatedSampler(3)) == "RepeatedSampler(3, shuffle=True)"
