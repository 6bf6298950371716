"""The own JPEG decoder on files that no encoder makes: extreme coefficients, odd codes, any sampling."""

from __future__ import annotations

import io
import platform
from collections.abc import Iterator

import numpy as np
import pytest
from jpeg_writer import Layout, write_jpeg
from numpy.typing import NDArray
from PIL import Image

from fastload import errors
from fastload._native import _C

FACTORS = {
    "gray": ((1, 1),),
    "4:4:4": ((1, 1),) * 3,
    "4:2:2": ((2, 1), (1, 1), (1, 1)),
    "4:2:0": ((2, 2), (1, 1), (1, 1)),
    "4:4:0": ((1, 2), (1, 1), (1, 1)),
}


X86_LEVELS = ("scalar", "sse4", "avx2", "avx512")
LEVELS = ("scalar", "neon") if platform.machine() == "aarch64" else X86_LEVELS


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _C.simd_level()
    _C.set_simd_level(request.param)
    if _C.simd_level() != request.param:
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    _C.set_simd_level(before)


def coefficients(layout: Layout, seed: int, density: float, largest: int) -> NDArray[np.int64]:
    """Random blocks; each eighth one has no AC coefficients, each ninth is full to the last one."""
    rng = np.random.default_rng(seed)
    shape = (layout.blocks(), 64)
    values = rng.integers(-largest, largest + 1, shape) * (rng.random(shape) < density)
    values[::8, 1:] = 0
    values[::9, 63] = np.maximum(1, np.abs(values[::9, 63]))
    return values


def check(data: bytes, level: str) -> None:
    del level  # chosen by the fixture
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    array = np.frombuffer(data, np.uint8)
    assert _C.jpeg_supported(array)
    np.testing.assert_array_equal(_C.jpeg_decode(array), expected)
    height, width = expected.shape[:2]
    rng = np.random.default_rng(len(data))
    sources = [(None, 0)]
    for spacing in (0, 24):
        entries = _C.jpeg_build_entries(array, spacing)
        if len(entries):
            sources.append((entries, spacing))
    for _ in range(8):
        x, y = int(rng.integers(width)), int(rng.integers(height))
        w, h = int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1))
        for entries, spacing in sources:
            pixels = _C.jpeg_decode(array, (x, y, w, h), entries, spacing)
            np.testing.assert_array_equal(pixels, expected[y : y + h, x : x + w])


@pytest.mark.parametrize("sampling", FACTORS)
@pytest.mark.parametrize("size", [(1, 1), (3, 3), (4, 17), (17, 4), (31, 33), (90, 70)])
def test_every_sampling_and_size(level: str, sampling: str, size: tuple[int, int]) -> None:
    layout = Layout(*size, FACTORS[sampling], steps=3)
    check(write_jpeg(layout, coefficients(layout, 1, 0.3, 40)), level)


def skip_where_libjpeg_overflows_otherwise() -> None:
    """For coefficients that no encoder makes, libjpeg-turbo's Arm code differs from its x86 code, which ours
    follows on every machine (tests/cpp compares the levels with the scalar one)."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("libjpeg-turbo overflows in another way here")


@pytest.mark.parametrize("skewed", [False, True], ids=["codes of 9 bits", "codes of 1 to 16 bits"])
@pytest.mark.parametrize("largest", [1, 60, 1023, 16383])
@pytest.mark.parametrize("density", [0.03, 0.3, 1.0])
def test_any_values(level: str, skewed: bool, largest: int, density: float) -> None:
    """Long values, long runs, long codes, full blocks; wrapping and saturation as in libjpeg-turbo."""
    if largest > 1000:
        skip_where_libjpeg_overflows_otherwise()
    layout = Layout(61, 43, FACTORS["4:2:0"], skewed=skewed, steps=1 if largest < 1000 else 255)
    check(write_jpeg(layout, coefficients(layout, largest, density, largest)), level)


@pytest.mark.parametrize("steps", [0, 1, 255, 4096, 65535])
def test_flat_blocks_overflow_as_in_libjpeg(level: str, steps: int) -> None:
    """Blocks with a first row only take another path in libjpeg-turbo, seen where 16 bits overflow."""
    if steps > 1:
        skip_where_libjpeg_overflows_otherwise()
    layout = Layout(128, 128, steps=steps)
    values = coefficients(layout, steps, 0.5, 255)
    values[: len(values) // 2, 8:] = 0
    check(write_jpeg(layout, values), level)


@pytest.mark.parametrize("restart", [1, 2, 3, 5, 8, 64])
@pytest.mark.parametrize("sampling", ["gray", "4:4:0", "4:2:0"])
def test_restart_intervals(level: str, sampling: str, restart: int) -> None:
    layout = Layout(75, 51, FACTORS[sampling], restart=restart, steps=4)
    check(write_jpeg(layout, coefficients(layout, restart, 0.2, 30)), level)


def test_predictors_too_large_for_entries_mean_none() -> None:
    layout = Layout(64, 64)
    values = coefficients(layout, 1, 0.1, 10)
    values[:, 0] = 1024
    data = np.frombuffer(write_jpeg(layout, values), np.uint8)
    assert len(_C.jpeg_build_entries(data, 16)) == 0
    values[:, 0] = -1024
    data = np.frombuffer(write_jpeg(layout, values), np.uint8)
    assert len(_C.jpeg_build_entries(data, 16)) > 0


@pytest.mark.parametrize(
    "factors",
    [((2, 2), (2, 1), (1, 1)), ((1, 1), (2, 2), (1, 1)), ((4, 1), (1, 1), (1, 1)), ((1, 1),) * 2],
    ids=str,
)
def test_other_samplings_are_left_to_libjpeg(factors: tuple[tuple[int, int], ...]) -> None:
    layout = Layout(32, 32, factors)
    assert not _C.jpeg_supported(np.frombuffer(write_jpeg(layout, coefficients(layout, 1, 0.1, 5)), np.uint8))


def test_gray_ignores_its_sampling_factors(level: str) -> None:
    layout = Layout(37, 29, ((2, 2),), steps=9)
    check(write_jpeg(layout, coefficients(layout, 3, 0.2, 20)), level)


@pytest.mark.parametrize("transform", [0, 1, 2])
def test_adobe_marker_says_what_the_components_are(transform: int) -> None:
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([transform])
    layout = Layout(32, 32, FACTORS["4:4:4"], extra=adobe)
    data = np.frombuffer(write_jpeg(layout, coefficients(layout, 1, 0.1, 5)), np.uint8)
    assert _C.jpeg_supported(data) is (transform == 1)


def test_restart_markers_out_of_order_are_found() -> None:
    layout = Layout(64, 64, restart=8, steps=4)
    data = write_jpeg(layout, coefficients(layout, 1, 0.2, 30))
    for broken in (data.replace(b"\xff\xd3", b"\xff\xd4"), data.replace(b"\xff\xd3", b"")):
        with pytest.raises(errors.DecodeError, match="restart"):
            _C.jpeg_decode(np.frombuffer(broken, np.uint8), (0, 50, 64, 10))


def test_lengths_that_are_no_prefix_code_are_refused() -> None:
    layout = Layout(16, 16)
    data = bytearray(write_jpeg(layout, coefficients(layout, 1, 0.2, 30)))
    at = data.index(b"\xff\xc4") + 5
    data[at : at + 16] = bytes([3] + [0] * 7 + [13] + [0] * 7)
    with pytest.raises(errors.DecodeError, match="prefix code"):
        _C.jpeg_decode(np.frombuffer(bytes(data), np.uint8))
