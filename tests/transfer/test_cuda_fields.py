"""Batches of objects on a real GPU: equal to the host's, and no number is read back to make them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from collated import COLLATED, same
from object_sets import object_set

from fastload import DataLoader, PackedDataset, Patches
from fastload import transforms as T
from fastload.sample.ragged import Ragged
from fastload.transforms.batch import ColorJitter, CutMix, RandomErasing

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(300)]

BUSY = 20_000_000  # device clocks: some 10 ms


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return object_set(tmp_path_factory.mktemp("collated") / "set", 61)[0]


def takes_without_waiting(iterator: Iterator[Any], batches: int) -> bool:
    """Whether these were taken behind busy kernels in a mode in which waiting for the device is an error."""
    with no_waiting():
        for _ in range(batches):
            torch.cuda._sleep(BUSY)
            next(iterator)
        with pytest.raises(RuntimeError, match="synchronizing"):  # that is what the mode would have said
            torch.ones(1, device="cuda").item()
    return True


@contextmanager
def no_waiting() -> Iterator[None]:
    """What makes the host wait for the device is an error of torch's; cudaMalloc is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def on_host(value: Any) -> Any:
    if isinstance(value, Ragged):
        return value.to("cpu")
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {name: on_host(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(on_host(one) for one in value)
    return value


@pytest.mark.parametrize("case", list(COLLATED))
def test_batches_of_objects_are_those_of_the_host(objects: Path, case: str) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 0, "num_workers": 3, **COLLATED[case]}
    with DataLoader(objects, 4, **options) as loader:
        wanted = [batch for _ in range(2) for batch in loader]
    with DataLoader(objects, 4, device="cuda", **options) as loader:
        found = []
        for _ in range(2):
            for batch in loader:
                torch.cuda._sleep(BUSY)
                found.append(batch)
    assert len(found) == len(wanted) == 32
    wrong = [number for number, batch in enumerate(found) if not same(on_host(batch), wanted[number])]
    assert wrong == []


@pytest.mark.parametrize("case", [case for case in COLLATED if case not in ("callable", "Python")])
def test_next_does_not_wait_for_the_device(objects: Path, case: str) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 0, "num_workers": 3, **COLLATED[case]}
    with DataLoader(objects, 4, device="cuda", **options) as loader:
        iterator = iter(loader)
        next(iterator)
        assert takes_without_waiting(iterator, 10)


@pytest.mark.parametrize(
    "batch_transform", [None, [ColorJitter(0.4, 0.4, 0.4, 0.1), RandomErasing(0.8), CutMix(5)]]
)
def test_the_plain_next_does_not_wait_either(packed: PackedDataset, batch_transform: Any) -> None:
    steps = [T.RandomResizedCrop(48), T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.2,) * 3)]
    options: dict[str, Any] = {"transform": T.Compose(steps), "batch_transform": batch_transform}
    with DataLoader(packed, 4, device="cuda", shuffle=True, seed=0, **options) as loader:
        iterator = iter(loader)
        next(iterator)
        assert takes_without_waiting(iterator, 10)


PATCHES: dict[str, Any] = {
    "transform": T.Compose([T.ResizeToPatches(8, 36), T.Normalize((0.5,) * 3, (0.2,) * 3)]),
    "collate": Patches("naflex", 8, 36),
    "shuffle": True,
    "seed": 0,
}


def test_patches_are_those_of_the_host(packed: PackedDataset) -> None:
    with DataLoader(packed, 4, **PATCHES) as loader:
        wanted = [batch for _ in range(2) for batch in loader]
    with DataLoader(packed, 4, device="cuda", **PATCHES) as loader:
        found = [batch for _ in range(2) for batch in loader]
    assert len(found) == len(wanted) == 26
    for batch, other in zip(found, wanted, strict=True):
        assert batch["patches"].is_cuda
        assert set(batch) == set(other)
        assert (batch["patches"].cpu() - other["patches"]).abs().max() <= 2.0**-21
        for name in ("patch_coord", "patch_valid", "label"):
            assert torch.equal(batch[name].cpu(), other[name]), name


def test_next_does_not_wait_for_patches(packed: PackedDataset) -> None:
    with DataLoader(packed, 4, device="cuda", **PATCHES) as loader:
        iterator = iter(loader)
        next(iterator)
        assert takes_without_waiting(iterator, 10)
