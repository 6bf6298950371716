"""The specs of colour operations: what they draw, the same pixels as Pillow's, torchvision's objects."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pillow_points import BY_NUMBERS
from pixel_reference import drawn_steps
from torchvision_likes import from_torchvision
from transform_reference import Draws

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.plan import Drawn, PixelUse

SIMCLR = T.ColorJitter(0.8, 0.8, 0.8, 0.2)
DISTORT = T.RandomPhotometricDistort()


def drawn(spec: Any, count: int) -> list[list[tuple[str, tuple[float, ...]]]]:
    """What the core draws for samples 0, 1, ... of a spec."""
    pixels = compile_plan(spec).pixel_spec()
    return [pixels.drawn(3, 1, sample) for sample in range(count)]


@pytest.mark.parametrize("spec", [SIMCLR, DISTORT, T.RandomApply([SIMCLR], 0.8)])
def test_samples_equal_pillow_with_the_factors_that_were_drawn(spec: Any) -> None:
    plan = compile_plan(T.Compose([spec]))
    pixels = np.random.default_rng(0).integers(0, 256, (37, 41, 3), dtype=np.uint8)
    changed = 0
    for sample in range(60):
        picture = Image.fromarray(pixels)
        for name, numbers in drawn_steps(plan.pixels, Draws(5, 2, sample, 0)):
            picture = BY_NUMBERS[name](*numbers)(picture)
        found = _C.operate(pixels, plan.pixel_spec(), 5, 2, sample)
        assert np.array_equal(found, np.asarray(picture))
        changed += not np.array_equal(found, pixels)
    assert changed > 40


def test_the_order_of_a_jitter_is_drawn() -> None:
    orders = Counter(tuple(name for name, _ in steps) for steps in drawn(SIMCLR, 24_000))
    assert len(orders) == 24
    assert sum((count - 1000) ** 2 / 1000 for count in orders.values()) < 49.7  # chi-square, 1 in 1,000


def test_factors_are_uniform_between_the_bounds() -> None:
    found: dict[str, list[float]] = {}
    for steps in drawn(T.ColorJitter(0.4, (0.5, 0.75), 2.0, (-0.1, 0.3)), 4000):
        for name, (factor,) in steps:
            found.setdefault(name, []).append(factor)
    bounds = {"brightness": (0.6, 1.4), "contrast": (0.5, 0.75), "saturation": (0, 3), "hue": (-0.1, 0.3)}
    assert set(found) == set(bounds)
    for name, (low, high) in bounds.items():
        tenths = np.histogram(found[name], 10, (low, high))[0]
        assert tenths.sum() == len(found[name]) == 4000
        assert ((tenths - 400) ** 2 / 400).sum() < 27.9  # chi-square, 1 in 1,000


def test_what_cannot_change_anything_is_left_out() -> None:
    assert compile_plan(T.ColorJitter()).pixels == ()
    assert not compile_plan(T.ColorJitter(None, (1, 1), 0, (0.0, 0.0))).is_random
    (use,) = compile_plan(T.ColorJitter(contrast=(0.5, 0.5), hue=0.1)).pixels
    hue = PixelUse("hue", 1.0, (Drawn("uniform", (-0.1, 0.1)),))
    assert use == PixelUse("order", 1.0, (), (PixelUse("contrast", 1.0, (0.5,)), hue))
    assert not compile_plan(T.ColorJitter(contrast=(0.5, 0.5))).is_random


def test_photometric_distort_draws_each_part_and_the_place_of_contrast() -> None:
    chains = [tuple(name for name, _ in steps) for steps in drawn(DISTORT, 8000)]
    counts = Counter(name for chain in chains for name in chain)
    parts = ("brightness", "contrast", "saturation", "hue", "channel_permutation")
    assert set(counts) == set(parts)
    assert all(abs(counts[name] - 4000) < 4 * 45 for name in parts)  # four standard deviations
    before = ("brightness", "contrast", "saturation", "hue", "channel_permutation")
    behind = ("brightness", "saturation", "hue", "contrast", "channel_permutation")
    places = {before: 0, behind: 0}
    for chain in chains:
        fits = [order for order in (before, behind) if chain == tuple(p for p in order if p in chain)]
        assert fits
        if len(fits) == 1:
            places[fits[0]] += 1
    assert abs(places[before] - places[behind]) < 4 * np.sqrt(sum(places.values()))
    assert sum(places.values()) > 2000  # contrast and one of those that it may stand behind


def test_all_orders_of_the_channels_are_as_likely() -> None:
    orders = Counter(numbers for ((_, numbers),) in drawn(T.RandomChannelPermutation(), 6000))
    assert len(orders) == 6
    assert sum((count - 1000) ** 2 / 1000 for count in orders.values()) < 20.5  # chi-square, 1 in 1,000


OBJECTS = [
    (from_torchvision("RandomPosterize", bits=4, p=0.3), T.RandomPosterize(4, 0.3)),
    (from_torchvision("RandomAutocontrast", p=0.3), T.RandomAutocontrast(0.3)),
    (from_torchvision("RandomEqualize", p=0.3), T.RandomEqualize(0.3)),
    (from_torchvision("RandomAdjustSharpness", sharpness_factor=2, p=0.3), T.RandomAdjustSharpness(2, 0.3)),
    (from_torchvision("RandomChannelPermutation"), T.RandomChannelPermutation()),
    (
        from_torchvision(
            "ColorJitter", brightness=(0.6, 1.4), contrast=None, saturation=[0.5, 2.0], hue=(-0.1, 0.1)
        ),
        T.ColorJitter((0.6, 1.4), 0, (0.5, 2.0), 0.1),
    ),
    (
        from_torchvision(
            "RandomPhotometricDistort",
            brightness=(0.875, 1.125),
            contrast=(0.5, 1.5),
            saturation=(0.5, 1.5),
            hue=(-0.05, 0.05),
            p=0.5,
        ),
        T.RandomPhotometricDistort(),
    ),
]


@pytest.mark.parametrize(("item", "spec"), OBJECTS, ids=[type(item).__name__ for item, _ in OBJECTS])
def test_torchvisions_objects_become_native(item: Any, spec: Any) -> None:
    plan = compile_plan(item)
    assert plan.tail == ()
    assert plan.pixels == compile_plan(spec).pixels != ()


TENSORS = ("RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize")
COLOURED = ("ColorJitter", "RandomPhotometricDistort")  # of which the core has torchvision's of tensors


@pytest.mark.parametrize(("item", "spec"), OBJECTS, ids=[type(item).__name__ for item, _ in OBJECTS])
def test_what_torchvision_does_otherwise_to_tensors_stays_its_own(item: Any, spec: Any) -> None:
    plan = compile_plan(T.Compose([from_torchvision("PILToTensor"), item]))
    name = type(item).__name__
    assert (plan.tail == (item,)) == (name in TENSORS)
    assert ("tensor_" in repr(plan.pixels)) == (name in COLOURED)
    own = compile_plan(T.Compose([from_torchvision("PILToTensor"), spec]))
    assert own.pixels == compile_plan(spec).pixels, "fastload's own are Pillow's everywhere"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.ColorJitter(-0.1), r"ColorJitter.brightness must be at least 0. Found: -0.1"),
        (
            lambda: T.ColorJitter(contrast=(2, 1)),
            r"ColorJitter.contrast must be in \[0, inf\]. Found: \(2.0, 1.0\)",
        ),
        (lambda: T.ColorJitter(hue=0.6), r"ColorJitter.hue must be in \[-0.5, 0.5\]"),
        (lambda: T.RandomPosterize(0), r"RandomPosterize.bits must be in \[1, 8\]. Found: 0"),
        (lambda: T.RandomAdjustSharpness(-1), r"sharpness_factor must be at least 0. Found: -1"),
        (lambda: T.RandomEqualize(2), r"RandomEqualize.p must be in \[0, 1\]. Found: 2"),
        (
            lambda: T.RandomPhotometricDistort(hue=(-1, 0)),
            r"RandomPhotometricDistort.hue must be in \[-0.5, 0.5\]",
        ),
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_bits_are_whole() -> None:
    with pytest.raises(TypeError, match=r"RandomPosterize.bits must be an int in \[1, 8\]. Found: 4.0"):
        T.RandomPosterize(4.0)  # type: ignore[arg-type]
