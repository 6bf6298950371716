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
from field_sets import RICH, rich_samples, write_field_set
from object_sets import object_set
from reused import EQUAL, REUSED, impossible, places, tensors, write_deep_set

from fastload import DataLoader, Device, PackedDataset, Patches
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


# ---- Memory that is used again ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("rich") / "set", RICH, rich_samples(31))


def reusing(folder: Path, mode: str, case: str, **options: Any) -> DataLoader:
    options = {"shuffle": True, "seed": 0, "num_workers": 3, **REUSED[case], **options}
    return DataLoader(folder, 4, device=Device("cuda", memory=mode), **options)


@pytest.mark.parametrize("mode", ["reuse", "poison"])
@pytest.mark.parametrize("case", REUSED)
def test_reused_dicts_are_those_of_the_host(rich: Path, case: str, mode: str) -> None:
    """Looked at behind busy kernels, on streams that change; full batches have the same addresses."""
    with DataLoader(rich, 4, shuffle=True, seed=0, num_workers=3, **REUSED[case]) as loader:
        wanted = [batch for _ in range(2) for batch in loader]
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
    found: list[dict[str, Any]] = []
    full: set[tuple[int, ...]] = set()
    with reusing(rich, mode, case) as loader:
        for _ in range(2):
            iterator = iter(loader)
            for number in range(len(loader)):
                with torch.cuda.stream(streams[len(found) % 3]):
                    batch = next(iterator)
                    torch.cuda._sleep(BUSY)
                    copies = {name: value.clone() for name, value in tensors(batch).items()}
                    found.append({**batch, **copies})
                if number < 7:  # the eighth has three samples
                    full.add(places(batch))
            assert next(iterator, None) is None
        torch.cuda.synchronize()
    assert len(full) == (1 if mode == "reuse" else 2)
    assert len(found) == len(wanted) == 16
    assert all(value.is_cuda for batch in found for value in tensors(batch).values())
    assert [number for number, batch in enumerate(found) if not same(on_host(batch), wanted[number])] == []


@pytest.mark.parametrize("case", REUSED)
def test_poison_shows_every_field_of_a_kept_batch(rich: Path, case: str) -> None:
    with reusing(rich, "poison", case) as loader:
        iterator = iter(loader)
        kept = tensors(next(iterator))
        assert [name for name, value in kept.items() if impossible(value)] == []
        next(iterator)
        assert [name for name, value in kept.items() if not impossible(value)] == []


def test_pictures_of_16_bits_in_reused_memory(tmp_path: Path) -> None:
    folder = write_deep_set(tmp_path / "set")
    options: dict[str, Any] = {"transform": T.CenterCrop(16), "seed": 0, "num_workers": 2}
    with DataLoader(folder, 4, **options) as loader:
        wanted = list(loader)
    with DataLoader(folder, 4, device=Device("cuda", memory="poison"), **options) as loader:
        iterator = iter(loader)
        first = next(iterator)
        assert same(on_host(first), wanted[0])
        assert same(on_host(next(iterator)), wanted[1])
        assert [name for name, value in tensors(on_host(first)).items() if not impossible(value)] == []


@pytest.mark.parametrize("mode", ["reuse", "poison"])
def test_next_does_not_wait_for_reused_memory(rich: Path, mode: str) -> None:
    with reusing(rich, mode, "equal") as loader:
        iterator = iter(loader)
        next(iterator)
        assert takes_without_waiting(iterator, 6)


def step(batch: dict[str, Any]) -> torch.Tensor:
    """Something of each field, as a training step has."""
    pixels = batch["image"].mean((1, 2, 3)) + batch["second"].mean((1, 2, 3)) * batch["label"]
    rest = batch["weight"].float() + batch["pose"].sum((1, 2)) + batch["mask"].float().mean((1, 2))
    return torch.where(batch["valid"], pixels + rest, 0.0)


def test_a_captured_step_replays_on_every_dict(rich: Path) -> None:
    """Captured while the loader's threads decode and its copies run; the batch's tensors are its inputs."""
    with DataLoader(rich, 4, shuffle=True, seed=0, drop_last=True, num_workers=3, **EQUAL) as loader:
        wanted = [step(batch) for _ in range(2) for batch in loader]
    loader = reusing(rich, "reuse", "equal", drop_last=True)
    iterator = iter(loader)
    static = next(iterator)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step(static)
    graph.replay()
    found = [output.clone()]
    for epoch in range(2):
        for batch in iterator if epoch == 0 else loader:
            assert places(batch) == places(static)
            graph.replay()
            found.append(output.clone())
    assert len(found) == len(wanted) == 14
    for one, other in zip(found, wanted, strict=True):
        assert (one.cpu() - other).abs().max() < 1e-4
    assert len({tuple(one.tolist()) for one in found}) == 14
    loader.close()
