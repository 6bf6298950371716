"""The transfer on a real GPU: bytes, streams, graphs, memory. Skipped without one (see conftest.py)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from cuda_steps import DeviceStep, batches_of

from fastload import DataLoader, Device, PackedDataset, errors
from fastload import transforms as T
from fastload.transforms.batch import ColorJitter, CutMix, MixUp, RandomErasing

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(300)]

CROP = [T.RandomResizedCrop(48), T.RandomHorizontalFlip()]
NUMBERS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
UNITS = {"float16": 2.0**-8, "bfloat16": 2.0**-5, "float32": 2.0**-21}  # at values up to 4


def transform_to(dtype: str) -> T.Compose:
    if dtype == "uint8":
        return T.Compose(CROP)
    return T.Compose([*CROP, T.ToDtype("float32", scale=True), T.Normalize(*NUMBERS), T.ToDtype(dtype)])


def loader_of(dataset: Any, dtype: str = "uint8", **options: Any) -> DataLoader:
    settings = {
        "device": "cuda",
        "shuffle": True,
        "num_workers": 3,
        "transform": transform_to(dtype),
        "seed": 0,
    }
    return DataLoader(dataset, 8, **{**settings, **options})


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_equals_the_cpu_path(packed: PackedDataset, dtype: str) -> None:
    wanted = batches_of(loader_of(packed, dtype, device=None), epochs=2)
    found = batches_of(loader_of(packed, dtype), epochs=2)
    assert len(found) == len(wanted) == 14
    for (images, labels), (pixels, same) in zip(found, wanted, strict=True):
        assert images.device.type == labels.device.type == "cuda"
        assert images.dtype == pixels.dtype
        assert images.stride() == pixels.stride()
        assert torch.equal(labels.cpu(), same)
        if dtype == "uint8":
            assert torch.equal(images.cpu(), pixels)
        else:
            assert (images.cpu().double() - pixels.double()).abs().max() <= UNITS[dtype]


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
@pytest.mark.parametrize("mode", ["fresh", "reuse"])
def test_random_delays_on_random_streams(packed: PackedDataset, dtype: str, mode: str) -> None:
    """Checksums by kernels that run some time after the batch was asked for; kept tensors at the end."""
    wanted = batches_of(loader_of(packed, dtype), epochs=2)  # right, as the test above shows
    for seed in range(6):
        step = DeviceStep(random.Random(seed), keeps=mode == "fresh")
        loader = loader_of(packed, dtype, device=Device(memory=mode), prefetch_factor=1 + seed % 3)
        number = 0
        for _ in range(2):
            iterator = iter(loader)
            for _ in range(len(loader)):
                with torch.cuda.stream(step.any_stream()):
                    images, labels = next(iterator)
                    step(images, labels, wanted[number])
                del images, labels
                number += 1
            assert next(iterator, None) is None
        assert step.wrong() == 0
        loader.close()


def test_kept_tensors_survive_everything(packed: PackedDataset) -> None:
    loader = loader_of(packed, "float32")
    kept = [(images, labels) for images, labels in loader]
    sums = [(images.double().sum().item(), labels.sum().item()) for images, labels in kept]
    for _ in range(3):
        for _ in loader:
            torch.empty(1 << 20, device="cuda").fill_(7.0)
    loader.close()
    del loader
    torch.cuda.synchronize()
    assert [(images.double().sum().item(), labels.sum().item()) for images, labels in kept] == sums


def test_poison_shows_a_kept_batch(packed: PackedDataset) -> None:
    iterator = iter(loader_of(packed, "float16", device=Device(memory="poison")))
    images, labels = next(iterator)
    assert not images.isnan().any()
    next(iterator)
    assert images.isnan().all()
    assert (labels < -(2**60)).all()


def model_of() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 46 * 46, 5)
    return torch.nn.Sequential(*layers).cuda().half().to(memory_format=torch.channels_last)


@pytest.mark.parametrize("mode", ["fresh", "reuse"])
def test_a_captured_step_replays_on_every_batch(packed: PackedDataset, mode: str) -> None:
    """Captured while the loader's threads decode and its copies run; "reuse" needs no copy to an input."""
    model = model_of()
    loader = loader_of(packed, "float16", drop_last=True, device=Device(memory=mode))
    iterator = iter(loader)
    images, _ = next(iterator)
    static = images if mode == "reuse" else images.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            model(static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = model(static)
    seen = 0
    for epoch in range(2):
        for images, _ in iterator if epoch == 0 else loader:
            if mode == "fresh":
                static.copy_(images)
            assert (images.data_ptr() == static.data_ptr()) == (mode == "reuse")
            graph.replay()
            with torch.no_grad():
                assert torch.allclose(output, model(images), atol=2e-2, rtol=1e-2)
            seen += 1
    assert seen == 11
    loader.close()


def test_next_in_a_capture_is_an_error_and_spoils_nothing(packed: PackedDataset) -> None:
    loader = loader_of(packed)
    iterator = iter(loader)
    next(iterator)
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = x + 1
        with pytest.raises(errors.StateError, match="records a CUDA graph"):
            next(iterator)
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [1.0] * 4
    assert len(batches_of(loader, epochs=1)) == 7
    loader.close()


@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
def test_a_compiled_step(packed: PackedDataset) -> None:
    """Strides and dtype are the same for every batch: one graph, and one for the last batch's size."""
    graphs = []

    def backend(module: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(module)
        return module.forward

    compiled = torch.compile(
        lambda images: images.float().mean((1, 2, 3)) * 2, backend=backend, dynamic=False
    )
    loader = loader_of(packed, "float16")
    for _ in range(2):
        for images, _ in loader:
            assert torch.allclose(compiled(images), images.float().mean((1, 2, 3)) * 2)
    assert len(graphs) == 2
    loader.close()


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # of torch's own
def test_one_kernel_one_copy_and_no_other_memory(packed: PackedDataset) -> None:
    """Normalisation, dtype and layout in one pass: the only memory that next() takes is the batch's."""
    loader = loader_of(packed, "float16", drop_last=True)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        batch = next(iterator)
        taken = torch.cuda.max_memory_allocated() - before
        torch.cuda.synchronize()
    rounded = sum(-(-tensor.nbytes // 512) * 512 for tensor in batch)
    assert taken == rounded
    names = [event.name for event in profiler.events() if event.device_type.name == "CUDA"]
    assert names.count("convert") == 1, names  # the kernel of kernels.py
    assert sum("elementwise" in name for name in names) == 0, names
    assert sum("HtoD" in name for name in names) <= 3, names  # this batch's, and two ahead of it
    loader.close()


@pytest.mark.parametrize(
    "batch_transform",
    [
        [ColorJitter(0.4, 0.4, 0.4, 0.1), RandomErasing(0.8), MixUp(5)],
        [RandomErasing(value=(1.0, 2.0, 3.0)), CutMix(5)],
    ],
)
def test_batch_transforms_equal_the_cpus(packed: PackedDataset, batch_transform: Any) -> None:
    options = {"dtype": "float32", "batch_transform": batch_transform}
    wanted = batches_of(loader_of(packed, device=None, **options), epochs=1)
    found = batches_of(loader_of(packed, **options), epochs=1)
    assert len(found) == 7
    for (images, labels), (pixels, soft) in zip(found, wanted, strict=True):
        assert (images.cpu() - pixels).abs().max() < 2e-4
        assert (labels.cpu() - soft).abs().max() < 1e-6


def test_a_callables_random_numbers_are_the_batchs(packed: PackedDataset) -> None:
    def noise(images: torch.Tensor, labels: torch.Tensor) -> Any:
        return images + torch.rand(len(images), 1, 1, 1, device=images.device), labels + torch.rand(1).item()

    torch.manual_seed(1)
    wanted = torch.rand(3, device="cuda"), torch.rand(3)
    torch.manual_seed(1)
    runs = [batches_of(loader_of(packed, "float32", batch_transform=noise), epochs=1) for _ in range(2)]
    assert all(
        torch.equal(a, b)
        for first, second in zip(*runs, strict=True)
        for a, b in zip(first, second, strict=True)
    )
    assert torch.equal(torch.rand(3, device="cuda"), wanted[0])
    assert torch.equal(torch.rand(3), wanted[1])


@pytest.mark.parametrize("collate", ["stack", "ragged"])
def test_dicts_of_fields_equal_the_cpus(packed: PackedDataset, collate: str) -> None:
    """Through the ring, and through torch's pinned memory."""
    options: dict[str, Any] = {"fields": ["label", "image"], "collate": collate, "dtype": "float32"}
    with loader_of(packed, device=None, **options) as loader:
        wanted = list(loader)
    with loader_of(packed, **options) as loader:
        found = list(loader)
    assert len(found) == len(wanted) == 7
    for batch, same in zip(found, wanted, strict=True):
        assert batch["label"].device.type == batch["valid"].device.type == "cuda"
        assert torch.equal(batch["label"].cpu(), same["label"])
        for pixels, expected in zip(batch["image"], same["image"], strict=True):
            assert (pixels.cpu() - expected).abs().max() <= UNITS["float32"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_torch_dataset_arrives_whole(workers: int) -> None:
    data = [{"x": torch.full((1000,), i), "name": str(i)} for i in range(64)]
    loader = DataLoader(data, 4, num_workers=workers, device="cuda")
    step, kept = DeviceStep(random.Random(0)), []
    for _ in range(3):
        for batch in loader:
            step.sleep()
            kept.append((batch["x"], [int(name) for name in batch["name"]]))
            assert batch["x"].device.type == "cuda"
    for x, ids in kept:
        assert torch.equal(x.cpu(), torch.tensor(ids)[:, None].expand(len(ids), 1000))
    assert loader.stats()["stages"]["transfer"]["count"] == 48


def test_autocast_inference_mode_and_defaults_do_not_matter(packed: PackedDataset) -> None:
    wanted = batches_of(loader_of(packed, "float32"), epochs=1)
    with torch.inference_mode(), torch.autocast("cuda", torch.float16), torch.device("cuda"):
        found = batches_of(loader_of(packed, "float32"), epochs=1)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(found, wanted, strict=True))


def test_the_clock_counts_what_crossed_the_bus(packed: PackedDataset) -> None:
    loader = loader_of(packed, "float32")
    batches_of(loader, epochs=2)
    torch.cuda.synchronize()
    next(iter(loader))  # takes note of the copies that are done
    transfer = loader.stats()["stages"]["transfer"]
    assert transfer["seconds"] > 0
    assert transfer["host_copies"] == 0
    assert transfer["bytes"] < 1.5 * 108 * 48 * 48 * 3  # uint8, and at most 17 batches of 8
    loader.close()


def test_another_current_device_does_not_matter(packed: PackedDataset, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        with pytest.raises(ValueError, match="device must have an index below 1"):
            next(iter(loader_of(packed, device="cuda:1")))
        return
    wanted = batches_of(loader_of(packed, device=None), epochs=1)
    with torch.cuda.device(0):
        found = batches_of(loader_of(packed, device="cuda:1"), epochs=1)
    assert all(images.device.index == 1 for images, _ in found)
    assert all(torch.equal(a[0].cpu(), b[0]) for a, b in zip(found, wanted, strict=True))
