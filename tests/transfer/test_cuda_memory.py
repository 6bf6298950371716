"""Memory and trouble on a real GPU: what is pinned, what is held, what happens when it fails."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from process import resident, threads

from fastload import DataLoader, Device, PackedDataset
from fastload import transforms as T
from fastload.backends.device import DeviceBackend
from fastload.transfer.cuda import CudaGpu, find_gpu

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(300)]

TRANSFORM = T.Compose([T.RandomResizedCrop(48), T.Normalize((0.5,) * 3, (0.2,) * 3)])


def loader_of(dataset: Any, **options: Any) -> DataLoader:
    return DataLoader(
        dataset, 8, **{"device": "cuda", "num_workers": 3, "transform": TRANSFORM, "seed": 0, **options}
    )


@pytest.fixture
def gpu() -> CudaGpu:
    found = find_gpu("cuda")
    assert isinstance(found, CudaGpu)
    return found


def test_pinned_bytes_are_the_planned_ones(packed: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: dict[int, int] = {}
    pin, unpin = CudaGpu.pin, CudaGpu.unpin

    def count(self: CudaGpu, address: int, nbytes: int) -> str | None:
        pinned[address] = nbytes
        return pin(self, address, nbytes)

    def discount(self: CudaGpu, address: int) -> None:
        del pinned[address]
        unpin(self, address)

    monkeypatch.setattr(CudaGpu, "pin", count)
    monkeypatch.setattr(CudaGpu, "unpin", discount)
    loader = loader_of(packed)
    plan = loader.memory_plan()
    before = torch.cuda.memory_allocated()
    iterator = iter(loader)
    batch = next(iterator)
    assert (
        sum(pinned.values()) == plan["pinned_bytes"] == loader.stats()["stages"]["transfer"]["pinned_bytes"]
    )
    backend = loader._epochs.backend
    assert isinstance(backend, DeviceBackend)
    (address,) = pinned
    slot = torch.from_numpy(np.frombuffer(backend._slots._map, np.uint8))
    assert slot.data_ptr() == address
    assert slot.is_pinned()
    held = torch.cuda.memory_allocated() - before - sum(tensor.nbytes for tensor in batch)
    assert plan["device_bytes"] <= held < plan["device_bytes"] + 8 * 512  # blocks of 512, and six constants
    del slot, iterator
    loader.close()
    assert pinned == {}


def test_copies_from_the_ring_do_not_wait(gpu: CudaGpu) -> None:
    """Registered memory is pinned to torch, so a copy behind a long kernel returns before it has run."""
    from fastload.sample.delivery import image_and_label
    from fastload.transfer.pipeline import Ring

    layout = image_and_label(torch.uint8, (64, 64)).of(8, [None, None])
    ring = Ring(gpu, layout, 2)
    slot = ring.lease(layout)
    assert slot is not None
    slot.bytes.fill_(3)
    assert slot.bytes.is_pinned()
    to, stream, event = (
        torch.zeros(len(slot.bytes), dtype=torch.uint8, device="cuda"),
        gpu.new_stream(),
        gpu.new_event(),
    )
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)
    gpu.copy(to, slot.bytes, stream)
    gpu.record(event, stream)
    assert not gpu.passed(event)
    stream.synchronize()
    assert (to == 3).all()
    ring.close()


def test_a_refused_registration_leaves_no_error_behind(gpu: CudaGpu) -> None:
    memory = np.zeros(1 << 16, np.uint8)
    address = -(-int(memory.__array_interface__["data"][0]) // 4096) * 4096
    assert gpu.pin(address, 4096) is None
    reason = gpu.pin(address, 4096)
    assert reason is not None
    assert "CUDA error" in reason
    assert torch.ones(3, device="cuda").sum().item() == 3
    gpu.unpin(address)
    gpu.unpin(address)
    assert torch.ones(3, device="cuda").sum().item() == 3


def test_pinning_refused_goes_on(packed: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [(i.clone(), y.clone()) for i, y in loader_of(packed)]
    monkeypatch.setattr(CudaGpu, "pin", lambda self, address, nbytes: "CUDA error: refused")
    loader = loader_of(packed)
    iterator = iter(loader)
    with pytest.warns(UserWarning, match=r"could not be pinned \(CUDA error: refused; RLIMIT_MEMLOCK"):
        first = next(iterator)
    found = [first, *iterator]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(found, wanted, strict=True))
    loader.close()


def child(code: str, folder: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a script with ``folder`` as its argument."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    line = [sys.executable, "-c", textwrap.dedent(code), str(folder)]
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=env, check=False)


def test_under_a_memlock_limit_it_pins_or_says_so(folder: Path) -> None:
    """Drivers differ in whether the limit counts for them; the batches are right in any case."""
    run = child(
        """
        import resource, sys, warnings
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        import torch
        from fastload import DataLoader, transforms as T
        crop = T.RandomResizedCrop(200)
        make = lambda device: DataLoader(sys.argv[1], 8, transform=crop, device=device, seed=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = make("cuda")
            same = all(torch.equal(a[0].cpu(), b[0]) for a, b in zip(loader, make(None), strict=True))
            pinned = loader.stats()["stages"]["transfer"]["pinned_bytes"] > 0
        lines = [str(w.message) for w in caught if "could not be pinned" in str(w.message)]
        assert same and len(lines) == (0 if pinned else 1), (same, pinned, lines)
        assert pinned or "RLIMIT_MEMLOCK is 65536 bytes" in lines[0]
        print("pinned" if pinned else "refused")
        """,
        folder,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() in ("pinned", "refused")


def test_a_lost_device_is_an_error_not_a_hang(folder: Path) -> None:
    run = child(
        """
        import sys, torch
        from fastload import DataLoader, errors, transforms as T
        loader = DataLoader(sys.argv[1], 8, transform=T.RandomResizedCrop(64), device="cuda")
        iterator = iter(loader)
        next(iterator)
        try:
            torch.zeros(1, device="cuda")[torch.tensor([1 << 20], device="cuda")]  # a device-side assertion
            for _ in range(6):
                next(iterator)
                torch.cuda.synchronize()
        except errors.DeviceError as error:
            print("DeviceError")
        except RuntimeError as error:
            print("RuntimeError", error)  # synchronize() met it first
            try:
                next(iter(loader))
            except errors.DeviceError:
                print("DeviceError")
        loader.close()
        print("closed", flush=True)
        import os; os._exit(0)
        """,
        folder,
    )
    assert run.returncode == 0, run.stderr
    assert "DeviceError" in run.stdout
    assert run.stdout.rstrip().endswith("closed")


@pytest.mark.parametrize("mode", ["fresh", "reuse"])
def test_two_hundred_breaks_leave_nothing(packed: PackedDataset, mode: str) -> None:
    gc.collect()
    before = threads()
    loader = loader_of(packed, device=Device(memory=mode))
    sizes = []
    for turn in range(200):
        for step, _ in enumerate(loader):
            if step == 2:
                break
        if turn % 50 == 49:
            gc.collect()
            torch.cuda.synchronize()
            sizes.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), resident()))
    assert sizes[-1][0] == sizes[0][0]
    assert sizes[-1][1] == sizes[0][1]
    assert sizes[-1][2] - sizes[0][2] < 8 << 20
    loader.close()
    del loader, _
    gc.collect()
    assert threads() <= before + 3  # the CUDA driver's own, if it was not started yet


def test_many_loaders_one_after_the_other(packed: PackedDataset) -> None:
    sizes = []
    for turn in range(40):
        loader = loader_of(packed)
        next(iter(loader))
        del loader
        if turn in (9, 39):
            gc.collect()
            torch.cuda.synchronize()
            sizes.append((torch.cuda.memory_allocated(), resident()))
    assert sizes[0][0] == sizes[1][0]
    assert sizes[1][1] - sizes[0][1] < 8 << 20
