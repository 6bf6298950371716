"""Crops, sizes and flips: equal to the reference by Philox, in distribution to torchvision's."""

from __future__ import annotations

import math
import random
from typing import Any

import geometry_uses as steps
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision_likes import from_torchvision, tv_crop
from transform_reference import (
    Draws,
    center_window,
    central_crop,
    flipped,
    philox,
    random_crop,
    resized_shorter,
)

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
side = st.one_of(st.integers(1, 8), st.integers(1, 4000))


def crops(n: int, width: int, height: int, **arguments: Any) -> np.ndarray:
    """(n, 4) int64: x, y, width, height of n samples' crops."""
    spec = steps.spec_of(steps.crop(9, 9, **arguments))
    return np.array([_C.draw_view(spec, width, height, 7, 3, i)[0] for i in range(n)])


def torchvision_crop(rng: random.Random, width: int, height: int) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop.get_params, with Python's generator in place of torch's."""
    for _ in range(10):
        target = width * height * rng.uniform(*SCALE)
        aspect = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = rng.randrange(height - h + 1)
            return rng.randrange(width - w + 1), top, w, h
    return central_crop(width, height, RATIO)


def largest_gap(a: np.ndarray, b: np.ndarray) -> float:
    """The two-sample Kolmogorov-Smirnov statistic."""
    points = np.concatenate([a, b])
    below_a = np.searchsorted(np.sort(a), points, "right") / len(a)
    below_b = np.searchsorted(np.sort(b), points, "right") / len(b)
    return float(np.abs(below_a - below_b).max())


def test_philox_equals_the_published_vectors() -> None:
    """Salmon et al.'s known answers (Random123's kat_vectors), for the reference and the core."""
    for counter, key, wanted in (
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ):
        assert philox(counter, key) == wanted
        assert list(_C.philox4x32(counter, key)) == wanted


@settings(deadline=None, max_examples=200)
@given(
    side,
    side,
    st.tuples(*[st.integers(0, 2**64 - 1)] * 3),
    st.integers(0, 2**32 - 1),
    st.sampled_from(
        [(SCALE, RATIO), ((0.5, 0.5), (1.0, 1.0)), ((1.0, 1.0), (0.1, 10.0)), ((0.3, 2.0), (2.0, 3.0))]
    ),
)
def test_the_crop_equals_the_reference(
    width: int, height: int, keys: tuple[int, int, int], draw: int, ranges: Any
) -> None:
    scale, ratio = ranges
    spec = steps.spec_of(steps.crop(20, 30, scale, ratio), steps.flip(0.5))
    crop, resized, window, flip = _C.draw_view(spec, width, height, *keys, draw)
    draws = Draws(*keys, draw)
    wanted = random_crop(width, height, scale, ratio, draws)
    assert crop == wanted
    assert (resized, window) == ((30, 20), (0, 0, 30, 20))
    assert flip == flipped(0.5, draws)
    x, y, w, h = crop
    assert 0 <= x < x + w <= width
    assert 0 <= y < y + h <= height


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (333, 333), (1200, 300)])
def test_the_crop_is_distributed_as_torchvisions(width: int, height: int) -> None:
    """KS for area, ratio, and both corners, at a false-alarm rate of 1e-6 each; the seed is fixed."""
    n = 6000
    rng = random.Random(1)
    found = crops(n, width, height).astype(float)
    wanted = np.array([torchvision_crop(rng, width, height) for _ in range(n)], float)
    bound = math.sqrt(-math.log(1e-6 / 2) / 2) * math.sqrt(2 / n)
    for measure in (
        lambda c: c[:, 2] * c[:, 3],
        lambda c: c[:, 2] / c[:, 3],
        lambda c: c[:, 0],
        lambda c: c[:, 1],
        lambda c: c[:, 0] - c[:, 1],
    ):
        assert largest_gap(measure(found), measure(wanted)) < bound


def test_the_distribution_test_would_notice() -> None:
    """A ratio uniform on a linear scale, the classic mistake, fails it."""
    n, rng = 6000, random.Random(1)
    wrong = np.array([rng.uniform(*RATIO) for _ in range(n)])
    right = np.array([math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1]))) for _ in range(n)])
    assert largest_gap(wrong, right) > math.sqrt(-math.log(1e-6 / 2) / 2) * math.sqrt(2 / n)


def test_corners_are_uniform() -> None:
    """Chi-square of the corner of a fixed half-area square crop, 8 by 8 cells."""
    n, room = 20_000, 128
    found = crops(n, 256, 256, scale=(0.25, 0.25), ratio=(1.0, 1.0))
    assert set(map(tuple, found[:, 2:])) == {(128, 128)}
    cells = np.bincount(found[:, 0] * 8 // (room + 1) * 8 + found[:, 1] * 8 // (room + 1), minlength=64)
    columns = np.array([sum(1 for x in range(room + 1) if x * 8 // (room + 1) == k) for k in range(8)])
    expected = np.outer(columns, columns).ravel() / (room + 1) ** 2 * n
    statistic = float(((cells - expected) ** 2 / expected).sum())
    assert statistic < 63 + 5 * math.sqrt(2 * 63)
    assert (found[:, :2].min(), found[:, :2].max()) == (0, room)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_flips_come_with_their_probability(p: float) -> None:
    n = 8000
    spec = steps.spec_of(steps.flip(p))
    flips = sum(_C.draw_view(spec, 10, 10, 0, 0, i)[3] for i in range(n))
    assert abs(flips - n * p) <= 5 * math.sqrt(n * p * (1 - p))


def test_flip_and_crop_share_no_numbers() -> None:
    """The flip's correlation with the crop's area is no more than chance."""
    n = 8000
    spec = steps.spec_of(steps.crop(9, 9), steps.flip(0.5))
    views = [_C.draw_view(spec, 300, 300, 5, 1, i) for i in range(n)]
    flips = np.array([view[3] for view in views], float)
    areas = np.array([view[0][2] * view[0][3] for view in views], float)
    assert abs(np.corrcoef(flips, areas)[0, 1]) < 5 / math.sqrt(n)


def test_every_part_of_the_key_counts() -> None:
    spec = steps.spec_of(steps.crop(9, 9))
    keys = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (1 << 40, 0, 0, 0)]
    keys += [(0, 1 << 40, 0, 0), (0, 0, 1 << 40, 0)]
    views = {_C.draw_view(spec, 4000, 4000, *key) for key in keys}
    assert len(views) == len(keys)
    assert _C.draw_view(spec, 4000, 4000, 1, 2, 3) == _C.draw_view(spec, 4000, 4000, 1, 2, 3)


@pytest.mark.parametrize(
    ("width", "height", "wanted"),
    [(100, 10, (43, 0, 13, 10)), (10, 100, (0, 43, 10, 13)), (1, 1, (0, 0, 1, 1)), (3, 1, (1, 0, 1, 1))],
)
def test_the_central_fallback(width: int, height: int, wanted: tuple[int, ...]) -> None:
    """Where no try fits: a scale that asks for more than the picture has."""
    assert tuple(crops(1, width, height, scale=(20.0, 30.0))[0]) == wanted


@settings(deadline=None, max_examples=200)
@given(side, side, st.integers(1, 600), st.none() | st.integers(1, 900))
def test_the_shorter_side_is_resized_as_torchvision_does(
    width: int, height: int, size: int, extra: int | None
) -> None:
    limit = None if extra is None else size + extra
    spec = steps.spec_of(steps.shorter(size, limit))
    crop, resized, window, flip = _C.draw_view(spec, width, height, 0, 0, 0)
    assert crop == (0, 0, width, height)
    assert resized == resized_shorter(width, height, size, limit)
    assert window == (0, 0, *resized)
    assert not flip


@pytest.mark.parametrize(
    ("picture", "size", "limit", "wanted"),
    [
        ((500, 375), 256, None, (341, 256)),  # 341.33 truncated
        ((375, 500), 256, None, (256, 341)),
        ((256, 256), 256, None, (256, 256)),
        ((1000, 100), 224, 500, (500, 50)),  # 2240 exceeds max_size: 500 * 224 / 2240
        ((9, 4000), 10, 11, (1, 11)),  # torchvision would ask for 0 columns
    ],
)
def test_known_sizes(picture: tuple[int, int], size: int, limit: int | None, wanted: tuple[int, int]) -> None:
    spec = steps.spec_of(steps.shorter(size, limit))
    assert _C.draw_view(spec, *picture, 0, 0, 0)[1] == wanted


@settings(deadline=None, max_examples=200)
@given(side, side, st.integers(1, 600), st.integers(1, 600))
def test_the_center_is_torchvisions(width: int, height: int, crop_height: int, crop_width: int) -> None:
    spec = steps.spec_of(steps.center(crop_height, crop_width))
    _, resized, window, _ = _C.draw_view(spec, width, height, 0, 0, 0)
    assert resized == (width, height)
    assert window == center_window(width, height, (crop_height, crop_width))


@pytest.mark.parametrize(
    ("size", "crop", "offset"),
    [(341, 224, 58), (343, 224, 60), (225, 224, 0), (227, 224, 2), (100, 224, -62), (101, 224, -61)],
)
def test_halves_round_to_even(size: int, crop: int, offset: int) -> None:
    """58.5 and 59.5 become 58 and 60, 0.5 becomes 0, 1.5 becomes 2; padding goes left by the smaller half."""
    spec = steps.spec_of(steps.center(1, crop))
    assert _C.draw_view(spec, size, 1, 0, 0, 0)[2][0] == offset


def test_exact_sizes_and_no_transform() -> None:
    exact = steps.spec_of(steps.exact(7, 11))
    assert _C.draw_view(exact, 50, 40, 0, 0, 0) == ((0, 0, 50, 40), (11, 7), (0, 0, 11, 7), False)
    assert _C.draw_view(_C.GeometrySpec(), 50, 40, 0, 0, 0) == (
        (0, 0, 50, 40),
        (50, 40),
        (0, 0, 50, 40),
        False,
    )


def test_refuses_empty_pictures_and_endless_sides() -> None:
    with pytest.raises(ValueError, match=r"at least 1 x 1 pixels. Found: 0 x 5"):
        _C.draw_view(_C.GeometrySpec(), 0, 5, 0, 0, 0)
    spec = steps.spec_of(steps.shorter(1000))
    with pytest.raises(ValueError, match=r"resized side must be at most 16777216 pixels.*max_size"):
        _C.draw_view(spec, 1, 65_000, 0, 0, 0)
    with pytest.raises(
        ValueError, match=r"step of the geometry must be one of across_first, bucket_cover, .*Found: cut"
    ):
        _C.GeometrySpec([("cut", [])])
    with pytest.raises(ValueError, match=r"center_crop takes 2 numbers. Found: 1"):
        _C.GeometrySpec([("center_crop", [1.0])])


def test_the_registry_and_the_core_have_the_same_steps() -> None:
    """Each step that a spec becomes has as many numbers as the core's, and the core's has a spec."""
    given = [
        T.RandomResizedCrop(9), T.Resize(9), T.Resize((8, 9)), T.CenterCrop(9), T.RandomHorizontalFlip(),
        T.RandomResizedCrop(9, interpolation="random"), T.RandomCrop(9, padding=1, pad_if_needed=True),
        T.RandomZoomOut(), T.RandomIoUCrop(sampler_options=[0.5]), T.ScaleJitter(9), T.RandomShortestSize(9),
        T.RandomResize(8, 9), T.FixedSizeCrop(9), T.BucketCrop([(8, 9)]), T.ResizeToPatches(),
        T.Letterbox(9), T.Compose([T.RandomVerticalFlip(), T.RandomQuarterTurn(3)]),
        T.RandomCrop(9, padding=1, padding_mode="edge"), T.Pad(1, padding_mode="reflect"),
        T.RandomCrop(9, pad_if_needed=True, padding_mode="symmetric"), T.PadIfSmaller(9),
        T.Compose([T.ClampBoundingBoxes(), T.SanitizeBoundingBoxes(), T.Resize(9)]),
        T.Compose([from_torchvision("ToImage"), tv_crop(interpolation="bicubic")]),
    ]  # fmt: skip
    uses = [use for transform in given for use in compile_plan(transform).geometry]
    assert {use.name: len(use.numbers) for use in uses} == {
        name: len(parameters) for name, parameters in _C.GEOMETRY_OPERATIONS.items()
    }
