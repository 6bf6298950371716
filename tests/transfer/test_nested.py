"""Batches of torch Datasets and of Python callables on the simulated device: any nesting, safe to keep."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, PackedDataset, errors
from fastload import transforms as T
from fastload.transfer.nested import Mover

Make = Callable[..., DataLoader]


class Pair(NamedTuple):
    image: Any
    label: Any


class Moves:
    """Has a ``to``, as torch's PackedSequence."""

    def __init__(self) -> None:
        self.asked: Any = None

    def to(self, device: torch.device, non_blocking: bool = False) -> Moves:
        self.asked = device, non_blocking
        return self


def test_every_container_keeps_its_type() -> None:
    gpu = SimulatedGpu(0)
    thing = Moves()
    batch = {
        "pair": Pair(torch.arange(3), torch.ones(2, 2)),
        "list": [torch.zeros(1), "name", b"key", 7, None],
        "tuple": (torch.tensor(5.0), OrderedDict(a=torch.arange(2))),
        "thing": thing,
    }
    moved = Mover(gpu)(batch)
    gpu.finish(gpu.current)
    assert type(moved) is dict
    assert type(moved["pair"]) is Pair
    assert torch.equal(moved["pair"].image, torch.arange(3))
    assert moved["pair"].image is not batch["pair"].image
    assert moved["list"][1:] == ["name", b"key", 7, None]
    assert type(moved["tuple"]) is tuple
    assert moved["tuple"][0] == 5.0
    assert type(moved["tuple"][1]) is OrderedDict
    assert moved["thing"] is thing
    assert thing.asked == (gpu.device, True)


class Numbers(torch.utils.data.Dataset[Any]):
    """Sample i is i, a hundred times."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((100,), index), "y": index}


def wrong_batches(gpu: SimulatedGpu, loader: DataLoader) -> int:
    """Batches that were wrong when a kernel looked, or when kept to the end."""
    wrong: list[int] = []
    kept: list[Any] = []

    def check(batch: Any, first: int) -> None:
        ids = torch.arange(first, first + 4)
        if not (torch.equal(batch["y"], ids) and torch.equal(batch["x"], ids[:, None].expand(4, 100))):
            wrong.append(first)

    for _ in range(2):
        iterator, step = iter(loader), -1
        while (batch := next(iterator, None)) is not None:  # enumerate() would hold on to the last batch
            step += 1
            for _ in range(gpu.random.randrange(4)):
                gpu.kernel(lambda: None)
            # The kernel's own references to the memory end when the program's do: torch frees at once.
            x, y = batch["x"].detach(), batch["y"].detach()
            views = {"x": torch.from_numpy(x.numpy()), "y": torch.from_numpy(y.numpy())}
            addresses = {name: (t.data_ptr(), tuple(t.shape)) for name, t in views.items()}
            del x, y, views
            gpu.kernel(lambda a=addresses, first=4 * step: check(peek(a), first))
            if gpu.random.random() < 0.3:
                kept.append((batch, 4 * step))
            del batch
    gpu.synchronize()
    for batch, first in kept:
        check(batch, first)
    return len(wrong)


def peek(addresses: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Memory as a kernel sees it: by address, whoever owns it now."""
    import ctypes

    found = {}
    for name, (address, shape) in addresses.items():
        count = 1
        for n in shape:
            count *= n
        values = list((ctypes.c_int64 * count).from_address(address))
        found[name] = torch.tensor(values).view(shape)
    return found


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
def test_a_torch_dataset_arrives_whole(on: Make) -> None:
    for seed in range(10):
        gpu = SimulatedGpu(seed, 0.3)
        loader = on(gpu, Numbers(), 4, num_workers=0)
        assert wrong_batches(gpu, loader) == 0
        stats = loader.stats()["stages"]["transfer"]
        assert stats["count"] == 20
        assert stats["bytes"] == gpu.copied_bytes == 20 * 4 * 101 * 8
        loader.close()


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
@pytest.mark.parametrize("broken", ["consumer_wait", "record_stream"])
def test_the_simulation_notices(on: Make, broken: str) -> None:
    wrong = 0
    for seed in range(10):
        gpu = SimulatedGpu(seed, 0.2, broken)
        loader = on(gpu, Numbers(), 4, num_workers=0)
        wrong += bool(wrong_batches(gpu, loader))
        loader.close()
    assert wrong >= 3


def test_python_callables_and_collate_functions(tiny: PackedDataset, on: Make) -> None:
    def bright(image: torch.Tensor) -> torch.Tensor:
        return image.float().mul(2)

    def collate(samples: list[Any]) -> dict[str, Any]:
        return {"pixels": torch.stack([image for image, _ in samples]), "y": [label for _, label in samples]}

    for options in (
        {"transform": T.Compose([T.ToDtype("uint8"), bright])},
        {"transform": T.ToDtype("uint8"), "collate_fn": collate},
        {"transform": T.CenterCrop(4), "collate_fn": collate},
    ):
        gpu = SimulatedGpu(1)
        plain = list(DataLoader(tiny, 8, num_workers=1, **{"seed": 0, **options}))
        assert len(plain) > 1
        for found, wanted in zip(on(gpu, tiny, **options), plain, strict=True):
            gpu.finish(gpu.current)
            if isinstance(wanted, dict):
                assert torch.equal(found["pixels"], wanted["pixels"])
                assert found["y"] == wanted["y"]
            else:
                assert torch.equal(found[0], wanted[0])
                assert torch.equal(found[1], wanted[1])


def test_capture_is_refused(on: Make) -> None:
    gpu = SimulatedGpu(0)
    gpu.captures = True
    with pytest.raises(errors.StateError, match="CUDA graph"):
        Mover(gpu)([torch.zeros(1)])
