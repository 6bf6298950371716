"""The resize: bit for bit Pillow 13's, by every instruction set, for any window, flip and chunk of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import PIL
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from transform_reference import View, cut, resize, show, weights

from fastload._native import _C

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FILTERS["lanczos"] = Image.Resampling.LANCZOS
PILLOW_13 = int(PIL.__version__.split(".")[0]) >= 13
# (width, height) before and after: up, down, one pixel, extreme ratios, equal sides, both orders of passes.
SIZES = [
    ((267, 263), (224, 224)),
    ((500, 375), (224, 224)),
    ((375, 500), (224, 224)),
    ((100, 80), (224, 224)),
    ((224, 300), (224, 224)),
    ((300, 224), (224, 224)),
    ((224, 224), (224, 224)),
    ((1, 1), (224, 224)),
    ((1, 500), (7, 9)),
    ((500, 1), (9, 7)),
    ((2, 3), (1, 1)),
    ((640, 480), (1, 1)),
    ((3000, 5), (17, 31)),
    ((5, 3000), (31, 17)),
    ((150, 900), (200, 60)),
    ((900, 150), (60, 200)),
    ((33, 65), (34, 64)),
    ((1021, 769), (64, 48)),
]


def noise(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Random pixels, in every third picture only 0 and 255: what makes bicubic overshoot."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return (pixels > 127).astype(np.uint8) * 255 if seed % 3 == 0 else pixels


def whole(before: tuple[int, int], after: tuple[int, int], flip: bool = False) -> View:
    return (0, 0, *before), after, (0, 0, *after), flip


def pillow(pixels: np.ndarray, after: tuple[int, int], name: str) -> np.ndarray:
    return np.asarray(Image.fromarray(pixels).resize(after, FILTERS[name]))


def same_order(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Whether the installed Pillow does the passes in Pillow 13's order: horizontal first, before 13."""
    rows, columns = before[1] - after[1], before[0] - after[0]
    return PILLOW_13 or columns == 0 or not (rows > 0 and rows > 2 * columns)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("before", "after"), SIZES)
def test_equals_pillow(before: tuple[int, int], after: tuple[int, int], name: str, level: str) -> None:
    if not same_order(before, after):
        pytest.skip("this Pillow does the two passes in another order")
    for seed in range(3):
        pixels = noise(*before, seed)
        assert np.array_equal(_C.resize(pixels, whole(before, after), name), pillow(pixels, after, name))


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("before", "after"), [s for s in SIZES if s[0][0] * s[0][1] < 10**5 + 10**5])
def test_reference_equals_pillow(before: tuple[int, int], after: tuple[int, int], name: str) -> None:
    """So the tests below, which need no Pillow, compare with Pillow's pixels."""
    if not same_order(before, after):
        pytest.skip("this Pillow does the two passes in another order")
    pixels = noise(*before)
    assert np.array_equal(resize(pixels, *after, name), pillow(pixels, after, name))


def test_the_order_of_the_passes_is_pillow_13s() -> None:
    """A shape where the two orders differ: ours is vertical first, as 13 does it."""
    before, after = (150, 900), (200, 60)
    pixels = noise(*before)
    found = _C.resize(pixels, whole(before, after))
    step = resize(pixels, after[0], before[1], "bilinear")
    assert not np.array_equal(found, resize(step, *after, "bilinear"))
    step = resize(pixels, before[0], after[1], "bilinear")
    assert np.array_equal(found, resize(step, *after, "bilinear"))


side = st.one_of(st.integers(1, 5), st.integers(1, 400))


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, View, str, int]:
    """A picture, a crop of it, a window that overlaps the resized crop, a flip, a filter, rows at a time."""
    width, height = draw(side), draw(side)
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    crop = x, y, draw(st.integers(1, width - x)), draw(st.integers(1, height - y))
    out = draw(st.tuples(side, side) | st.just(crop[2:]))
    left, top = draw(st.integers(-20, out[0] - 1)), draw(st.integers(-20, out[1] - 1))
    window = (
        left,
        top,
        draw(st.integers(max(1, 1 - left), out[0] + 20)),
        draw(st.integers(max(1, 1 - top), out[1] + 20)),
    )
    if draw(st.booleans()):
        window = (0, 0, *out)
    view = crop, out, window, draw(st.booleans())
    pixels = noise(width, height, draw(st.integers(0, 100)))
    return (
        pixels,
        view,
        draw(st.sampled_from(list(FILTERS))),
        draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16, 500])),
    )


@settings(deadline=None, max_examples=250)
@given(cases())
def test_any_view_equals_the_reference_at_every_level(case: tuple[np.ndarray, View, str, int]) -> None:
    pixels, view, name, chunk = case
    wanted = show(pixels, view, name)
    before = _C.simd_level()
    try:
        for level in ("scalar", "neon", "sse4", "avx2", "avx512"):  # lowered to what the machine has
            _C.set_simd_level(level)
            assert np.array_equal(_C.resize(pixels, view, name, chunk), wanted), level
    finally:
        _C.set_simd_level(before)


@settings(deadline=None, max_examples=60)
@given(cases())
@example((noise(9, 9), ((0, 0, 9, 9), (3, 3), (2, 2, 1, 1), True), "bicubic", 1))
def test_pixels_outside_the_source_rectangle_do_not_matter(case: tuple[np.ndarray, View, str, int]) -> None:
    pixels, view, name, chunk = case
    x, y, width, height = _C.source_rect(view, name)
    cx, cy, cw, ch = view[0]
    assert cx <= x < x + width <= cx + cw
    assert cy <= y < y + height <= cy + ch
    outside = np.full_like(pixels, 77)
    outside[y : y + height, x : x + width] = pixels[y : y + height, x : x + width]
    assert np.array_equal(show(outside, view, name), show(pixels, view, name))
    assert np.array_equal(_C.resize(outside, view, name, chunk), _C.resize(pixels, view, name, chunk))


def test_the_source_rectangle_is_tight() -> None:
    """Of Resize 256 and CenterCrop 224: the columns and rows with a weight, at most one more at each end."""
    view = (0, 0, 500, 375), (341, 256), (58, 16, 224, 224), False
    x, y, width, height = _C.source_rect(view)
    for begin, length, before, after, first in ((x, width, 500, 341, 58), (y, height, 375, 256, 16)):
        used = np.flatnonzero(weights(before, after, "bilinear")[first : first + 224].any(0))
        assert 0 <= used[0] - begin <= 1
        assert 0 <= begin + length - 1 - used[-1] <= 1


@pytest.mark.parametrize("flip", [False, True])
def test_equal_sizes_are_copied(flip: bool, level: str) -> None:
    pixels = noise(77, 31)
    view = (5, 3, 60, 20), (60, 20), (-4, -2, 70, 25), flip
    assert np.array_equal(_C.resize(pixels, view), cut(pixels[3:23, 5:65], view[2], flip))


def test_weights_far_below_zero_are_clamped(level: str) -> None:
    """Bicubic overshoots on both sides of an edge; the result stays in [0, 255]."""
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, 8:] = 255
    found = _C.resize(pixels, whole((16, 16), (64, 64)), "bicubic")
    assert np.array_equal(found, resize(pixels, 64, 64, "bicubic"))
    assert found[:, :28].max() == 0
    assert found[:, 36:].min() >= 250


def test_very_large_reduction(level: str) -> None:
    pixels = noise(65_000, 3, 1)
    assert np.array_equal(_C.resize(pixels, whole((65_000, 3), (2, 2))), resize(pixels, 2, 2, "bilinear"))


def legal(**changes: Any) -> View:
    parts: dict[str, Any] = {
        "crop": (0, 0, 8, 8),
        "resized": (4, 4),
        "window": (0, 0, 4, 4),
        "flip": False,
        **changes,
    }
    return parts["crop"], parts["resized"], parts["window"], parts["flip"]


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (legal(resized=(0, 4)), r"Width after resizing must be in \[1, 16777216\] pixels. Found: 0"),
        (legal(resized=(4, 1 << 25)), r"Height after resizing .* Found: 33554432"),
        (legal(crop=(0, 0, 8, 0)), r"Height of the crop must be in"),
        (legal(window=(0, 0, -1, 4)), r"Width of the window .* Found: -1"),
        (legal(crop=(1, 0, 8, 8)), r"The crop must be inside the picture, 8 x 8 pixels"),
        (legal(window=(4, 0, 2, 2)), r"must overlap the resized picture, \[0, 4\). Found: \[4, 6\)"),
        (legal(window=(0, -3, 2, 3)), r"must overlap the resized picture, \[0, 4\). Found: \[-3, 0\)"),
    ],
)
def test_refuses_impossible_views(view: View, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _C.resize(noise(8, 8), view)


def test_refuses_unknown_filters_and_empty_chunks() -> None:
    with pytest.raises(ValueError, match=r"filter must be one of bilinear, bicubic, lanczos. Found: box"):
        _C.resize(noise(8, 8), legal(), "box")
    with pytest.raises(ValueError, match="chunk and repeat must be at least 1"):
        _C.resize(noise(8, 8), legal(), "bilinear", 0)
