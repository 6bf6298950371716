"""Where the pictures of a mosaic lie, and what is seen of them, against the reference's slow steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mosaic_reference import Spec, compose
from transform_reference import Draws

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms.compiler import compile_plan

SIDES = st.tuples(st.integers(1, 900), st.integers(1, 900))
SPECS = st.builds(
    Spec,
    size=st.integers(1, 400).map(lambda half: 2 * half),
    tiles=st.sampled_from([4, 9]),
    degrees=st.sampled_from([0.0, 10.0, 180.0]),
    translate=st.sampled_from([0.0, 0.1, 0.9]),
    scale=st.sampled_from([0.0, 0.5, 0.9]),
    shear=st.sampled_from([0.0, 5.0]),
    perspective=st.sampled_from([0.0, 0.0005]),
)


def overlap(a: Any, b: Any) -> tuple[int, int, int, int]:
    x, y = max(a[0], b[0]), max(a[1], b[1])
    right, bottom = min(a[0] + a[2], b[0] + b[2]), min(a[1] + a[3], b[1] + b[3])
    return (x, y, right - x, bottom - y) if right > x and bottom > y else (0, 0, 0, 0)


@settings(max_examples=300, deadline=None)
@given(SPECS, st.lists(SIDES, min_size=9, max_size=9), st.booleans(), st.integers(0, 2**63))
def test_places_and_motion(spec: Spec, sizes: list[tuple[int, int]], alone: bool, sample: int) -> None:
    sizes = sizes[: 1 if alone else spec.tiles]
    wanted = compose(spec, sizes, Draws(5, 2, sample, 0, 3))
    found = _C.compose(spec.core(), sizes, 5, 2, sample, view=3)
    assert found["canvas"] == wanted.canvas
    assert [picture[:4] for picture in found["pictures"]] == wanted.pictures
    assert found["gain"] == pytest.approx(wanted.gain, rel=1e-12)
    back = np.array([*found["of_canvas"], 1.0]).reshape(3, 3)
    product = back @ wanted.matrix
    np.testing.assert_allclose(product / product[2, 2], np.eye(3), atol=1e-6)
    x, y, width, height = found["visible"]
    assert x >= 0
    assert y >= 0
    assert x + width <= wanted.canvas[0]
    assert y + height <= wanted.canvas[1]
    for px, py, w, h, shown in found["pictures"]:
        seen = overlap(found["visible"], (px, py, w, h))
        assert shown[2:] == seen[2:]
        assert seen[2:] == (0, 0) or shown[:2] == (seen[0] - px, seen[1] - py)


@settings(max_examples=200, deadline=None)
@given(SPECS, st.lists(SIDES, min_size=4, max_size=4), st.integers(0, 2**63))
def test_all_that_the_sample_shows_is_visible(spec: Spec, sizes: list[tuple[int, int]], sample: int) -> None:
    """Every pixel's place on the canvas, and the neighbours between which it lies."""
    spec = Spec(spec.size, 4, spec.degrees, spec.translate, spec.scale, spec.shear, spec.perspective)
    found = _C.compose(spec.core(), sizes, 1, 0, sample)
    a = found["of_canvas"]
    at = np.arange(0, spec.size, max(1, spec.size // 16)) + 0.5
    at = np.append(at, spec.size - 0.5)
    px, py = np.meshgrid(at, at)
    w = a[6] * px + a[7] * py + 1
    from_x, from_y = (a[0] * px + a[1] * py + a[2]) / w, (a[3] * px + a[4] * py + a[5]) / w
    inside = (from_x >= 0) & (from_x < 2 * spec.size) & (from_y >= 0) & (from_y < 2 * spec.size)
    x, y, width, height = found["visible"]
    for place, low, length in ((from_x, x, width), (from_y, y, height)):
        first = np.clip(np.floor(place[inside] - 0.5), 0, 2 * spec.size - 1)
        last = np.clip(np.floor(place[inside] - 0.5) + 1, 0, 2 * spec.size - 1)
        assert (first >= low).all()
        assert (last < low + length).all()


def test_weights_of_a_mix_are_beta() -> None:
    """The mean and the spread of Beta(2, 2), of fixed draws."""
    weights = np.array([_C.mixup_weight(2.0, 0, 0, sample) for sample in range(4000)])
    assert abs(weights.mean() - 0.5) < 0.012
    assert abs(weights.var() - 0.05) < 0.003
    assert _C.mixup_weight(2.0, 0, 1, 5) != weights[5]


def test_centres_are_uniform() -> None:
    """Chi-square of 8 x 8 fields, 63 degrees of freedom: 103.4 is exceeded once in a thousand."""
    spec = Spec(64)
    places = [_C.compose(spec.core(), [(64, 64)] * 4, 9, 0, sample)["pictures"][3] for sample in range(6400)]
    x, y = (np.array([place[i] for place in places]) for i in (0, 1))
    assert min(x.min(), y.min()) == 32
    assert max(x.max(), y.max()) == 95
    counts = np.histogram2d(x, y, bins=8, range=[(32, 96), (32, 96)])[0]
    assert ((counts - 100) ** 2 / 100).sum() < 103.4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 31}, "Mosaic.size must be even. Found: 31"),
        ({"size": 1}, r"Mosaic.size must be in \[2, 8192\]. Found: 1"),
        ({"tiles": 5}, "Mosaic.tiles must be 4 or 9. Found: 5"),
        ({"p": 1.5}, r"Mosaic.p must be in \[0, 1\]. Found: 1.5"),
        ({"scale": 1.0}, r"Mosaic.scale must be in \[0, 0.99\]. Found: 1"),
        ({"translate": -0.1}, r"Mosaic.translate must be in \[0, 1\]. Found: -0.1"),
        ({"fill": 256}, "Mosaic.fill must be a number in"),
    ],
)
def test_arguments_outside_their_ranges(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        T.Mosaic(**arguments)


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ([T.RandomHorizontalFlip(), T.Mosaic()], "must come first"),
        ([T.RandomGrayscale(), T.Mosaic()], "must come first"),
        ([T.Mosaic(), T.Mosaic()], "out of order or there twice"),
        ([T.MixUp(0.5)], "directly after Mosaic"),
        ([T.Mosaic(), T.RandomHorizontalFlip(), T.MixUp(0.5)], "directly after Mosaic"),
        ([T.Mosaic(), T.MixUp(0.5), T.MixUp(0.5)], "directly after Mosaic"),
        ([T.RandomApply([T.Mosaic()])], "Mosaic"),
        ([T.Views(a=T.Mosaic(), b=T.Resize((8, 8)))], "samples of one view. Found: in the view 'a'"),
    ],
)
def test_places_in_a_chain_that_it_cannot_have(chain: list[Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        compile_plan(T.Compose(chain))


def test_what_a_plan_says_of_it() -> None:
    plan = compile_plan(T.Compose([T.Mosaic(64), T.MixUp(0.2), T.RandomHorizontalFlip()]))
    assert plan.output_size == (64, 64)
    assert plan.is_random
    assert plan.needs_engine
    assert plan.mosaic is not None
    assert plan.mosaic.records == 8
    with pytest.raises(ValueError, match="puts several samples together"):
        plan.made_of(np.zeros((4, 4, 3), np.uint8), 0)
