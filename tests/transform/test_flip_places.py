"""A flip at any place, and RandomCrop: the one cut and last flip of the core against Pillow, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transform_reference import (
    CROP,
    Draws,
    below,
    center_window,
    flipped,
    random_crop,
    resized_shorter,
)

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan

Pixels = Any  # (height, width, 3) uint8
FLIP = T.RandomHorizontalFlip(0.5)
BILINEAR = Image.Resampling.BILINEAR


def window(pixels: Pixels, rect: tuple[int, int, int, int]) -> Pixels:
    """The part of a picture; zeros where it reaches over the border."""
    x, y, width, height = rect
    found = np.zeros((height, width, 3), np.uint8)
    top, left = max(y, 0), max(x, 0)
    part = pixels[top : y + height, left : x + width]
    found[top - y : top - y + part.shape[0], left - x : left - x + part.shape[1]] = part
    return found


def resized(pixels: Pixels, width: int, height: int) -> Pixels:
    return np.asarray(Image.fromarray(pixels).resize((width, height), BILINEAR))


def step_by_step(pixels: Pixels, chain: list[Any], draws: Draws) -> Pixels:
    """Each transform on what the one before it left, as torchvision does."""
    for step in chain:
        height, width = pixels.shape[:2]
        if isinstance(step, T.RandomHorizontalFlip):
            if flipped(step.p, draws):
                pixels = np.ascontiguousarray(pixels[:, ::-1])
        elif isinstance(step, T.RandomResizedCrop):
            crop = random_crop(width, height, step.scale, step.ratio, draws)
            pixels = resized(window(pixels, crop), step.size[1], step.size[0])
        elif isinstance(step, T.Resize):
            exact = not isinstance(step.size, int)
            size = step.size[::-1] if exact else resized_shorter(width, height, step.size, None)
            pixels = resized(pixels, *size)
        elif isinstance(step, T.CenterCrop):
            pixels = window(pixels, center_window(width, height, step.size))
        else:
            words = draws.words(CROP, 20)
            rows, columns = step.size
            y = below(words[0], words[1], height - rows + 1)
            pixels = window(pixels, (below(words[2], words[3], width - columns + 1), y, columns, rows))
    return pixels


CHAINS = {
    "flip, crop": [FLIP, T.RandomResizedCrop((9, 12))],
    "flip, crop, center": [FLIP, T.RandomResizedCrop((9, 12)), T.CenterCrop((6, 7))],
    "crop, flip, center": [T.RandomResizedCrop((9, 12)), FLIP, T.CenterCrop((6, 7))],
    "flip, resize": [FLIP, T.Resize((11, 8))],
    "flip, resize, center": [FLIP, T.Resize(12), T.CenterCrop((8, 9))],
    "resize, flip, center": [T.Resize(12), FLIP, T.CenterCrop((9, 8))],
    "flip, center over the border": [FLIP, T.Resize(5), T.CenterCrop((8, 12))],
    "flip, center alone": [FLIP, T.CenterCrop((4, 3))],
    "random": [T.Resize(12), T.RandomCrop((8, 12))],
    "random, flip": [T.Resize(12), T.RandomCrop(7), FLIP],
    "flip, random": [FLIP, T.Resize(12), T.RandomCrop(7)],
    "resize, flip, random": [T.Resize(12), FLIP, T.RandomCrop((12, 5))],
    "crop, random, flip": [T.RandomResizedCrop(14), T.RandomCrop((9, 14)), FLIP],
    "flip, crop, random": [FLIP, T.RandomResizedCrop(14), T.RandomCrop(9)],
}


@pytest.mark.parametrize("name", list(CHAINS))
@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**32), st.integers(0, 2**63))
def test_every_order_equals_pillow_step_by_step(
    name: str, width: int, height: int, seed: int, sample: int
) -> None:
    """Bit for bit: the resize of a mirrored picture is the mirrored resize."""
    plan = compile_plan(T.Compose(CHAINS[name]))
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    geometry = plan.geometry_spec()
    view = _C.draw_view(geometry, width, height, seed, 3, sample)
    found = _C.resize(pixels, view, geometry.filter)
    wanted = step_by_step(pixels, CHAINS[name], Draws(seed, 3, sample))
    assert found.shape == wanted.shape
    assert np.array_equal(found, wanted)


def test_both_halves_of_an_odd_difference_are_seen() -> None:
    """CenterCrop takes the left one of two middles; behind a flip that is the right one of the picture."""
    pixels = np.zeros((1, 4, 3), np.uint8)
    pixels[0, :, 0] = [1, 2, 3, 4]
    for chain, wanted in (
        ([T.RandomHorizontalFlip(1.0), T.CenterCrop((1, 1))], 3 if round(1.5) == 1 else 2),
        ([T.CenterCrop((1, 1)), T.RandomHorizontalFlip(1.0)], 2 if round(1.5) == 1 else 3),
    ):
        view = _C.draw_view(compile_plan(T.Compose(chain)).geometry_spec(), 4, 1, 0, 0, 0)
        assert _C.resize(pixels, view, "bilinear")[0, 0, 0] == wanted


def test_places_of_a_random_crop_are_equally_likely() -> None:
    geometry = compile_plan(T.RandomCrop((3, 2))).geometry_spec()
    windows = [_C.draw_view(geometry, 5, 7, 1, 2, sample)[2] for sample in range(12_000)]
    assert {rect[2:] for rect in windows} == {(2, 3)}
    counts = np.zeros((4, 5))
    for x, y, _, _ in windows:
        counts[x, y] += 1
    expected = len(windows) / counts.size
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert chi_squared < 43.8  # the 0.1% point with 19 degrees of freedom; the draws are fixed


def test_a_picture_smaller_than_a_random_crop_is_an_error() -> None:
    geometry = compile_plan(T.RandomCrop((8, 9))).geometry_spec()
    for width, height in ((8, 8), (9, 7)):
        message = f"RandomCrop of 9 x 8 pixels is larger than the picture, which has {width} x {height}"
        with pytest.raises(ValueError, match=message):
            _C.draw_view(geometry, width, height, 0, 0, 0)
    assert _C.draw_view(geometry, 9, 8, 0, 0, 0)[2] == (0, 0, 9, 8)
