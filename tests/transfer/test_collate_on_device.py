"""What ``collate=`` makes of batches on a device: the same as on the host, and no number is read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from collated import COLLATED, parts, same
from object_sets import object_set
from simulated_gpu import SimulatedGpu

import fastload
from fastload import DataLoader, Fields, Ragged, Ranks
from fastload import transforms as T
from fastload.collate.detection import Names, Roles, for_detr, for_yolo, listed
from fastload.collate.planned import Collated
from fastload.sample.layout import IDS, VIEW

COUNT = 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return object_set(tmp_path_factory.mktemp("collated") / "set", COUNT)[0]


@pytest.mark.parametrize("eagerness", [0.0, 0.6])
@pytest.mark.parametrize("case", list(COLLATED))
def test_batches_on_a_device_are_those_of_the_host(
    folder: Path,
    on: Callable[..., DataLoader],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    eagerness: float,
) -> None:
    options: dict[str, Any] = {"shuffle": True, "ranks": Ranks(1, 2), **COLLATED[case]}
    with DataLoader(folder, 3, seed=0, **options) as loader:
        wanted = list(loader)
    assert len(wanted) == 3  # the last one has a position without a sample
    gpu = SimulatedGpu(7, eagerness)
    monkeypatch.setattr("fastload.transfer.cuda.find_gpu", lambda device: gpu if device else None)
    wrong: list[int] = []

    def compare(number: int, found: Any) -> None:
        if not same(found, wanted[number]):
            wrong.append(number)

    with on(gpu, folder, 3, **options) as loader:
        kept = list(loader)
        for number, batch in enumerate(kept):
            gpu.kernel(lambda number=number, batch=batch: compare(number, batch))  # type: ignore[misc]
        gpu.synchronize()
    assert wrong == []
    assert len(kept) == len(wanted)
    assert gpu.failures == []


class Meta:
    """A device whose numbers cannot be read: torch's own, which knows shapes alone."""

    def move(self, nest: Any) -> Any:
        if isinstance(nest, torch.Tensor):
            return nest.to("meta")
        if isinstance(nest, dict):
            return {name: self.move(value) for name, value in nest.items()}
        return type(nest)(self.move(value) for value in nest)

    def run(self, operations: Callable[[], Any]) -> Any:
        return operations()


def keys(samples: Sequence[int]) -> list[str]:
    return [f"{sample:04d}" for sample in samples]


@pytest.mark.parametrize("make", [listed, for_detr, for_yolo])
@pytest.mark.parametrize("collate", ["pad", "ragged"])
@pytest.mark.parametrize("missing", [0, 1])
def test_nothing_is_read_back_from_a_device(
    folder: Path, make: Callable[..., Any], collate: str, missing: int
) -> None:
    if (make is not listed) and collate == "ragged":
        collate = "stack"
    options: dict[str, Any] = {"transform": T.Resize((24, 32))} if collate == "stack" else {}
    with DataLoader(folder, 4, fields=Fields(masks="dense"), collate=collate, **options) as loader:
        batch = next(iter(loader))
    batch["valid"][2] = not missing
    batch[IDS], batch[VIEW] = torch.arange(4), torch.arange(32.0).view(4, 8)
    roles = Roles.of(fastload.PackedDataset(folder).schema.fields, Names())
    wanted = make(Collated(batch, batch, keys), roles)
    device = Meta()
    pixels: dict[str, Any] = {}
    for name in ("image", "masks"):
        value = batch[name]
        if isinstance(value, Ragged):
            pixels[name] = Ragged.trusted(*map(device.move, (value.values, value.offsets)), value.offsets)
        else:
            pixels[name] = device.move(value)
    host = {name: value for name, value in batch.items() if name not in pixels}
    found = make(Collated(pixels, host, keys, device), roles)
    pairs = list(zip(parts(found), parts(wanted), strict=True))
    assert sum(isinstance(other, torch.Tensor) for _, other in pairs) > 6
    for one, other in pairs:
        if isinstance(other, torch.Tensor):
            assert one.device.type == "meta"
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
        else:
            assert one == other


def test_rows_of_a_batch_are_found_without_its_device() -> None:
    ends = torch.tensor([0, 2, 2, 5])
    rows = Ragged.trusted(torch.empty(5, 4, device="meta"), ends.to("meta"), ends)
    assert rows.counts() == [2, 0, 3]
    assert [len(one) for one in rows] == [2, 0, 3]
    assert len(rows[2]) == 3
    assert rows[1:].counts() == [0, 3]
    assert rows[1:2].values.shape == (0, 4)
