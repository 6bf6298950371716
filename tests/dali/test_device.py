"""Delivery on a simulated GPU, which runs everything late and out of order; pixels by DALI's CPU pipeline."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_steps import Step
from epochs import all_batches
from simulated_gpu import SimulatedGpu
from two_backends import TRAIN, with_dali

from fastload import Dali, DataLoader, Device, PackedDataset, errors
from fastload import transforms as T
from fastload.backends import choice as backends
from fastload.transforms.batch import ColorJitter, RandomErasing

pytestmark = pytest.mark.dali

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, photos: PackedDataset) -> Any:
    def make(gpu: SimulatedGpu | None, **options: Any) -> DataLoader:
        monkeypatch.setattr(backends, "find_gpu", lambda device: None if device is None else gpu)
        monkeypatch.setattr(backends, "goes_to_gpu", lambda device: device is not None)
        settings = {"shuffle": True, "device": None if gpu is None else "cuda", **options}
        return with_dali(photos, **settings)

    return make


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("mode", ["fresh", "reuse"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_batches_arrive_whole(load: Any, dtype: str, mode: str, share: float) -> None:
    transform = TRAIN if dtype == "uint8" else T.Compose([*TRAIN.transforms, NORMALIZE])
    options = {"transform": transform, "backend": Dali(decode_share=share)}
    with load(None, **options) as loader:
        wanted = [all_batches(loader) for _ in range(2)]
    for seed in range(2):
        gpu = SimulatedGpu(seed)
        step = Step(gpu)
        if mode == "reuse":
            step.kept = Forgetful()
        with load(gpu, device=Device(memory=mode), **options) as loader:
            for batches in wanted:
                for (images, labels), batch in zip(loader, batches, strict=True):
                    step(images, labels, batch)
            assert step.finish() == []
            assert loader.stats()["decoders"]["samples"]["dali"] > 0
        assert gpu.failures == []


class Forgetful(list[Any]):
    """A training step with ``Device(memory="reuse")`` keeps nothing."""

    def append(self, item: Any) -> None:
        """Nothing."""


def test_memory_is_kept_until_the_device_has_read_it(load: Any) -> None:
    """DALI's pool and torch's pinned one hand out memory again as soon as nobody holds it."""
    gpu = SimulatedGpu(0, eagerness=0.0)  # nothing runs by itself
    with load(gpu, backend=Dali(decode_share=0.5)) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        kept = loader._epochs.backend._assembly._kept
        assert len(kept) == 3
        pixels, _, slot, labels = kept[0][1]
        assert pixels.shape[1:] == (48, 48, 3)
        assert slot.fields["label"] is labels
        gpu.synchronize()
        next(iterator)
        assert len(kept) == 1
        gpu.synchronize()


def test_batch_transforms_are_those_of_the_host(load: Any) -> None:
    parts = [ColorJitter(brightness=0.4), RandomErasing(p=0.5)]
    options = {"transform": T.Compose([*TRAIN.transforms, NORMALIZE]), "batch_transform": parts}
    with load(None, **options) as loader:
        wanted = all_batches(loader)
    assert len(wanted) > 1
    gpu = SimulatedGpu(1, eagerness=1.0)
    with load(gpu, **options) as loader:
        for (images, labels), (pixels, same) in zip(loader, wanted, strict=True):
            gpu.synchronize()
            assert torch.equal(labels, same)
            assert (images - pixels).abs().max() <= 1e-5


def test_memory_plan(load: Any) -> None:
    batch = 8 * 3 * 48 * 48
    plan = load(SimulatedGpu(0), backend=Dali(memory_limit=1 << 30), prefetch_factor=2).memory_plan()
    assert plan["device_bytes"] == 1 << 30
    assert plan["pinned_bytes"] >= 4 * batch
    plan = load(SimulatedGpu(0), device=Device(memory="reuse"), prefetch_factor=2).memory_plan()
    assert plan["device_bytes"] == 4 * batch + batch + 8 * 8


def test_a_captured_graph_is_refused(load: Any) -> None:
    gpu = SimulatedGpu(0)
    with load(gpu) as loader:
        gpu.captures = True
        with pytest.raises(errors.StateError, match="records a CUDA graph"):
            next(iter(loader))
