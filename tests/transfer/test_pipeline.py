"""The transfer on a simulated device that runs everything as late, and as early, as it may."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from device_steps import Step, expected, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, Device, PackedDataset, Ranks
from fastload import transforms as T

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
Make = Callable[..., DataLoader]
given_a_device = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given_a_device
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 0.5, 0.9]), st.integers(1, 4), st.booleans())
def test_every_batch_arrives_whole(
    tiny: PackedDataset, on: Make, seed: int, eagerness: float, ahead: int, floats: bool
) -> None:
    gpu = SimulatedGpu(seed, eagerness)
    transform = NORMALIZE if floats else None
    options = {"transform": transform, "shuffle": True, "seed": seed % 100}
    wanted = expected(tiny, **options)
    assert run(gpu, on(gpu, tiny, prefetch_factor=ahead, **options), wanted) == []


@pytest.mark.parametrize("broken", ["consumer_wait", "copy_wait", "early_reuse"])
def test_the_simulation_notices(tiny: PackedDataset, on: Make, broken: str) -> None:
    """With a wait left out, or a slot reused before its copy is done, wrong bytes arrive."""
    wanted = expected(tiny, shuffle=True)
    wrong = 0
    for seed in range(20):
        gpu = SimulatedGpu(seed, 0.3, broken)
        loader = on(gpu, tiny, shuffle=True)
        step = Step(gpu)
        for batches in wanted:
            for (images, labels), batch in zip(loader, batches, strict=True):
                step(images, labels, batch)
        wrong += bool(step.finish())
        loader.close()
    assert wrong >= 5


def test_no_host_copy_and_the_planned_bytes(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(0)
    loader = on(gpu, tiny, transform=NORMALIZE)
    plan = loader.memory_plan()
    assert gpu.most_pinned == 0
    list(loader)
    gpu.synchronize()
    stats = loader.stats()["stages"]["transfer"]
    assert gpu.most_pinned == plan["pinned_bytes"] == stats["pinned_bytes"]
    assert (
        plan["slots"] * plan["slot_bytes"] <= plan["pinned_bytes"] < plan["slots"] * plan["slot_bytes"] + 4096
    )
    assert stats["host_copies"] == 0
    ahead = stats["count"] - 13  # of the next epoch
    assert 0 <= ahead <= 2
    # uint8 crosses the bus: a byte for each value, and before them labels, each part in whole cache lines.
    pixels = (100 + 8 * ahead) * 6 * 6 * 3
    assert pixels < stats["bytes"] == gpu.copied_bytes < pixels + stats["count"] * 3 * 64
    assert plan["batch_bytes"] == 8 * 6 * 6 * 3 * 4 + 64 + 8 * 8  # labels, and which are samples
    loader.close()
    assert gpu.pinned == {}


class Counting(SimulatedGpu):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__(0, 0.9)
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in ("empty", "launch", "copy", "run", "upload", "record", "wait", "new_event"):
            self.asked[name] += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("options", [{}, {"fields": ["image", "label"]}], ids=["pair", "dict"])
def test_a_batch_takes_one_copy_and_one_launch(tiny: PackedDataset, on: Make, options: Any) -> None:
    """Labels and which positions are samples cross with the pixels, and go to the consumer in one piece."""
    gpu = Counting()
    loader = on(gpu, tiny, transform=NORMALIZE, **options)
    list(loader)
    gpu.asked.clear()
    copies, batches = loader.stats()["stages"]["transfer"]["count"], len(list(loader))
    copies = loader.stats()["stages"]["transfer"]["count"] - copies
    per_batch = {"empty": 2, "launch": 1, "wait": 1, "record": 1}  # on the consumer's stream
    per_copy = {"copy": 1, "new_event": 2, "wait": 1, "record": 2}
    wanted = Counter({name: count * batches for name, count in per_batch.items()})
    wanted.update({name: count * copies for name, count in per_copy.items()})
    assert gpu.asked == wanted
    loader.close()


@pytest.mark.parametrize("padding", ["mark", "end"])
def test_padding_is_that_of_the_host(tiny: PackedDataset, on: Make, padding: str) -> None:
    """Zeros, of which Normalize would make others."""
    options: dict[str, Any] = {"transform": NORMALIZE, "ranks": Ranks(2 - (padding == "mark"), 3)}
    wanted = expected(tiny, padding=padding, **options)
    images, labels = wanted[0][-1]
    assert labels[-1] == -100
    assert not images[-1].any()
    gpu = SimulatedGpu(3)
    assert run(gpu, on(gpu, tiny, padding=padding, **options), wanted) == []


def test_copies_are_ahead_of_the_consumer(tiny: PackedDataset, on: Make) -> None:
    """Also over the end of an epoch: the next one's first batches are decoded and copied while it ends."""
    gpu = SimulatedGpu(0, eagerness=1.0)
    loader = on(gpu, tiny, prefetch_factor=3)
    iterator = iter(loader)
    for done in range(1, 14):
        next(iterator)
        while len(loader._epochs.backend._pipeline._flights) < 2:
            loader._epochs.backend._pipeline.look_ahead()  # as a later next() would, once decoding is done
        assert loader.stats()["stages"]["transfer"]["count"] == done + 2
    assert next(iterator, None) is None
    second = iter(loader)
    next(second)
    assert loader.stats()["stages"]["transfer"]["count"] <= 16  # nothing was copied twice
    loader.close()


@pytest.mark.parametrize("mode", ["reuse", "poison"])
@pytest.mark.parametrize("floats", [True, False])
def test_reused_memory_is_right_until_the_next_batch(
    tiny: PackedDataset, on: Make, mode: str, floats: bool
) -> None:
    options = {"transform": NORMALIZE if floats else None, "shuffle": True}
    wanted = expected(tiny, **options)
    for seed in range(10):
        gpu = SimulatedGpu(seed, 0.3)
        loader = on(gpu, tiny, device=Device(memory=mode), **options)
        step, addresses = Step(gpu), set()
        for batches in wanted:
            iterator = iter(loader)
            for batch in batches:
                with gpu.using(gpu.random.choice(gpu.user_streams)):
                    images, labels = next(iterator)
                    step(images, labels, batch)
                    step.kept.clear()  # keeping is not allowed
                addresses.add(images.data_ptr())
        assert step.finish() == []
        assert len(addresses) == (1 if mode == "reuse" else 2)
        loader.close()


def test_poison_shows_a_kept_batch(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(0)
    iterator = iter(on(gpu, tiny, device=Device(memory="poison"), transform=NORMALIZE))
    images, labels = next(iterator)
    gpu.synchronize()
    assert not images.isnan().any()
    next(iterator)
    gpu.synchronize()
    assert images.isnan().all()
    assert (labels < -(2**60)).all()


def test_breaking_and_jumping(tiny: PackedDataset, on: Make) -> None:
    """Iterations that end anywhere, epochs that are set: what is under way is dropped, slots come back."""
    plain = DataLoader(tiny, 8, shuffle=True, num_workers=1, seed=0)
    for seed in range(8):
        gpu = SimulatedGpu(seed, 0.2)
        loader = on(gpu, tiny, shuffle=True)
        step = Step(gpu)
        for _ in range(12):
            epoch, length = gpu.random.randrange(5), gpu.random.randrange(14)
            plain.set_epoch(epoch)
            loader.set_epoch(epoch)
            for (images, labels), batch, _ in zip(loader, plain, range(length), strict=False):
                step(images, labels, (batch[0].clone(), batch[1].clone()))
        assert step.finish() == []
        gc.collect()
        ring = loader._epochs.backend._slots
        loader._epochs.backend.cancel()
        gpu.synchronize()
        ring.reclaim()
        assert {state.value for state in ring.states} == {"free"}
        loader.close()
        assert gpu.pinned == {}


def test_two_hundred_breaks_hold_no_more_memory(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(0, 0.7)
    loader = on(gpu, tiny, transform=NORMALIZE)
    counts = []
    for turn in range(200):
        for step, _ in enumerate(loader):
            if step == 2:
                break
        if turn % 50 == 49:
            gc.collect()
            gpu.synchronize()
            counts.append(len(gpu.allocations))
    assert counts[-1] <= counts[0] + 2
    assert len(gpu.streams) == 4  # the consumers' three, and one for copies
    loader.close()
