"""Any torch Dataset: its Python code in torch's workers; order, ranks and state as for packed data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from epochs import all_batches, joined, same
from torch.utils.data import Dataset, IterableDataset

from fastload import DataLoader


class Squares(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 37

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([float(i * i)]), i


def load(**options: Any) -> DataLoader:
    return DataLoader(Squares(), **{"batch_size": 4, "shuffle": True, "seed": 5, **options})


@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_once_an_epoch_in_an_order_of_its_own(workers: int) -> None:
    loader = load(num_workers=workers)
    first, second = all_batches(loader), all_batches(loader)
    assert len(loader) == len(first) == 10
    for batches in (first, second):
        assert sorted(torch.cat([y for _, y in batches]).tolist()) == list(range(37))
    assert not same(first, second)
    assert same(first, all_batches(load()))


def test_resume_from_every_step_and_on_other_ranks() -> None:
    loader = load(drop_last=True)
    states, batches = [loader.state_dict()], []
    for x, y in loader:
        batches.append((x, y))
        states.append(loader.state_dict())
    for step, state in enumerate(states):
        resumed = load(drop_last=True)
        resumed.load_state_dict(state)
        assert same(all_batches(resumed), batches[step:])
        ranks = [load(drop_last=True, batch_size=2, rank=r, world_size=2) for r in range(2)]
        for rank in ranks:
            rank.load_state_dict(state)
        assert same(joined([all_batches(rank) for rank in ranks]), batches[step:])


def test_break_and_go_on() -> None:
    loader = load(num_workers=2, persistent_workers=True)
    for _ in loader:
        break
    assert len(all_batches(loader)) == 10


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def test_an_iterable_dataset_keeps_its_order_and_resumes() -> None:
    loader = DataLoader(Stream(), batch_size=4)
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    state = loader.state_dict()
    assert [batch.tolist() for batch in iterator] == [[4, 5, 6, 7], [8, 9]]
    resumed = DataLoader(Stream(), batch_size=4)
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == [[4, 5, 6, 7], [8, 9]]
    assert next(iter(resumed)).tolist() == [0, 1, 2, 3]


def test_packed_options_are_refused() -> None:
    with pytest.raises(ValueError, match="fastload pack"):
        load(on_error="skip")
    with pytest.raises(ValueError, match="packed datasets"):
        load().memory_plan()
