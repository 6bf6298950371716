"""Pinning refused, the device lost or stuck, forks, bad samples, odd modes: on the simulated device."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from device_steps import Step, close, expected, run
from pictures import jpegs
from plain_pack import plain_pack
from simulated_gpu import SimulatedGpu

from fastload import DataLoader, Device, PackedDataset, errors
from fastload import transforms as T
from fastload.transfer.streams import guarded

NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
Make = Callable[..., DataLoader]


def test_pinning_refused_is_one_line_and_goes_on(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(0, refuses_pinning="CUDA error: operation not permitted (800)")
    wanted = expected(tiny, NORMALIZE)
    loader = on(gpu, tiny, transform=NORMALIZE)
    with pytest.warns(UserWarning, match="could not be pinned") as caught:
        assert run(gpu, loader, wanted) == []
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "bytes could not be pinned (CUDA error: operation not permitted (800); RLIMIT_MEMLOCK is" in text
    assert "\n" not in text
    stats = loader.stats()["stages"]["transfer"]
    assert stats["pinned_bytes"] == 0
    assert stats["host_copies"] == stats["count"] >= 26


def test_a_lost_device_is_an_error(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(0)
    loader = on(gpu, tiny)
    iterator = iter(loader)
    next(iterator)
    gpu.lost = True
    with pytest.raises(errors.DeviceError, match="device failed while moving batches.*launch failure"):
        next(iterator)
    loader.close()
    loader.close()
    with pytest.raises(errors.StateError, match="closed"):
        next(iter(loader))


def test_a_device_that_never_ends_its_copies_lets_close_return(
    tiny: PackedDataset, on: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the memory stays pinned, for the device may still read it."""
    monkeypatch.setattr("fastload.transfer.pipeline._DRAIN_SECONDS", 0.2)
    gpu = SimulatedGpu(0, 0.0)
    loader = on(gpu, tiny)
    next(iter(loader))
    monkeypatch.setattr(gpu, "passed", lambda event: False)
    loader.close()
    assert len(gpu.pinned) == 1


def test_waiting_for_a_slot_times_out(tiny: PackedDataset, on: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimulatedGpu(0, 0.0)
    loader = on(gpu, tiny, timeout=0.2)
    monkeypatch.setattr(gpu, "passed", lambda event: False)
    with pytest.raises(RuntimeError, match=r"timed out after \d+\.\d seconds: the device is not done"):
        list(loader)
    monkeypatch.undo()
    loader.close()


@pytest.mark.parametrize("eagerness", [0.0, 0.5], ids=["late", "now and then"])
@pytest.mark.parametrize("mode", ["fresh", "reuse"])
def test_inference_mode_may_begin_and_end_anywhere(
    tiny: PackedDataset, on: Make, mode: str, eagerness: float
) -> None:
    wanted = expected(tiny, NORMALIZE)[0]
    assert len(wanted) > 4
    gpu = SimulatedGpu(0, eagerness)
    iterator = iter(on(gpu, tiny, transform=NORMALIZE, device=Device(memory=mode)))
    for number, batch in enumerate(wanted):
        with torch.inference_mode(number % 4 in (0, 3)):
            images, labels = next(iterator)
        gpu.synchronize()
        assert torch.equal(labels, batch[1])
        assert close(images, batch[0])


class Interrupted(SimulatedGpu):
    """Ctrl-C arrives in some of the calls."""

    armed = False

    def advance(self) -> None:
        super().advance()
        if self.armed and self.random.random() < 0.03:
            self.armed = False
            raise KeyboardInterrupt


def test_ctrl_c_anywhere_spoils_nothing(tiny: PackedDataset, on: Make) -> None:
    """The iterations after one that was interrupted in a transfer are right, and no slot is lost."""
    wanted = expected(tiny, NORMALIZE, shuffle=True)[0]
    caught = 0
    for seed in range(15):
        gpu = Interrupted(seed, 0.3)
        loader = on(gpu, tiny, transform=NORMALIZE, shuffle=True)
        step = Step(gpu)
        for _ in range(12):
            loader.set_epoch(0)
            iterator = iter(loader)
            try:
                for batch in wanted:
                    gpu.armed = True
                    images, labels = next(iterator)
                    gpu.armed = False
                    step(images, labels, batch)
            except KeyboardInterrupt:
                gpu.armed = False
                caught += 1
        assert step.finish() == []
        backend = loader._epochs.backend
        backend.cancel()
        backend._slots.reclaim()
        assert {state.value for state in backend._slots.states} == {"free"}
        loader.close()
        assert gpu.failures == []
        assert gpu.pinned == {}
    assert caught > 50


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_raises_and_leaves_the_parents_memory_alone(tiny: PackedDataset, on: Make) -> None:
    wanted = expected(tiny)[0]
    gpu = SimulatedGpu(0)
    loader = on(gpu, tiny)
    iterator = iter(loader)
    next(iterator)
    pid = os.fork()
    if pid == 0:
        try:
            with pytest.raises(errors.StateError, match=r"before fork\(\)"):
                next(iterator)
            loader.close()
            del loader, iterator
            gc.collect()
            os._exit(0 if gpu.pinned else 2)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for (images, labels), batch in zip(iterator, wanted[1:], strict=True):
        gpu.synchronize()
        assert torch.equal(images, batch[0])
        assert torch.equal(labels, batch[1])
    loader.close()


def test_faults_keep_their_policy_and_their_turn(tmp_path: Path, on: Make) -> None:
    """A bad sample of a batch that is decoded ahead counts when that batch is asked for."""
    blobs = jpegs(40)
    blobs[21] = blobs[21][:200]
    dataset = plain_pack(tmp_path, blobs, range(40))
    crop = T.RandomResizedCrop(16)
    gpu = SimulatedGpu(0, 0.9)
    iterator = iter(on(gpu, dataset, transform=crop, prefetch_factor=4))
    seen = [next(iterator)[1], next(iterator)[1]]
    gpu.synchronize()
    assert torch.cat(seen).tolist() == list(range(16))
    with pytest.raises(errors.SampleError, match="Sample 21"):
        next(iterator)
    for policy in ("skip", "replace"):
        options = {"seed": 0, "transform": crop, "on_error": policy, "prefetch_factor": 4}
        plain = [(i.clone(), y.clone()) for i, y in DataLoader(dataset, 8, **options)]
        loader = on(gpu, dataset, **options)
        for (images, labels), batch in zip(loader, plain, strict=True):
            gpu.synchronize()
            assert torch.equal(labels, batch[1])
            assert torch.equal(images, batch[0])
        assert {report.sample for report in loader.errors} == {21}
        loader.close()


def test_default_device_and_default_dtype_do_not_matter(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(0)
    try:
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float64)
        images, labels = next(iter(on(gpu, tiny, transform=NORMALIZE)))
        host, _ = next(iter(DataLoader(tiny, 4)))
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    gpu.synchronize()
    assert images.dtype == torch.float32
    assert labels.tolist() == list(range(8))
    assert host.device.type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA here")
def test_without_cuda_it_is_one_line_and_the_cpu(
    tiny: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastload.transfer.cuda._warned", set())
    loader = DataLoader(tiny, 8, device="cuda")
    with pytest.warns(UserWarning, match='device="cuda", but CUDA finds no device'):
        assert loader.memory_plan()["pinned_bytes"] == 0
    images, _ = next(iter(loader))  # warnings are errors here: there is no second one
    assert images.device.type == "cpu"


def test_next_during_capture_says_so(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(0)
    loader = on(gpu, tiny)
    iterator = iter(loader)
    next(iterator)
    gpu.captures = True
    with pytest.raises(errors.StateError, match="while the current stream records a CUDA graph"):
        next(iterator)
    loader.close()


def names_of(profiler: Any) -> list[str]:
    return [event.name for event in profiler.events() if "fastload" in event.name]


def test_ranges_appear_where_somebody_profiles(tiny: PackedDataset, on: Make) -> None:
    gpu = SimulatedGpu(0)
    loader = on(gpu, tiny, transform=NORMALIZE)
    iterator = iter(loader)
    next(iterator)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        next(iterator)
        next(iterator)
    loader.close()
    names = names_of(profiler)
    assert names.count("enumerate(DataLoader)#fastload.DataLoader.__next__") == 2
    assert [name for name in names if "convert" in name] == [
        "fastload.transfer.convert#1",
        "fastload.transfer.convert#2",
    ]
    assert any(name.startswith("fastload.transfer.copy#") for name in names)


def test_the_host_path_has_its_range(tiny: PackedDataset) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        list(DataLoader(tiny, 50))
    assert names_of(profiler) == ["enumerate(DataLoader)#fastload.DataLoader.__next__"] * 2


def test_only_the_devices_errors_become_device_errors() -> None:
    def fail(error: BaseException) -> Callable[[], None]:
        def call() -> None:
            raise error

        return call

    for text in ("CUDA error: an illegal memory access", "CUDA driver error: unknown error"):
        with pytest.raises(errors.DeviceError, match=text):
            guarded("working", fail(RuntimeError(text)))
    for other in (
        RuntimeError("DataLoader timed out"),
        RuntimeError("Expected all tensors to be on CUDA"),
        torch.cuda.OutOfMemoryError("CUDA out of memory"),
        errors.StateError("CUDA error in the text"),
        KeyboardInterrupt(),
    ):
        with pytest.raises(type(other)) as caught:
            guarded("working", fail(other))
        assert caught.value is other
