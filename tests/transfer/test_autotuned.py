"""autotune with a device: the ring has the slots that the deepest prefetch needs; batches stay the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from device_steps import expected, run
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.prefetch import autotune
from fastload.prefetch.autotune import Policy, Setting, Window

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
WAYS = [Setting(1, 6), Setting(2, 2), Setting(2, 6), Setting(1, 2)]


def test_settings_may_change_at_every_batch(
    tiny: PackedDataset, on: Callable[..., DataLoader], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Setting] = []

    def decide(self: Policy, window: Window) -> str:
        self.setting = WAYS[len(changes) % len(WAYS)]
        changes.append(self.setting)
        return "in turn"

    monkeypatch.setattr(autotune, "WINDOW_BATCHES", 1)
    monkeypatch.setattr(autotune, "WINDOW_SECONDS", 0.0)
    monkeypatch.setattr(autotune.Policy, "decide", decide)
    gpu = SimulatedGpu(3, 0.3)
    options = {"transform": NORMALIZE, "shuffle": True, "seed": 5}
    wanted = expected(tiny, **options)
    loader = on(gpu, tiny, autotune=True, **options)
    plan = loader.memory_plan()
    assert plan["slots"] == on(gpu, tiny, **options).memory_plan()["slots"] + autotune.EXTRA_DEPTH
    assert run(gpu, loader, wanted) == []
    assert len(changes) >= 2
    assert gpu.most_pinned <= plan["pinned_bytes"]
