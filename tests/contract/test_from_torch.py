"""integrations.torch_loader: the engine gives what a torch DataLoader over packed data would give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchLoader

import fastload
from fastload.integrations.torch_loader import from_torch
from fastload.transforms import CenterCrop, Compose, Resize, ToDtype

CHAIN = Compose([Resize(32), CenterCrop(32), ToDtype("float32", scale=True)])


@pytest.fixture
def dataset(folder: Path) -> fastload.PackedDataset:
    found = fastload.PackedDataset(folder)
    found.transform = CHAIN
    return found


def keys(loader: Any, epochs: int = 1) -> list[list[float]]:
    """One number a picture, batch by batch."""
    return [images.sum((1, 2, 3)).tolist() for _ in range(epochs) for images, _ in loader]


def expected(folder: Path, ids: Any) -> list[list[float]]:
    """The same of listed batches."""
    return keys(fastload.DataLoader(folder, batch_sampler=list(ids), transform=CHAIN, seed=0))


def test_sequential(dataset: Any, folder: Path) -> None:
    made = TorchLoader(dataset, 8)
    ours = from_torch(made)
    assert type(ours) is fastload.DataLoader
    assert ours.batch_size == 8
    assert keys(ours) == expected(folder, made.batch_sampler)
    assert from_torch(ours) is ours


def test_shuffled_and_dropped(dataset: Any, folder: Path) -> None:
    ours = from_torch(TorchLoader(dataset, 8, shuffle=True, drop_last=True), seed=4)
    plain = fastload.DataLoader(folder, 8, shuffle=True, drop_last=True, transform=CHAIN, seed=4)
    found = keys(ours, 2)
    assert found == keys(plain, 2)
    assert [len(batch) for batch in found] == [8] * 12
    assert found[:6] != found[6:]


def test_a_distributed_sampler_gives_rank_and_order(dataset: Any, folder: Path) -> None:
    whole = [key for batch in keys(fastload.DataLoader(folder, 8, transform=CHAIN)) for key in batch]
    seen = []
    for rank in range(2):
        share = DistributedSampler(dataset, num_replicas=2, rank=rank, shuffle=True)
        alone = fastload.Ranks(rank, 2, handshake="off")
        ours = from_torch(TorchLoader(dataset, 8, sampler=share), seed=1, ranks=alone)
        seen += [key for batch in keys(ours) for key in batch]
    assert sorted(seen) == sorted(whole)
    assert seen != whole


class Share:
    """One rank's ids, in an order of its own."""

    rank, num_replicas = 1, 2

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count - 1, 0, -2))

    def __len__(self) -> int:
        return self.count // 2


def test_other_samplers_are_asked(dataset: Any, folder: Path) -> None:
    share = Share(len(dataset))
    assert keys(from_torch(TorchLoader(dataset, 8, sampler=share))) == expected(
        folder, BatchSampler(share, 8, False)
    )
    drawn = from_torch(
        TorchLoader(dataset, 8, sampler=WeightedRandomSampler([1.0] * len(dataset), 20)), seed=1
    )
    assert [len(batch) for batch in keys(drawn)] == [8, 8, 4]
    few = from_torch(TorchLoader(dataset, 8, sampler=RandomSampler(dataset, num_samples=12)), seed=1)
    assert [len(batch) for batch in keys(few)] == [8, 4]
    listed = [[3, 1], [2, 5, 0]]
    assert keys(from_torch(TorchLoader(dataset, batch_sampler=listed))) == expected(folder, listed)


def test_a_batch_sampler_that_never_ends(dataset: Any, folder: Path) -> None:
    """timm's MultiEpochsDataLoader, and others' of that kind, put one around torch's."""

    class _RepeatSampler:
        def __init__(self, sampler: Any) -> None:
            self.sampler = sampler

        def __iter__(self) -> Iterator[list[int]]:
            while True:
                yield from self.sampler

    made = TorchLoader(dataset, 8)
    object.__setattr__(made, "batch_sampler", _RepeatSampler(made.batch_sampler))
    assert keys(from_torch(made)) == keys(from_torch(TorchLoader(dataset, 8)))


def test_collate_fn_and_options(dataset: Any) -> None:
    def first(samples: list[Any]) -> int:
        return len(samples)

    made = TorchLoader(dataset, 8, collate_fn=first, generator=torch.Generator().manual_seed(3))
    assert list(from_torch(made)) == [8] * 6 + [4]
    assert from_torch(made, batch_size=4).batch_size == 4
    assert from_torch(made).generator is made.generator


def test_a_torch_dataset_stays_in_torchs_workers() -> None:
    made = TorchLoader(torch.arange(10.0), 4, sampler=SequentialSampler(range(10)))
    assert [batch.tolist() for batch in from_torch(made)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_what_is_no_torch_loader(dataset: Any) -> None:
    with pytest.raises(TypeError, match=r"from_torch takes a torch.utils.data.DataLoader\. Found: list\."):
        from_torch([1])
    with pytest.raises(ValueError, match=r"from_torch needs a loader of batches\. Found: batch_size=None\."):
        from_torch(TorchLoader(dataset, batch_size=None))
