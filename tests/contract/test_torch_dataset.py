"""Any torch Dataset: its Python code in torch's workers; order, ranks and state as for packed data."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from epochs import all_batches, joined, same
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data.dataloader import DataLoader as TorchLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as torch_iterator
from torch.utils.data.datapipes.iter import IterableWrapper

from fastload import DataLoader, Ranks, errors


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
    assert len(batches) > 2
    for step, state in enumerate(states):
        resumed = load(drop_last=True)
        resumed.load_state_dict(state)
        assert same(all_batches(resumed), batches[step:])
        ranks = [load(drop_last=True, batch_size=2, ranks=Ranks(r, 2)) for r in range(2)]
        for rank in ranks:
            rank.load_state_dict(state)
        assert same(joined([all_batches(rank) for rank in ranks]), batches[step:])


def test_break_and_go_on() -> None:
    loader = load(num_workers=2, persistent_workers=True)
    for _ in loader:
        break
    assert len(all_batches(loader)) == 10


@pytest.mark.parametrize("answers", [0, 1])
def test_ctrl_c_while_an_epoch_of_persistent_workers_begins(
    monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    """torch's own loader takes the workers' answers, which come later, for batches of the next epochs."""
    loader = load(num_workers=2, persistent_workers=True, shuffle=False)
    assert len(all_batches(loader)) == 10
    wait, asked = torch_iterator._get_data, []

    def interrupted(iterator: Any) -> Any:
        asked.append(1)
        if len(asked) == answers + 1:
            raise KeyboardInterrupt
        return wait(iterator)

    with monkeypatch.context() as patch:
        patch.setattr(torch_iterator, "_get_data", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    for _ in range(3):
        assert torch.cat([y for _, y in all_batches(loader)]).tolist() == list(range(37))
    loader.close()


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


class Pairs(Dataset[tuple[torch.Tensor, int]]):
    """Takes anything for a key, has no length."""

    def __getitem__(self, key: Any) -> Any:
        return [f"<{i}>" for i in key] if isinstance(key, list) else f"<{key}>"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_may_give_whatever_the_dataset_takes(workers: int) -> None:
    words = ["b", "a", ("c", 1), -1]
    loader = DataLoader(Pairs(), batch_size=3, sampler=words, num_workers=workers)  # type: ignore[arg-type]
    expected = TorchLoader(Pairs(), batch_size=3, sampler=words, num_workers=workers)  # type: ignore[arg-type]
    assert list(loader) == list(expected) == [["<b>", "<a>", "<('c', 1)>"], ["<-1>"]]
    assert len(loader) == 2
    batches = [["x"], ["y", "z"]]
    assert list(DataLoader(Pairs(), batch_sampler=batches, num_workers=workers)) == list(
        TorchLoader(Pairs(), batch_sampler=batches, num_workers=workers)  # type: ignore[arg-type]
    )


def collated(sample: Any) -> Any:
    return "collated", sample


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Squares(), {}),
        (Squares(), {"collate_fn": collated}),
        (Squares(), {"sampler": [3, 1, 2]}),
        (Pairs(), {"sampler": [[3, 1], [2]]}),
        ([{"a": [1, 2.5], "b": "text"}, {"a": [], "b": "x"}], {}),
        (Stream(), {}),
        (Stream(), {"collate_fn": collated}),
    ],
)
def test_without_batches_samples_come_one_by_one_as_from_torch(
    dataset: Any, options: dict[str, Any], workers: int
) -> None:
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, **options)
    expected = TorchLoader(dataset, batch_size=None, num_workers=workers, **options)
    assert (loader.batch_size, loader.batch_sampler) == (None, None)
    assert loader.collate_fn == expected.collate_fn
    found, wanted = list(loader), list(expected)
    if isinstance(dataset, Stream) and workers:
        found, wanted = sorted(found), sorted(wanted)
    assert repr(found) == repr(wanted)


def test_without_batches_states_and_ranks_hold() -> None:
    options = {"batch_size": None, "shuffle": True, "seed": 2}
    loader = DataLoader(Squares(), **options)
    assert len(loader) == 37
    samples, states = [], [loader.state_dict()]
    for _, label in loader:
        samples.append(label)
        states.append(loader.state_dict())
    assert sorted(samples) == list(range(37))
    for step in (0, 5, 36, 37):
        resumed = DataLoader(Squares(), **options)
        resumed.load_state_dict(states[step])
        assert [label for _, label in resumed] == samples[step:]
    ranks = [[label for _, label in DataLoader(Squares(), **options, ranks=Ranks(r, 2))] for r in range(2)]
    assert [label for pair in zip(*ranks, strict=True) for label in pair][:37] == samples
    with pytest.raises(ValueError, match="mutually exclusive with drop_last"):
        DataLoader(Squares(), batch_size=None, drop_last=True)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_dataset_that_grows_between_epochs(shuffle: bool) -> None:
    numbers = list(range(10))
    loader = DataLoader(numbers, batch_size=4, shuffle=shuffle)  # type: ignore[arg-type]
    assert (len(loader), sorted(torch.cat(list(loader)).tolist())) == (3, list(range(10)))
    numbers.extend(range(10, 25))
    assert len(loader) == 7
    iterator = iter(loader)
    first = next(iterator)
    numbers.extend(range(25, 50))  # the epoch keeps the length that it began with
    assert sorted(torch.cat([first, *iterator]).tolist()) == list(range(25))
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(50))


class Placed(Squares):
    """Knows its own place."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError


@pytest.mark.skipif(find_spec("torchdata") is not None, reason="torchdata is installed: the state is kept")
def test_a_state_that_would_be_lost_is_an_error() -> None:
    loader = DataLoader(Placed(), batch_size=4)
    assert len(list(loader)) == 10
    with pytest.raises(errors.StateError, match=r'pip install "fastload\[torchdata\]"'):
        loader.state_dict()
    plain = load()
    with pytest.raises(errors.StateError, match="of a dataset and its workers"):
        plain.load_state_dict({**plain.state_dict(), "_snapshot": {}})


def test_torchs_warning_of_too_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._utils, "cpu_count", lambda: 2, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})  # which torch before 2.13 asks
    with pytest.warns(UserWarning, match="will create 3 worker processes"):
        load(num_workers=3)


@pytest.mark.filterwarnings("ignore::UserWarning:torch.utils.data.datapipes")
def test_a_datapipe_may_be_shuffled() -> None:
    pipe = IterableWrapper(range(20)).shuffle()
    plain = DataLoader(pipe, batch_size=4, shuffle=False)
    assert torch.cat(list(plain)).tolist() == list(range(20))
    mixed = torch.cat(list(DataLoader(pipe, batch_size=4, shuffle=True))).tolist()
    assert sorted(mixed) == list(range(20))
    assert mixed != list(range(20))


def test_states_out_of_order_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="may lose and repeat"):
        load(num_workers=2, in_order=False)


def test_our_loader_in_the_place_of_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.data, "DataLoader", DataLoader)
    loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=1)
    assert len(all_batches(loader)) == 10


@pytest.mark.parametrize("workers", [0, 1])
def test_no_worker_is_left_after_an_epoch(workers: int) -> None:
    loader = load(num_workers=workers)
    all_batches(loader)
    assert multiprocessing.active_children() == []
