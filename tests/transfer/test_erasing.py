"""RandomErasing in a transform: the core's, behind its store; on a device, of whole batches; the same
rectangles everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import augment_reference as slow
import numpy as np
import pytest
import torch
from simulated_gpu import SimulatedGpu
from torchvision_likes import from_torchvision

from fastload import DataLoader, Device, PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.batch import ColorJitter

Make = Callable[..., DataLoader]
NORMALIZE = T.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
VALUE = (0.25, -1.0, 7.5)
ONE = T.RandomErasing(0.7, (0.02, 0.6), value=VALUE)
SEVERAL = T.RandomErasing(0.8, (0.1, 0.9), value=VALUE, count=(1, 4))


def batches(dataset: PackedDataset, *chain: Any, **options: Any) -> list[Any]:
    transform = T.Compose(list(chain))
    with DataLoader(dataset, 8, **{"num_workers": 2, "seed": 3, "transform": transform, **options}) as loader:
        found = [(images.clone(), labels.clone()) for images, labels in loader]
    assert len(found) > 1
    return found


def same(image: Any) -> Any:
    return image


def erased(dataset: PackedDataset, spec: Any, *chain: Any) -> list[np.ndarray]:
    """What each sample's picture is, sample by sample, rectangle by rectangle."""
    pictures = [image for images, _ in batches(dataset, *chain) for image in images.numpy()]
    for sample, picture in enumerate(pictures):
        for where in slow.boxes(spec, 3, 0, sample, 0, 6, 6):
            pictures[sample] = picture = slow.erased(picture, where, spec.value)
    return pictures


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("spec", [ONE, SEVERAL])
def test_the_core_erases_what_it_stores(tiny: PackedDataset, spec: Any, dtype: str) -> None:
    chain = [NORMALIZE, T.ToDtype(dtype)] if dtype != "float32" else [NORMALIZE]
    found = [image for images, _ in batches(tiny, *chain, spec) for image in images]
    plain = [image for images, _ in batches(tiny, *chain) for image in images]
    changed = 0
    for sample, (image, base) in enumerate(zip(found, plain, strict=True)):
        wanted = base.clone()
        for top, bottom, left, right in slow.boxes(spec, 3, 0, sample, 0, 6, 6):
            wanted[:, top:bottom, left:right] = torch.tensor(VALUE).view(3, 1, 1).to(wanted.dtype)
        assert torch.equal(image, wanted)
        changed += not torch.equal(image, base)
    assert 40 < changed < 95


@pytest.mark.parametrize("spec", [ONE, SEVERAL])
def test_python_behind_it_and_batches_by_name_get_the_same(tiny: PackedDataset, spec: Any) -> None:
    wanted = torch.from_numpy(np.stack(erased(tiny, spec, NORMALIZE)))
    behind = batches(tiny, NORMALIZE, spec, same, num_workers=0)
    assert torch.equal(torch.cat([images for images, _ in behind]), wanted)
    chain = T.Compose([NORMALIZE, spec])
    with DataLoader(tiny, 8, transform=chain, seed=3, num_workers=2, fields=["image", "label"]) as loader:
        assert torch.equal(torch.cat([batch["image"].clone() for batch in loader]), wanted)


@pytest.mark.parametrize("spec", [ONE, SEVERAL])
def test_the_device_erases_the_same_rectangles(tiny: PackedDataset, on: Make, spec: Any) -> None:
    wanted = torch.from_numpy(np.stack(erased(tiny, spec, NORMALIZE)))
    chain = T.Compose([NORMALIZE, spec])
    for fields in (None, ["image", "label"]):
        gpu, found = SimulatedGpu(2, 0.2), []
        for batch in on(gpu, tiny, transform=chain, seed=3, fields=fields):
            gpu.finish(gpu.current)
            found.append((batch[0] if fields is None else batch["image"]).clone())
        assert (torch.cat(found).double() - wanted.double()).abs().max() <= 2.0**-20


def test_jitter_of_batches_goes_before_it(tiny: PackedDataset) -> None:
    """Colours change before normalisation, which then is the batch's, and so is erasing."""
    found = batches(tiny, NORMALIZE, ONE, batch_transform=ColorJitter())
    wanted = torch.from_numpy(np.stack(erased(tiny, ONE, NORMALIZE)))
    assert (torch.cat([images for images, _ in found]) - wanted).abs().max() < 2e-5


def test_uint8_takes_whole_numbers(tiny: PackedDataset) -> None:
    spec = T.RandomErasing(0.6, value=7)
    found = [image for images, _ in batches(tiny, spec) for image in images.numpy()]
    assert np.array_equal(np.stack(found), np.stack(erased(tiny, spec)))
    with pytest.raises(ValueError, match="with what uint8 does not hold: put ToDtype or Normalize before it"):
        compile_plan(T.RandomErasing(value=0.5))
    with pytest.raises(ValueError, match="with what uint8 does not hold"):
        compile_plan(T.RandomErasing(value="random"))


def noise_of(value: str, side: int, samples: int) -> list[np.ndarray]:
    """What stands in the rectangles of zero pictures, (pixels, 3) each."""
    spec = T.RandomErasing(1.0, (0.3, 0.3), (1.0, 1.0), value)
    plan = compile_plan(T.Compose([T.ToDtype("float32"), spec]))
    found = []
    for sample in range(samples):
        picture = np.full((side, side, 12), 255, np.uint8)  # NaN
        _C.erase(picture, plan.store_spec(), 5, 1, sample)
        values = picture.view(np.float32)
        found.append(values[~np.isnan(values).any(axis=2)])
    return found


def test_noise_is_normal_and_independent() -> None:
    """Moments, and the greatest distance from the normal distribution function (Kolmogorov, Smirnov)."""
    found = noise_of("random", 100, 60)
    values = np.concatenate([one.ravel() for one in found]).astype(np.float64)
    n = values.size
    assert n > 400_000
    assert abs(values.mean()) < 5 / math.sqrt(n)
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((values**3).mean()) < 5 * math.sqrt(15 / n)
    assert abs((values**4).mean() - 3) < 5 * math.sqrt(96 / n)
    assert 4.0 < np.abs(values).max() < 4.4
    ordered = np.sort(values)
    normal = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in ordered])
    assert np.abs(normal - (np.arange(n) + 0.5) / n).max() < 1.95 / math.sqrt(n)  # 1 in 1,000
    for lag in (1, 2, 3, 8, 24, 300):
        assert abs((values[lag:] * values[:-lag]).mean()) < 5 / math.sqrt(n)
    assert not np.array_equal(found[0][:9], found[1][:9])


def test_a_colour_is_drawn_for_each_rectangle() -> None:
    found = noise_of("color", 20, 400)
    assert all((one == one[0]).all() for one in found)
    colours = np.stack([one[0] for one in found])
    assert abs(colours.mean()) < 5 / math.sqrt(1200)
    assert abs(colours.var() - 1) < 5 * math.sqrt(2 / 1200)
    assert np.abs(np.corrcoef(colours.T) - np.eye(3)).max() < 0.2


@pytest.mark.parametrize("value", ["random", "color"])
def test_noise_of_a_device_is_in_the_same_rectangles(tiny: PackedDataset, on: Make, value: str) -> None:
    spec = T.RandomErasing(0.7, (0.02, 0.6), value=value)
    plain = torch.cat([images for images, _ in batches(tiny, NORMALIZE)])
    host = torch.cat([images for images, _ in batches(tiny, NORMALIZE, spec)])
    gpu, found = SimulatedGpu(2, 0.2), []
    for images, _ in on(gpu, tiny, transform=T.Compose([NORMALIZE, spec]), seed=3):
        gpu.finish(gpu.current)
        found.append(images.clone())
    device = torch.cat(found)
    assert torch.equal((host - plain).abs() > 1e-5, (device - plain).abs() > 1e-5)
    filled = device[(host - plain).abs() > 1e-5]
    assert abs(filled.mean()) < 5 / math.sqrt(100)
    assert 0.7 < filled.std() < 1.3


def test_torchvisions_and_timms_objects_become_native() -> None:
    module = "torchvision.transforms.transforms"
    base = {"p": 0.1, "scale": (0.02, 0.33), "ratio": (0.3, 3.3)}
    chain = [from_torchvision("ToTensor"), T.Normalize((0.5,) * 3, (0.5,) * 3)]
    for value, wanted in ((0, T.RandomErasing(0.1)), ("random", T.RandomErasing(0.1, value="random"))):
        item = from_torchvision("RandomErasing", module, **base, value=value, inplace=False)
        plan = compile_plan(T.Compose([*chain, item]))
        assert (plan.tail, plan.erase) == ((), wanted.planned)
        assert plan.is_random
    timm = {
        "probability": 0.25,
        "min_area": 0.02,
        "max_area": 1 / 3,
        "log_aspect_ratio": (math.log(0.3), math.log(1 / 0.3)),
        "min_count": 1,
        "max_count": 3,
        "per_pixel": True,
        "rand_color": False,
    }
    plan = compile_plan(
        T.Compose([*chain, from_torchvision("RandomErasing", "timm.data.random_erasing", **timm)])
    )
    wanted = T.RandomErasing(0.25, (0.02, 1 / 3), (0.3, 1 / 0.3), "random", (1, 3)).planned
    assert plan.erase is not None
    assert plan.erase.log_ratio == pytest.approx(wanted.log_ratio)
    assert (plan.erase.count, plan.erase.fill, plan.erase.area) == (wanted.count, wanted.fill, wanted.area)


def test_explain_says_where(tiny: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = T.Compose([NORMALIZE, ONE])

    def where() -> list[str]:
        loader = DataLoader(tiny, 4, transform=chain)
        return [step.where for step in loader.explain().steps if step.stage == "transform"]

    assert where() == ["core", "core"]
    monkeypatch.setattr("fastload.loader.explain.goes_to_gpu", lambda device: True)
    assert where() == ["core", "on the device"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_transform": ONE}, "stands in transform and in batch_transform"),
        ({"device": Device("cuda", memory="reuse")}, "RandomErasing in transform exclude each other"),
    ],
)
def test_what_it_excludes(tiny: PackedDataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(tiny, 4, transform=T.Compose([NORMALIZE, ONE]), **options)


def test_its_place_is_the_last() -> None:
    for chain in ([ONE, NORMALIZE], [NORMALIZE, ONE, ONE]):
        with pytest.raises(ValueError, match=r"out of order|does not hold"):
            compile_plan(T.Compose(chain))
