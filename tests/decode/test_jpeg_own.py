"""fastload's own JPEG decoder against libjpeg-turbo (through Pillow): the same pixels."""

from __future__ import annotations

import contextlib
import io
import platform
import random
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastload import errors
from fastload._native import _C

U8 = NDArray[np.uint8]
X86_LEVELS = ("scalar", "sse4", "avx2", "avx512")
LEVELS = ("scalar", "neon") if platform.machine() == "aarch64" else X86_LEVELS
SIDES = [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 63, 200]
SIZES = [*zip(SIDES, [*SIDES[1:], 131], strict=True), *zip(SIDES[1:], SIDES, strict=False)]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _C.simd_level()
    _C.set_simd_level(request.param)
    if _C.simd_level() != request.param:
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    _C.set_simd_level(before)


def picture(width: int, height: int, seed: int) -> Image.Image:
    """Smooth colours, an edge and some noise: all kinds of blocks."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / a) * 90 + np.cos(y / b) * 90 + 128 for a, b in ((9, 31), (17, 11), (40, 7))]
    pixels = np.stack(waves, -1) + rng.normal(0, 20, (height, width, 3)) * (x > width // 2)[..., None]
    pixels[height // 3 : height // 2, width // 4 : width // 2] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encode(image: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def oracle(data: bytes) -> U8:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def as_array(data: bytes) -> U8:
    return np.frombuffer(data, np.uint8)


def regions(width: int, height: int, seed: int) -> list[tuple[int, int, int, int]]:
    rng = random.Random(seed)
    result = [(0, 0, width, height), (width - 1, height - 1, 1, 1), (0, 0, 1, 1)]
    for _ in range(4):
        w, h = rng.randint(1, width), rng.randint(1, height)
        x, y = rng.randint(0, width - w), rng.randint(0, height - h)
        result += [(x, y, w, h), (0, y, w, h), (width - w, height - h, w, h), (x, 0, w, h)]
    return result


def check_all_regions(data: bytes, seed: int) -> None:
    """Every region, without entry points and with them at several spacings."""
    expected, array = oracle(data), as_array(data)
    assert _C.jpeg_supported(array)
    sources = [(None, 0)]
    for spacing in (0, 1, 64):
        entries = _C.jpeg_build_entries(array, spacing)
        if len(entries):
            sources.append((entries, spacing))
    height, width = expected.shape[:2]
    for x, y, w, h in regions(width, height, seed):
        for entries, spacing in sources:
            pixels = _C.jpeg_decode(array, (x, y, w, h), entries, spacing)
            np.testing.assert_array_equal(pixels, expected[y : y + h, x : x + w])


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_color_equals_libjpeg(level: str, size: tuple[int, int], subsampling: int) -> None:
    for quality in (20, 75, 98):
        check_all_regions(encode(picture(*size, quality), quality=quality, subsampling=subsampling), quality)


@pytest.mark.parametrize("size", SIZES)
def test_gray_equals_libjpeg(level: str, size: tuple[int, int]) -> None:
    for quality in (20, 95):
        check_all_regions(encode(picture(*size, quality).convert("L"), quality=quality), quality)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("optimize", [False, True])
def test_wide_pictures_take_several_strips(level: str, subsampling: int, optimize: bool) -> None:
    image = picture(1100, 40, 3)
    check_all_regions(encode(image, quality=90, subsampling=subsampling, optimize=optimize), 5)


@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 13, 1000])
def test_any_restart_interval(level: str, subsampling: int, blocks: int) -> None:
    data = encode(picture(150, 110, 7), quality=85, subsampling=subsampling, restart_marker_blocks=blocks)
    assert len(_C.jpeg_build_entries(as_array(data), 64)) == 0
    check_all_regions(data, blocks)


def test_levels_do_the_same() -> None:
    data = as_array(encode(picture(301, 203, 9), quality=97, subsampling=2))
    before = _C.simd_level()
    results = []
    for name in LEVELS:
        _C.set_simd_level(name)
        results.append(_C.jpeg_decode(data, (3, 5, 290, 190)))
    _C.set_simd_level(before)
    assert len(results) == len(LEVELS)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("options", [{"progressive": True}, {"keep_rgb": True}], ids=str)
def test_others_are_left_to_libjpeg(options: dict[str, object]) -> None:
    assert not _C.jpeg_supported(as_array(encode(picture(64, 48, 1), **options)))


def test_cmyk_is_left_to_libjpeg() -> None:
    assert not _C.jpeg_supported(as_array(encode(picture(64, 48, 1).convert("CMYK"))))


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xd9garbage"])
def test_other_bytes_are_not_taken(data: bytes) -> None:
    with contextlib.suppress(errors.DecodeError):
        assert not _C.jpeg_supported(as_array(data))


def test_regions_outside_are_refused() -> None:
    data = as_array(encode(picture(40, 30, 1)))
    for roi in [(-1, 0, 5, 5), (0, 0, 41, 30), (40, 0, 1, 1), (0, 25, 5, 6), (2**31 - 1, 0, 2, 2)]:
        with pytest.raises(ValueError, match="region"):
            _C.jpeg_decode(data, roi)


def test_truncated_files_are_errors_only_where_rows_are_missing() -> None:
    image = picture(160, 160, 11)
    data = encode(image, quality=90, subsampling=0)
    expected = oracle(data)
    cut = as_array(data[: len(data) * 2 // 3])
    top = _C.jpeg_decode(cut, (0, 0, 160, 60))
    np.testing.assert_array_equal(top, expected[:60])
    with pytest.raises(errors.DecodeError, match="data ends"):
        _C.jpeg_decode(cut, (0, 0, 160, 160))


def without_segment(data: bytes, marker: int) -> bytes:
    """The file without its first segment of this kind."""
    at = 2
    while data[at + 1] != marker:
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]


@pytest.mark.parametrize("marker", [0xC4, 0xDB])
def test_missing_tables_are_refused(marker: int) -> None:
    data = encode(picture(40, 30, 1), subsampling=0)
    with pytest.raises(errors.DecodeError, match="missing"):
        _C.jpeg_supported(as_array(without_segment(data, marker)))


def test_damage_is_an_error_or_pixels_never_more() -> None:
    """Flipped bytes and cuts: any outcome but a crash, a hang or a wrong shape."""
    rng = random.Random(5)
    data = encode(picture(120, 90, 13), quality=90, subsampling=2)
    entries = _C.jpeg_build_entries(as_array(data), 64)
    refused = 0
    for _ in range(1500):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(2, len(broken))] = rng.choice([0, 0xFF, rng.randrange(256)])
        del broken[rng.randrange(len(broken) // 2, len(broken) * 2) :]
        for args in ((None, 0), (entries, 64)):
            try:
                assert _C.jpeg_decode(as_array(bytes(broken)), (60, 40, 20, 20), *args).shape == (20, 20, 3)
            except (errors.DecodeError, errors.FormatError, errors.LimitError, ValueError):
                refused += 1
    assert 0 < refused < 3000
