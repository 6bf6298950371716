"""Gaussian noise: torchvision's distribution on uint8, drawn for each sample, the same at each SIMD level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torchvision_likes import from_torchvision

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.plan import PixelUse

GRAY = np.full((250, 400, 3), 128, np.uint8)


def noisy(pixels: Any, spec: T.GaussianNoise, sample: int = 0) -> Any:
    return _C.operate(pixels, compile_plan(spec).pixel_spec(), 1, 0, sample)


def torchvisions(pixels: Any, spec: T.GaussianNoise) -> Any:
    """torchvision's gaussian_noise_image of a uint8 tensor, line by line."""
    image = torch.from_numpy(pixels)
    noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(0)) * (spec.sigma * 255)
    out = image + (spec.mean * 255 + noise).to(torch.int16)
    return (torch.clamp(out, 0, 255) if spec.clip else out).to(torch.uint8).numpy()


@pytest.mark.parametrize("value", [0, 60, 128, 255])
@pytest.mark.parametrize(
    "spec",
    [
        T.GaussianNoise(),
        T.GaussianNoise(0.0, 0.003),
        T.GaussianNoise(0.2, 0.05),
        T.GaussianNoise(-0.3, 0.5),
        T.GaussianNoise(0.0, 0.1, clip=False),
        T.GaussianNoise(0.4, 0.7, clip=False),
    ],
)
def test_values_are_distributed_as_torchvisions(spec: T.GaussianNoise, value: int) -> None:
    pixels = np.full_like(GRAY, value)
    counts = [np.bincount(made(pixels, spec).ravel(), minlength=256) for made in (noisy, torchvisions)]
    ours, theirs = (count[counts[0] + counts[1] > 20] for count in counts)
    # Two samples of the same size: chi-square with about len(ours) degrees of freedom, six deviations.
    found = ((ours - theirs) ** 2 / (ours + theirs)).sum()
    assert found < len(ours) + 6 * np.sqrt(2 * len(ours))
    assert len(ours) >= 1
    assert ours.sum() > 0.99 * GRAY.size


def test_values_do_not_depend_on_each_other() -> None:
    """Neither neighbours, channels nor samples."""
    found = [noisy(GRAY, T.GaussianNoise(), sample).astype(np.float64).ravel() - 128 for sample in (0, 1)]
    deviations = 5 / np.sqrt(GRAY.size)
    for step in (1, 2, 3, 4, 64, 128, 192, 256, 1200):
        assert abs(np.corrcoef(found[0][:-step], found[0][step:])[0, 1]) < deviations
    assert abs(np.corrcoef(found[0], found[1])[0, 1]) < deviations
    assert np.array_equal(noisy(GRAY, T.GaussianNoise(), 1), found[1].reshape(GRAY.shape) + 128)


def test_two_uses_draw_apart_and_numbers_may_change_between_pictures() -> None:
    twice = compile_plan(T.Compose([T.GaussianNoise(0.0, 0.1), T.GaussianNoise(0.0, 0.05)])).pixel_spec()
    noise = _C.operate(GRAY, twice, 1, 0, 0).astype(np.float64) - 128
    wanted = 255 * np.hypot(0.1, 0.05)
    assert abs(noise.std() / wanted - 1) < 0.05  # both lose their fractions
    first = noisy(GRAY, T.GaussianNoise(0.0, 0.1))
    noisy(GRAY, T.GaussianNoise(0.1, 0.2))
    assert np.array_equal(noisy(GRAY, T.GaussianNoise(0.0, 0.1)), first)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 2), (85, 1), (86, 1), (31, 17), (64, 64)])
def test_levels_give_the_same(width: int, height: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    best, found = _C.simd_level(), []
    try:
        for level in ("scalar", "neon", "sse4", "avx2", "avx512"):
            _C.set_simd_level(level)
            found += [noisy(pixels, T.GaussianNoise(0.1, 0.3, clip)) for clip in (True, False)]
    finally:
        _C.set_simd_level(best)
    assert len(found) == 10
    assert all(np.array_equal(found[i % 2], found[i]) for i in range(10))


def test_torchvisions_object_becomes_native_on_pictures_and_uint8_tensors() -> None:
    item = from_torchvision("GaussianNoise", mean=0.0, sigma=0.2, clip=True)
    use = PixelUse("gaussian_noise", 1.0, (0.0, 0.2, 1.0))
    assert compile_plan(item).pixels == (use,)
    plan = compile_plan(T.Compose([from_torchvision("PILToTensor"), item]))
    assert (plan.pixels, plan.tail) == ((use,), ())
    floats = compile_plan(T.Compose([from_torchvision("ToTensor"), item]))
    assert floats.tail == (item,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": -0.1}, r"GaussianNoise.sigma must be in \[0, 16\]. Found: -0.1"),
        ({"mean": 17}, r"GaussianNoise.mean must be in \[-16, 16\]. Found: 17"),
        ({"sigma": float("nan")}, r"GaussianNoise.sigma must be 1 finite numbers"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        T.GaussianNoise(**arguments)
