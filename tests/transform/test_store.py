"""Store: torch's values within the stated bound, exact rounding to 16 bits, equal bits from every level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transform_reference import show, stored

from fastload._native import _C

DTYPES = ("uint8", "float16", "bfloat16", "float32")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
WIDTHS = [1, 2, 3, 5, 7, 8, 15, 16, 17, 21, 22, 31, 32, 33, 47, 48, 64, 65, 224]


def spec_of(dtype: str, channels_last: bool, scale: bool = False, norm: Any = None) -> _C.StoreSpec:
    given_norm = {} if norm is None else {"normalize": True, "mean": norm[0], "std": norm[1]}
    return _C.StoreSpec(dtype=dtype, channels_last=channels_last, scale=scale, **given_norm)


def tensor_of(raw: np.ndarray, dtype: str, width: int, height: int, channels_last: bool) -> torch.Tensor:
    shape = (height, width, 3) if channels_last else (3, height, width)
    return torch.frombuffer(bytearray(raw.tobytes()), dtype=getattr(torch, dtype)).reshape(shape)


def bound_of(scale: bool, norm: Any) -> float:
    """The largest error that store.h allows."""
    if norm is not None:
        return max(2.0**-23 * (1.5 + abs(m)) / abs(s) for m, s in zip(*norm, strict=True))
    return 2.0**-23 if scale else 0.0


def all_values(width: int) -> np.ndarray:
    """Pictures of this width in which every channel has every value."""
    height = -(-256 // width)
    ramp = np.resize(np.arange(256, dtype=np.uint8), (height, width))
    return np.stack([ramp, ramp[::-1], 255 - ramp], axis=2).copy()


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("norm", [None, IMAGENET, ((0.0, -1.0, 2.0), (-0.5, 1e-3, 40.0))])
@pytest.mark.parametrize("scale", [False, True])
def test_float32_is_within_its_bound(scale: bool, norm: Any, channels_last: bool, level: str) -> None:
    for width in WIDTHS:
        pixels = all_values(width)
        raw = _C.store(pixels, spec_of("float32", channels_last, scale, norm))
        found = tensor_of(raw, "float32", width, len(pixels), channels_last)
        exact = torch.from_numpy(pixels).double()
        if scale or norm:
            exact = exact / 255
        if norm:
            exact = (exact - torch.tensor(norm[0]).double()) / torch.tensor(norm[1]).double()
        exact = exact if channels_last else exact.permute(2, 0, 1)
        assert (found.double() - exact).abs().max() <= bound_of(scale, norm)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(
    "norm", [None, IMAGENET, ((0.5, 0.5, 0.5), (1e-4, 3e-3, 1e6)), ((0, 0, 0), (1e5, 3e4, 7e6))]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_are_rounded_as_torch_does(dtype: str, norm: Any, channels_last: bool, level: str) -> None:
    """To nearest even, from our float32: normal, subnormal and overflowing values."""
    for width in WIDTHS:
        pixels = all_values(width)
        exact = _C.store(pixels, spec_of("float32", channels_last, True, norm))
        raw = _C.store(pixels, spec_of(dtype, channels_last, True, norm))
        wanted = tensor_of(exact, "float32", width, len(pixels), channels_last).to(getattr(torch, dtype))
        found = tensor_of(raw, dtype, width, len(pixels), channels_last)
        assert torch.equal(found.view(torch.int16), wanted.view(torch.int16))


def test_float16_meets_subnormals_and_infinity() -> None:
    """So the test above is about them."""
    norm = ((0.5, 0.5, 0.5), (1e-6, 1.0, 1e6))
    found = tensor_of(_C.store(all_values(16), spec_of("float16", True, True, norm)), "float16", 16, 16, True)
    assert found[..., 0].isinf().any()
    small = found[..., 2].abs()
    assert ((small > 0) & (small < 2.0**-14)).any()


@pytest.mark.parametrize("channels_last", [True, False])
def test_uint8_is_unchanged(channels_last: bool, level: str) -> None:
    for width in WIDTHS:
        pixels = all_values(width)
        found = tensor_of(
            _C.store(pixels, spec_of("uint8", channels_last)), "uint8", width, len(pixels), channels_last
        )
        assert torch.equal(found, stored(pixels, "uint8", False, None, channels_last))


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 100),
    st.integers(1, 6),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, IMAGENET]),
    st.integers(0, 1000),
)
def test_every_level_gives_the_same_bits(
    width: int, height: int, dtype: str, channels_last: bool, scale: bool, norm: Any, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    spec = spec_of("uint8", channels_last) if dtype == "uint8" else spec_of(dtype, channels_last, scale, norm)
    before, results = _C.simd_level(), []
    try:
        for level in ("scalar", "sse4", "avx2", "avx512"):  # lowered to what the machine has
            _C.set_simd_level(level)
            results.append(_C.store(pixels, spec))
    finally:
        _C.set_simd_level(before)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    size = torch.tensor([], dtype=getattr(torch, dtype)).element_size()
    wide = (height, width, 3 * size) if channels_last else (3, height, width * size)
    assert results[0].shape == wide


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_resize_and_store_in_one(dtype: str, channels_last: bool, level: str) -> None:
    """Streamed in chunks of rows, it is what resize and store give one after the other."""
    pixels = np.random.default_rng(3).integers(0, 256, (90, 120, 3), np.uint8)
    view = (10, 5, 100, 80), (50, 61), (-3, 2, 57, 55), True
    norm = None if dtype == "uint8" else IMAGENET
    spec = spec_of(dtype, channels_last, False, norm)
    wanted = _C.store(np.ascontiguousarray(show(pixels, view, "bicubic")), spec)
    for chunk in (1, 3, 16, 500):
        assert np.array_equal(_C.resize_store(pixels, view, "bicubic", spec, chunk), wanted)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "uint8", "scale": True}, "uint8 takes neither scale nor normalize. Choose float16"),
        ({"dtype": "uint8", "normalize": True}, "uint8 takes neither scale nor normalize"),
        ({"dtype": "float64"}, "one of uint8, float16, bfloat16, float32, uint16, int32. Found: float64"),
        ({"dtype": "float32", "normalize": True, "std": (1.0, 0.0, 1.0)}, "std finite and not 0.*channel 1"),
        (
            {"dtype": "float32", "normalize": True, "mean": (0.0, 0.0, float("nan"))},
            "mean must be finite.*channel 2",
        ),
        (
            {"dtype": "float32", "normalize": True, "std": (1e-300, 1.0, 1.0)},
            "std finite and not 0.*channel 0",
        ),
    ],
)
def test_refuses_what_it_cannot_store(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _C.StoreSpec(**arguments)


def test_refuses_a_repeat_of_zero() -> None:
    with pytest.raises(ValueError, match="repeat must be at least 1"):
        _C.store(all_values(4), _C.StoreSpec(), 0)
