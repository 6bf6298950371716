"""Gaussian blurs: Pillow's, bit for bit; torchvision's, bit for bit but for the rounding of exp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from blur_reference import convolved, core_weights, torchvision_weights, v2_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from torchvision_likes import from_torchvision, tv_crop

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.plan import Drawn, PixelUse

LEVELS = ("scalar", "neon", "sse4", "avx2", "avx512")  # lowered to what the machine has
# torch without AVX2 multiplies and adds, and differs from its own other builds.
needs_fma = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="torch has no AVX2"
)


def blurred(pixels: Any, name: str, *numbers: float) -> Any:
    return _C.operate(pixels, _C.PixelSpec([(name, 1.0, list(numbers))]), 0, 0, 0)


def photograph(seed: int, height: int, width: int) -> Any:
    """Something smooth with edges, as pictures are."""
    small = np.random.default_rng(seed).integers(
        0, 256, (max(1, height // 6), max(1, width // 6), 3), np.uint8
    )
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def noise(seed: int, height: int, width: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def two_levels(seed: int, height: int, width: int) -> Any:
    """Many sums lie halfway between two values."""
    return noise(seed, height, width) // 128 * 255


PICTURES = st.sampled_from([photograph, noise, two_levels])


@pytest.mark.parametrize("level", LEVELS)
@settings(deadline=None, max_examples=60)
@given(PICTURES, st.integers(0, 99), st.integers(1, 130), st.integers(1, 90), st.floats(0.01, 40))
def test_pillows_blur_is_exact(
    level: str, make: Any, seed: int, height: int, width: int, radius: float
) -> None:
    pixels, best = make(seed, height, width), _C.simd_level()
    wanted = np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius)))
    _C.set_simd_level(level)
    try:
        found = blurred(pixels, "gaussian_blur_pillow", radius)
    finally:
        _C.set_simd_level(best)
    assert np.array_equal(found, wanted)


@needs_fma
@pytest.mark.parametrize("level", LEVELS)
@settings(deadline=None, max_examples=40)
@given(
    PICTURES,
    st.integers(0, 99),
    st.integers(1, 90),
    st.integers(1, 90),
    st.sampled_from([1, 3, 5, 7, 9, 23, 31]),
    st.sampled_from([1, 3, 9, 23]),
    st.floats(0.125, 5.0, width=32),
)
def test_torchs_convolution_is_exact(
    level: str, make: Any, seed: int, height: int, width: int, across: int, down: int, sigma: float
) -> None:
    pixels, best = make(seed, height, width), _C.simd_level()
    _C.set_simd_level(level)
    try:
        found = blurred(pixels, "gaussian_blur", across, down, sigma)
    finally:
        _C.set_simd_level(best)
    assert np.array_equal(found, convolved(pixels, core_weights(across, sigma), core_weights(down, sigma)))


@needs_fma
@pytest.mark.parametrize("weights", [torchvision_weights, v2_weights])
def test_torchvisions_weights_change_fewer_than_40_of_a_million_values(weights: Any) -> None:
    differ = values = others = 0
    for seed in range(60):
        sigma = float(np.float32(np.random.default_rng(seed).uniform(0.1, 2.0)))
        pixels = (photograph, noise)[seed % 2](seed, 160, 160)
        found, taps = blurred(pixels, "gaussian_blur", 23, 23, sigma), weights(23, sigma)
        distance = np.abs(found.astype(int) - convolved(pixels, taps, taps))
        assert distance.max() <= 1
        differ, values = differ + int(distance.sum()), values + distance.size
        others += not torch.equal(taps, core_weights(23, sigma))
    assert differ < 40e-6 * values
    assert others > 1  # there was something to be seen


def test_specs_become_numbers_that_are_drawn() -> None:
    chain = T.Compose(
        [
            T.CenterCrop(8),
            T.RandomApply([T.GaussianBlur((23, 9), (0.1, 2.0))], p=0.5),
            T.GaussianBlur(3, 1.5),
            T.PillowGaussianBlur((0.1, 2)),
            T.PillowGaussianBlur(3),
        ]
    )
    plan, drawn = compile_plan(chain), Drawn("uniform", (0.1, 2.0))
    assert plan.is_random
    assert plan.pixels == (
        PixelUse("all", 0.5, (), (PixelUse("gaussian_blur", 1.0, (23, 9, drawn)),)),
        PixelUse("gaussian_blur", 1.0, (3, 3, 1.5)),
        PixelUse("gaussian_blur_pillow", 1.0, (drawn,)),
        PixelUse("gaussian_blur_pillow", 1.0, (3.0,)),
    )


def test_torchvisions_object_becomes_native() -> None:
    blur = from_torchvision("GaussianBlur", kernel_size=(23, 23), sigma=[0.1, 2.0])
    plan = compile_plan(T.Compose([tv_crop(), blur, from_torchvision("PILToTensor")]))
    assert plan.tail == ()
    assert plan.pixels == (PixelUse("gaussian_blur", 1.0, (23, 23, Drawn("uniform", (0.1, 2.0)))),)
    even = from_torchvision("GaussianBlur", kernel_size=(4, 4), sigma=(1.0, 1.0))
    assert "must be odd, at most 511" in compile_plan(even).steps[0].why


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.GaussianBlur(4), r"kernel_size must be odd, at most 511. Found: 4"),
        (lambda: T.GaussianBlur(513), r"kernel_size must be odd, at most 511. Found: 513"),
        (lambda: T.GaussianBlur(3, 0), r"GaussianBlur.sigma must be above 0, .* Found: 0"),
        (lambda: T.GaussianBlur(3, (2, 1)), r"GaussianBlur.sigma must be above 0, .* Found: \(2, 1\)"),
        (lambda: T.PillowGaussianBlur(-1), r"PillowGaussianBlur.radius must be above 0, .* Found: -1"),
        (lambda: T.PillowGaussianBlur(float("inf")), r"PillowGaussianBlur.radius must be 2 finite numbers"),
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
