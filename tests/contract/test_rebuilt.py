"""A loader that a framework rebuilds from the attributes of ours: our engine's batches, or an error."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from epochs import same
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data.distributed import DistributedSampler

from fastload import DataLoader, Ranks, errors
from fastload import transforms as T
from fastload.loader.view import viewed

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


class Skipping(BatchSampler):
    """As Accelerate's SkipBatchSampler."""

    def __init__(self, batches: Any, skipped: int) -> None:
        self.batches = batches
        self.skipped = skipped

    def __iter__(self) -> Iterator[list[int]]:
        for number, batch in enumerate(self.batches):
            if number >= self.skipped:
                yield batch

    def __len__(self) -> int:
        return len(self.batches) - self.skipped


def loader_of(folder: Path, **options: Any) -> DataLoader[Any]:
    return DataLoader(
        folder, 8, **{"shuffle": True, "seed": 4, "transform": CROP, "num_workers": 2} | options
    )


def rebuilt(loader: Any, skipped: int = 0, workers: int = 0) -> TorchLoader[Any]:
    batches = Skipping(loader.batch_sampler, skipped)
    return TorchLoader(
        loader.dataset, batch_sampler=batches, collate_fn=loader.collate_fn, num_workers=workers
    )


def test_it_is_a_torch_loader(folder: Path) -> None:
    loader = loader_of(folder, drop_last=True, timeout=5, prefetch_factor=3)
    assert isinstance(loader, TorchLoader)
    assert isinstance(loader.sampler, DistributedSampler)
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert (loader.batch_size, loader.num_workers, loader.drop_last) == (8, 2, True)
    assert (loader.timeout, loader.prefetch_factor, loader.pin_memory) == (5, 3, False)
    assert (loader.worker_init_fn, loader.generator, loader.multiprocessing_context) == (None, None, None)
    assert loader.persistent_workers is False
    assert len(loader.dataset) == 52  # type: ignore[arg-type]
    assert DataLoader[int] is not None
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 4
    assert "native engine: 2 threads" in repr(loader)
    assert "seed 4, rank 0 of 1" in repr(loader)


def test_the_sampler_has_a_distributed_samplers_attributes(folder: Path) -> None:
    sampler = loader_of(folder, ranks=Ranks(1, 3)).sampler
    assert (sampler.rank, sampler.num_replicas, sampler.num_samples) == (1, 3, 18)
    assert (sampler.total_size, sampler.drop_last, sampler.shuffle, sampler.seed) == (54, False, True, 4)
    assert len(list(sampler)) == len(sampler) == 18
    first = list(sampler)
    sampler.set_epoch(1)
    assert sampler.epoch == 1
    assert list(sampler) != first


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_by_the_batch_sampler_come_from_the_engine(folder: Path, workers: int) -> None:
    epochs = [list(loader_of(folder)) for _ in range(1)]
    loader = loader_of(folder)
    assert same(list(rebuilt(loader, 2, workers)), epochs[0][2:])
    if workers == 0:
        assert loader.stats()["samples"] == 52 - 16
        assert loader.state_dict()["epoch"] == 1


def test_a_rebuilt_loader_goes_through_the_epochs(folder: Path) -> None:
    plain, loader = loader_of(folder), loader_of(folder)
    other = rebuilt(loader)
    for _ in range(2):
        assert same(list(other), list(plain))
    assert same(list(loader), list(plain))


def test_a_rebuilt_loader_asks_a_users_sampler_when_its_epoch_begins(folder: Path) -> None:
    """It may depend on what training does until then."""
    asked = []

    class Asked:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            asked.append(self.epoch)
            return iter(range(52))

    loader = loader_of(folder, shuffle=False, sampler=Asked())
    other = iter(rebuilt(loader))
    for _ in range(7):
        next(other)
        assert asked == [0]
    assert next(other, None) is None
    list(rebuilt(loader))
    assert sorted(set(asked)) == [0, 1]


def test_a_rebuilt_loader_begins_where_a_state_says(folder: Path) -> None:
    plain, loader = loader_of(folder), loader_of(folder)
    iterator = iter(plain)
    next(iterator)
    next(iterator)
    loader.load_state_dict(plain.state_dict())
    assert same(list(rebuilt(loader)), list(iterator))


def test_collate_functions_are_the_loaders(folder: Path) -> None:
    def collate(samples: list[Any]) -> tuple[int, list[int]]:
        return len(samples), [label for _, label in samples]

    expected = list(loader_of(folder, collate_fn=collate))
    assert expected[0][0] == 8
    assert list(rebuilt(loader_of(folder, collate_fn=collate))) == expected


def test_the_users_collate_object_is_reached_through_the_loaders(folder: Path) -> None:
    """As timm switches MixUp off: ``loader.collate_fn.mixup_enabled = False``."""

    class Mixes:
        mixup_enabled = True

        def __call__(self, samples: list[Any]) -> list[Any]:
            return samples

    own = Mixes()
    loader = loader_of(folder, collate_fn=own)
    assert isinstance(loader.collate_fn, Mixes)
    loader.collate_fn.mixup_enabled = False
    assert own.mixup_enabled is False


def test_other_batches_are_refused(folder: Path) -> None:
    loader = loader_of(folder)
    grouped = TorchLoader(loader.dataset, batch_size=4, sampler=loader.sampler, collate_fn=loader.collate_fn)
    with pytest.raises(errors.StateError, match="grouped into other batches than its own"):
        list(grouped)
    ordered = TorchLoader(loader.dataset, batch_size=8, collate_fn=loader.collate_fn)
    with pytest.raises(errors.StateError, match="its transform is missing"):
        list(ordered)


def attributes(loader: Any) -> dict[str, Any]:
    """What Lightning takes from a loader that it makes anew."""
    found = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    return found | {"multiprocessing_context": loader.multiprocessing_context}


def test_the_same_class_from_the_attributes_is_the_same_loader(folder: Path) -> None:
    loader = loader_of(folder)
    again = type(loader)(**attributes(loader) | {"shuffle": False})
    assert same(list(again), list(loader))


def test_the_same_class_with_another_sampler(folder: Path) -> None:
    """Lightning's overfit_batches: the batch sampler's class around a SequentialSampler."""
    loader = loader_of(folder)
    order = SequentialSampler(range(52))
    batches = type(loader.batch_sampler)(order, batch_size=loader.batch_size, drop_last=loader.drop_last)
    found = attributes(loader) | {"sampler": None, "shuffle": False, "batch_size": 1, "drop_last": False}
    again = type(loader)(**found, batch_sampler=batches)
    labels = torch.cat([labels for _, labels in again])
    assert labels.tolist() == [i % 5 for i in range(52)]
    assert again.batch_size == 8


def test_a_threads_number_that_was_found_is_looked_for_again(folder: Path) -> None:
    loader = loader_of(folder, num_workers=None)
    assert loader.num_workers >= 1
    assert attributes(loader)["num_workers"] == loader.num_workers
    again = type(loader)(**attributes(loader) | {"shuffle": False})
    assert viewed(again, "the test").arguments.num_workers is None


def test_ids_keep_the_loader_that_they_lead_to_and_nothing_else_does(folder: Path) -> None:
    loader = loader_of(folder)
    expected = list(loader_of(folder))
    other = rebuilt(loader)
    gone = weakref.ref(loader)
    del loader
    assert same(list(other), expected)
    del other
    gc.collect()
    assert gone() is None
    loader = loader_of(folder)
    gone = weakref.ref(loader)
    list(loader)
    del loader
    assert gone() is None  # without the garbage collector


def test_users_samplers_epochs_are_followed(folder: Path) -> None:
    """Training scripts call set_epoch on their own DistributedSampler, also before the first epoch."""
    own = DistributedSampler(range(52), num_replicas=2, rank=0, seed=3)  # type: ignore[arg-type]
    loader = loader_of(folder, shuffle=False, sampler=own)
    for epoch in (5, 6, 2):
        own.set_epoch(epoch)
        expected = list(own)
        ids = list(loader.sampler)
        assert ids == expected
        list(loader)
        assert own.epoch == epoch


def test_pickled_it_is_the_same_loader(folder: Path) -> None:
    loader = loader_of(folder)
    next(iter(loader))
    other = pickle.loads(pickle.dumps(loader))
    assert same(list(other), list(loader))


@pytest.mark.parametrize(
    ("sampler", "message"),
    [([0.5, 1.0], "integers from 0 to 51. Found: 0.5, of type float"), (["a"], "Found: 'a', of type str")],
)
def test_samplers_that_give_no_ids(folder: Path, sampler: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        next(iter(DataLoader(folder, 2, sampler=sampler, transform=T.CenterCrop(8))))


def test_a_position_behind_the_end_is_refused(folder: Path) -> None:
    state = {**loader_of(folder).state_dict(), "position": 10**9}
    with pytest.raises(errors.StateError, match=r"at most 52, the end of epoch 0. Found: 1000000000"):
        loader_of(folder).load_state_dict(state)
    drawn = {"shuffle": False, "sampler": RandomSampler(range(52))}
    loader = loader_of(folder, **drawn)
    loader.load_state_dict({**loader.state_dict(), "position": 60})
    with pytest.raises(errors.StateError, match="at most 52"):
        next(iter(loader))
    for wrong in (None, 3, "x"):
        with pytest.raises(errors.StateError, match="A loader state is a dict"):
            loader.load_state_dict(wrong)  # type: ignore[arg-type]
