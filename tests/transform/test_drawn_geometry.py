"""How often the steps of detection draw what: chi-squared at 0.1% on fixed draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from fastload import transforms as T
from fastload._native import _C
from fastload.sampler.buckets import buckets_of
from fastload.transforms import compile_plan

# The 0.1% points by degrees of freedom.
POINTS = {1: 10.83, 3: 16.27, 4: 18.47, 6: 22.46, 7: 24.32, 9: 27.88, 15: 37.70}
COUNT = 4000


def views(spec: Any, width: int, height: int, boxes: Any = (), count: int = COUNT) -> list[Any]:
    geometry = compile_plan(spec).geometry_spec()
    return [_C.draw_view(geometry, width, height, 11, 2, i, boxes=list(boxes)) for i in range(count)]


def assert_uniform(found: Iterable[Any], choices: int) -> None:
    counts = Counter(found)
    total = sum(counts.values())
    assert len(counts) == choices, counts
    expected = total / choices
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < POINTS[choices - 1], counts


def tenths(values: Iterable[float]) -> list[int]:
    """The tenth of [0, 1) that each lies in."""
    return [min(int(value * 10), 9) for value in values]


def test_zoom_out_happens_as_often_as_it_should_and_is_as_large_and_anywhere() -> None:
    side = 100_000  # so that rounding to pixels does not show
    drawn = views(T.RandomZoomOut(side_range=(1.5, 3.5), p=0.4), side, side)
    out = [view for view in drawn if view.seen is not None]
    expected = COUNT * 0.4
    assert (len(out) - expected) ** 2 / (COUNT * 0.4 * 0.6) < POINTS[1]
    assert_uniform(tenths((view.crop[2] / side - 1.5) / 2 for view in out), 10)
    assert_uniform(tenths(-view.crop[0] / (view.crop[2] - side) for view in out), 10)
    assert_uniform(tenths(-view.crop[1] / (view.crop[3] - side) for view in out), 10)
    assert all(view.crop[2] == view.crop[3] for view in out)


def test_options_of_the_iou_crop_are_equally_likely() -> None:
    """Options of 1 and more leave the picture; any part of a picture full of boxes does for 0."""
    grid = [(x - 1.0, y - 1.0, x + 1.0, y + 1.0) for x in range(0, 100, 10) for y in range(0, 100, 10)]
    spec = T.RandomIoUCrop(
        min_aspect_ratio=0.01, max_aspect_ratio=100.0, sampler_options=[1.0, 0.0, 0.0, 2.0]
    )
    assert_uniform((view.centres is None for view in views(spec, 100, 100, grid)), 2)


def test_the_iou_crop_of_any_overlap_has_uniform_sides_and_places() -> None:
    """Small parts of a picture that is full of small boxes, so that no draw is refused."""
    grid = [(x - 0.1, y - 0.1, x + 0.1, y + 0.1) for x in range(0, 400, 4) for y in range(0, 400, 4)]
    spec = T.RandomIoUCrop(0.1, 0.6, 0.01, 100.0, sampler_options=[0.0], trials=1)
    drawn = views(spec, 400, 400, grid, 1500)
    assert_uniform(tenths((view.crop[2] / 400 - 0.1) / 0.5 + 0.0025 for view in drawn), 10)
    assert_uniform(tenths((view.crop[0] + 0.5) / (401 - view.crop[2]) for view in drawn), 10)
    assert_uniform(tenths((view.crop[1] + 0.5) / (401 - view.crop[3]) for view in drawn), 10)


def test_scale_jitter_is_uniform() -> None:
    drawn = views(T.ScaleJitter((50_000, 50_000), (0.1, 2.0)), 100, 80)
    assert_uniform(tenths((view.resized[0] / 50_000 - 0.1) / 1.9 for view in drawn), 10)


@pytest.mark.parametrize("sizes", [(480,), (480, 512, 544, 576), (5, 6, 7, 8, 9)])
def test_shortest_sizes_are_equally_likely(sizes: tuple[int, ...]) -> None:
    drawn = views(T.RandomShortestSize(sizes), 1000, 1000)
    if len(sizes) == 1:
        assert {view.resized for view in drawn} == {(480, 480)}
    else:
        assert_uniform((view.resized for view in drawn), len(sizes))


def test_random_sizes_are_equally_likely() -> None:
    drawn = views(T.RandomResize(30, 38), 100, 100)
    assert_uniform((view.resized[0] for view in drawn), 8)
    assert {view.resized[0] for view in drawn} == set(range(30, 38))


def test_fixed_size_crops_lie_anywhere_and_equally_far_along_both_sides() -> None:
    drawn = views(T.FixedSizeCrop(1000), 11_000, 21_000)
    assert_uniform(tenths(view.window[0] / 10_000 for view in drawn), 10)
    shares = np.array([(view.window[0] / 10_000, view.window[1] / 20_000) for view in drawn])
    assert np.abs(shares[:, 0] - shares[:, 1]).max() < 2e-4


def test_random_crops_of_padded_pictures_are_equally_likely() -> None:
    drawn = views(T.RandomCrop(2, padding=1), 3, 3)
    assert_uniform((view.window[:2] for view in drawn), 16)


def test_an_iou_crop_that_nothing_satisfies_ends() -> None:
    """torchvision would go on for ever; without boxes, too."""
    spec = T.RandomIoUCrop(sampler_options=[0.99], max_scale=0.4)
    (alone,) = views(spec, 60, 50, count=1)
    (never,) = views(spec, 60, 50, [(0.0, 0.0, 60.0, 50.0)], 1)
    assert alone == never == ((0, 0, 60, 50), (60, 50), (0, 0, 60, 50), False)


def test_the_core_and_the_sampler_have_the_same_buckets() -> None:
    """Ties among them: sizes twice, and pictures in the middle between two."""
    sizes = [(20, 20), (10, 40), (40, 10), (30, 30), (15, 60), (16, 25), (25, 16)]
    rng = np.random.default_rng(2)
    pictures = np.concatenate([rng.integers(1, 3000, (3000, 2)), [[10, 20], [20, 10], [7, 7], [80, 100]]])
    geometry = compile_plan(T.BucketCrop(sizes)).geometry_spec()
    found = [_C.draw_view(geometry, w, h, 0, 0, 0).window[2:][::-1] for h, w in pictures.tolist()]
    assert found == [sizes[bucket] for bucket in buckets_of(pictures, sizes)]


def test_places_of_bucket_crops_are_equally_likely() -> None:
    drawn = views(T.BucketCrop([(10, 10)], anywhere=True), 19, 10)
    assert_uniform((view.window[0] for view in drawn), 10)


def test_pictures_without_a_size_of_so_many_patches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no size of 1 patches at most for a picture of 9000000 x 9"):
        views(T.ResizeToPatches(1, 1), 9_000_000, 9, count=1)
    with pytest.raises(ValueError, match="BucketCrop.sizes must have at least one"):
        T.BucketCrop([])
    with pytest.raises(ValueError, match="ResizeToPatches.max_ratio must be above 0. Found: 0"):
        T.ResizeToPatches(max_ratio=0)
    with pytest.raises(ValueError, match="out of order or there twice"):
        compile_plan(T.Compose([T.Resize(9), T.BucketCrop([(9, 9)])]))


def test_pictures_that_are_cut_one_by_one_have_no_boxes() -> None:
    plan = compile_plan(T.RandomIoUCrop())
    with pytest.raises(
        ValueError, match="RandomIoUCrop draws from the sample's boxes, which are not available"
    ):
        plan.made_of(np.zeros((9, 9, 3), np.uint8), 0)
    assert compile_plan(T.RandomZoomOut(p=0.0)).made_of(np.zeros((9, 7, 3), np.uint8), 0).shape == (9, 7, 3)
