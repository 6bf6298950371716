"""User samplers: asked once an epoch, deterministic, divided among ranks, resumable."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile

import pytest
import torch
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch.utils.data import WeightedRandomSampler as Weighted

from fastload.sampler import Partition, Sampler, make_sampler


def build(sampler: object = None, batch_sampler: object = None, n: int = 20, **options: int) -> Sampler:
    partition = Partition(4, options.get("rank", 0), options.get("world", 1))
    return make_sampler(n, partition, shuffle=False, seed=3, sampler=sampler, batch_sampler=batch_sampler)


def ids(sampler: Sampler, epoch: int = 0, start: int = 0) -> list[int]:
    steps = takewhile(lambda step: sampler.has_batch(epoch, start, step), count())
    return [int(i) for step in steps for i in sampler.batch(epoch, start, step).ids]


def test_a_weighted_sampler_is_the_same_whatever_the_global_random_state() -> None:
    sampler = build(Weighted([1.0] * 20, 16))
    first = ids(sampler)
    torch.rand(7)
    assert ids(build(Weighted([1.0] * 20, 16))) == first
    assert ids(sampler, 1) != first
    draws = sampler.batch(0, 0, 1).draws
    assert draws is not None
    assert draws.tolist() == [4, 5, 6, 7]


def test_asking_a_sampler_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ids(build(RandomSampler(range(20))))
    assert torch.equal(torch.rand(3), expected)


def test_a_samplers_own_generator_is_seeded_for_the_epoch() -> None:
    def make(seed: int) -> Sampler:
        return build(RandomSampler(range(20), generator=torch.Generator().manual_seed(seed)))

    assert ids(make(1), 2) == ids(make(1), 2)
    assert ids(make(1), 2) != ids(make(2), 2)


def test_ranks_share_a_global_sampler() -> None:
    whole = ids(build(SubsetRandomSampler(range(5, 21 - 1))))
    parts = [build(SubsetRandomSampler(range(5, 20)), rank=r, world=2) for r in range(2)]
    joined: list[int] = []
    for step in range(parts[0].num_batches(0)):
        for part in parts:
            joined += [int(i) for i in part.batch(0, 0, step).ids]
    assert [i for i in joined if i >= 0] == whole


def test_a_distributed_sampler_is_not_divided_again() -> None:
    own = DistributedSampler(range(20), num_replicas=2, rank=1, shuffle=False)
    sampler = build(own, rank=1, world=2)
    assert ids(sampler) == list(range(1, 20, 2))


def test_set_epoch_reaches_the_users_sampler() -> None:
    own = DistributedSampler(range(20), num_replicas=2, rank=0, shuffle=True, seed=1)
    sampler = build(own)
    own.set_epoch(3)
    expected = list(own)
    assert ids(sampler, 3) == expected


def test_batch_sampler() -> None:
    own = TorchBatchSampler(SequentialSampler(range(10)), 3, drop_last=False)
    sampler = build(batch_sampler=own)
    assert [sampler.batch(0, 0, k).ids.tolist() for k in range(4)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert len(sampler) == 10
    assert sampler.consumed(0, 0, 2) == 2
    assert sampler.batch(0, 2, 0).ids.tolist() == [6, 7, 8]


def test_batch_sampler_gives_every_rank_the_same_number_of_batches() -> None:
    own = TorchBatchSampler(SequentialSampler(range(10)), 3, drop_last=False)
    ranks = [build(batch_sampler=own, rank=r, world=3) for r in range(3)]
    assert {rank.num_batches(0) for rank in ranks} == {2}
    assert ranks[0].batch(0, 0, 1).ids.tolist() == [9]
    assert ranks[1].batch(0, 0, 1).ids.tolist() == [0, 1, 2]


class OneTooFar:
    def __iter__(self) -> Iterator[int]:
        yield from (0, 20)


def test_ids_outside_the_dataset_are_refused() -> None:
    with pytest.raises(IndexError, match=r"sample id 20; legal are 0 to 19"):
        ids(build(OneTooFar()))


def test_exclusive_arguments() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        make_sampler(3, Partition(1), shuffle=True, seed=0, sampler=[0])
    with pytest.raises(ValueError, match="exclude each other"):
        make_sampler(3, Partition(1), shuffle=False, seed=0, sampler=[0], batch_sampler=[[0]])


def test_length_and_iteration_are_this_ranks() -> None:
    sampler = make_sampler(21, Partition(4, 1, 2), shuffle=True, seed=0)
    listed = list(sampler)
    assert len(listed) == len(sampler) == 11
    sampler.set_epoch(1)
    assert list(sampler) != listed


def test_negative_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="epoch must be >= 0. Found: -1"):
        build().set_epoch(-1)


def test_padding_has_id_minus_one() -> None:
    """Nine samples, two ranks of four: the ninth is rank 1's, rank 0's place is padded."""
    last = [
        make_sampler(9, Partition(4, r, 2), shuffle=False, seed=0).batch(0, 0, 1).ids.tolist() for r in (0, 1)
    ]
    assert last == [[-1], [8]]


@pytest.mark.parametrize("batched", [False, True])
def test_copies_of_a_sample_on_several_ranks_have_draws_of_their_own(batched: bool) -> None:
    """Repeated augmentation: rank 0 and rank 1 get the same ids, and crop them differently."""

    class Repeated:
        num_replicas = 2

        def __init__(self, rank: int) -> None:
            self.rank = rank

        def __iter__(self) -> Iterator[int]:
            return iter(range(8))

        def __len__(self) -> int:
            return 8

    pairs: list[tuple[int, int]] = []
    for rank in range(2):
        own = Repeated(rank)
        made = build(batch_sampler=TorchBatchSampler(own, 4, False)) if batched else build(own)
        for step in range(2):
            batch = made.batch(0, 0, step)
            assert batch.draws is not None
            pairs += zip(batch.ids.tolist(), batch.draws.tolist(), strict=True)
    assert sorted(sample for sample, _ in pairs) == sorted([*range(8), *range(8)])
    assert len(set(pairs)) == 16
