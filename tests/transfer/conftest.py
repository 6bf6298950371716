"""Fixtures: a set of tiny pictures, and loaders whose device is simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plain_pack import plain_pack
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, PackedDataset
from fastload.backends import choice as backends

SIDE = 6


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """100 raw pictures of 6x6 random pixels, label = sample id."""
    pixels = np.random.default_rng(0).integers(0, 256, (100, SIDE, SIDE, 3), np.uint8)
    return plain_pack(
        tmp_path_factory.mktemp("tiny"), [p.tobytes() for p in pixels], range(100), raw_size=(SIDE, SIDE)
    )


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DataLoader]:
    """Makes a loader on a given simulated device."""

    def make(gpu: SimulatedGpu, dataset: Any, batch_size: int = 8, **options: Any) -> DataLoader:
        monkeypatch.setattr(backends, "find_gpu", lambda device: None if device is None else gpu)
        monkeypatch.setattr(backends, "goes_to_gpu", lambda device: device is not None)
        return DataLoader(dataset, batch_size, **{"device": "cuda", "num_workers": 2, "seed": 0, **options})

    return make
