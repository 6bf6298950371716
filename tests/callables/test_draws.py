"""Random callables: the same draws in every run, and none of the model's."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastload import DataLoader
from fastload import transforms as T

CROP = T.RandomResizedCrop(16)


def drawn(image: Image.Image) -> torch.Tensor:
    """A draw of each of the three, and the picture's first value."""
    draws = torch.rand(()).item(), random.random(), float(np.random.rand())
    return torch.tensor([*draws, float(np.array(image).ravel()[0])], dtype=torch.float64)


def collated(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """As mixup in a collate function."""
    values = torch.stack([sample for sample, _ in samples])
    weights = torch.tensor([torch.rand(()).item(), random.random(), float(np.random.rand())])
    return values, weights


def sized(image: Image.Image) -> torch.Tensor:
    return drawn(image.crop((0, 0, 4, 4)))


KINDS: dict[str, dict[str, Any]] = {
    "crops": {"transform": T.Compose([CROP, drawn])},
    "different sizes": {"transform": T.Compose([T.Resize(20), sized])},
    "whole": {"transform": sized},
    "collate": {"transform": T.Compose([CROP, drawn]), "collate_fn": collated},
}
EVERY_KIND = pytest.mark.parametrize("kind", list(KINDS))


def load(folder: Path, kind: str, workers: int | None, **options: Any) -> DataLoader:
    return DataLoader(folder, 8, True, num_workers=workers, **{"seed": 3, **KINDS[kind], **options})


def values(loader: DataLoader) -> list[torch.Tensor]:
    return [torch.cat([first.double().flatten(), second.double()]) for first, second in loader]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


@EVERY_KIND
def test_draws_depend_on_seed_epoch_and_sample_only(folder: Path, kind: str) -> None:
    loader = load(folder, kind, 0)
    epochs = values(loader), values(loader)
    assert not equal(*epochs)
    flat = torch.cat(epochs[0])
    for workers in (None, 1, 3):
        torch.manual_seed(workers or 7)  # of no account
        for persistent in (False, True):
            other = load(folder, kind, workers, persistent_workers=persistent)
            assert equal(values(other), epochs[0])
            assert equal(values(other), epochs[1])
            other.close()
    assert not equal(values(load(folder, kind, 2, seed=4)), epochs[0])
    assert len(flat.unique()) > 100


def test_samples_draw_apart(folder: Path) -> None:
    """No two samples have the same numbers, nor do the three generators of one."""
    found = torch.cat([first for first, _ in load(folder, "crops", 2)])[:, :3]
    assert len(found.unique()) == found.numel() == 52 * 3


def resumed(folder: Path, workers: int) -> list[torch.Tensor]:
    loader = load(folder, "crops", workers)
    iterator = iter(loader)
    head = [
        torch.cat([first.flatten(), second.double()]) for first, second in (next(iterator), next(iterator))
    ]
    other = load(folder, "crops", workers)
    other.load_state_dict(loader.state_dict())
    return head + values(other)


@pytest.mark.parametrize("workers", [0, 2])
def test_draws_go_on_where_a_run_stopped(folder: Path, workers: int) -> None:
    assert equal(resumed(folder, workers), values(load(folder, "crops", 0)))


def model_draws(batches: Any) -> list[float]:
    """What a training step draws from the process's generators."""
    found = []
    for _ in batches:
        mask = torch.nn.functional.dropout(torch.ones(64)).sum().item()
        found += [mask, torch.rand(()).item(), random.random(), float(np.random.rand()), random.gauss(0, 1)]
    return found


@EVERY_KIND
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_models_draws_are_its_own(folder: Path, kind: str, workers: int) -> None:
    def run(make: Callable[[], Any]) -> list[float]:
        torch.manual_seed(1)
        random.seed(2)
        np.random.seed(3)
        return model_draws(make())

    without = run(lambda: range(7))
    assert run(lambda: load(folder, kind, workers)) == without
    assert run(lambda: load(folder, kind, workers, prefetch_factor=5)) == without


@pytest.mark.parametrize("workers", [0, 2])
def test_two_loaders_at_once(folder: Path, workers: int) -> None:
    """Validation within an epoch of training."""
    alone = values(load(folder, "crops", workers)), values(load(folder, "collate", workers))
    train, found = load(folder, "crops", workers), []
    for first, second in train:
        found.append(torch.cat([first.flatten(), second.double()]))
        assert equal(values(load(folder, "collate", workers)), alone[1])
    assert equal(found, alone[0])


def test_an_interrupted_callable_gives_the_generators_back(folder: Path) -> None:
    def interrupted(image: Image.Image) -> torch.Tensor:
        raise KeyboardInterrupt

    torch.manual_seed(5)
    expected = torch.rand(3), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    torch.manual_seed(5)
    with pytest.raises(KeyboardInterrupt):
        next(iter(DataLoader(folder, 4, seed=1, num_workers=0, transform=T.Compose([CROP, interrupted]))))
    assert torch.equal(torch.rand(3), expected[0])
    assert random.getstate() == expected[1]
    assert np.random.get_state()[1].tolist() == expected[2]  # type: ignore[index, union-attr]
