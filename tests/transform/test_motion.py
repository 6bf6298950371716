"""Operations that move pixels: equal to Pillow's as torchvision and timm call it, in any chain."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import motion_reference as reference
import numpy as np
import pytest
from PIL import Image
from torchvision_likes import from_torchvision, tv_crop
from transform_reference import Draws

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.plan import Drawn

Rng = random.Random
FILLS = [(0, 0, 0), (128, 128, 128), (1, 2, 250)]


def last(rng: Rng) -> tuple[float, ...]:
    return rng.choice([0, 1, 2]), *rng.choice(FILLS)


def center(rng: Rng) -> tuple[float, ...]:
    return rng.choice([(0, 0, 0), (0, 0, 0), (1, rng.uniform(-9, 60), rng.uniform(-9, 60)), (1, 0, 0)])


def angle(rng: Rng) -> float:
    return rng.choice([0, 90, 180, 270, -90, 360, 30, 45, rng.uniform(-400, 400), rng.uniform(-30, 30)])


def affine(rng: Rng) -> tuple[float, ...]:
    shares = [rng.choice([0, rng.uniform(-0.5, 0.5)]) for _ in range(2)]
    shears = [rng.choice([0, rng.uniform(-40, 40)]) for _ in range(2)]
    scale, version = rng.choice([1, rng.uniform(0.3, 2)]), rng.choice([1, 2])
    return angle(rng), *shares, scale, *shears, *center(rng), version, *last(rng)


def shear(rng: Rng) -> tuple[float, ...]:
    """The policies' magnitudes and others."""
    factors = [0, 0.3 * rng.randrange(31) / 30, -0.3 * rng.random(), 0.99 * rng.randrange(31) / 30]
    return rng.choice([*factors, rng.uniform(-2, 2)]), rng.choice([0, 1]), *last(rng)


def translation(rng: Rng) -> tuple[float, ...]:
    share = rng.choice([150 / 331 * rng.randrange(31) / 30, rng.uniform(-0.6, 0.6), 0.45 * rng.random()])
    pixels = rng.choice([rng.uniform(-40, 40), rng.randrange(-40, 40), 0])
    return *rng.choice([(0.0, share), (pixels, 0.0)]), rng.choice([0, 1]), *last(rng)


NUMBERS: dict[str, Callable[[Rng], tuple[float, ...]]] = {
    "affine": affine,
    "rotate": lambda rng: (angle(rng), *center(rng), *last(rng)),
    "shear_x": shear,
    "shear_y": shear,
    "translate_x": translation,
    "translate_y": translation,
    "horizontal_flip": lambda rng: (),
    "vertical_flip": lambda rng: (),
}


def picture(rng: Rng) -> Any:
    """Noise, black and white, or a ramp; of odd sizes, down to one pixel."""
    width, height = (rng.choice([1, 2, 3, rng.randrange(1, 60), rng.randrange(1, 60)]) for _ in range(2))
    noise = np.random.default_rng(rng.randrange(2**32))
    kind = rng.randrange(3)
    if kind == 0:
        return noise.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == 1:
        return noise.choice(np.array([0, 255], np.uint8), (height, width, 3))
    ramp = np.add.outer(np.arange(height), np.arange(width))[..., None] * np.array([1, 2, 3])
    return np.ascontiguousarray((ramp % 256).astype(np.uint8))


def moved(pixels: Any, name: str, numbers: Any, sample: int = 0) -> Any:
    return _C.operate(pixels, _C.PixelSpec([(name, 1.0, list(numbers), ())]), 0, 0, sample)


@pytest.mark.parametrize("name", NUMBERS)
def test_equals_pillow(name: str) -> None:
    rng, run = Rng(name), reference.MOVING[name][0]
    for _ in range(600):
        pixels, numbers = picture(rng), NUMBERS[name](rng)
        wanted = np.asarray(run(Image.fromarray(pixels), numbers))
        assert np.array_equal(moved(pixels, name, numbers), wanted), (pixels.shape, numbers)


@pytest.mark.parametrize("filter", [0, 1, 2])
def test_perspective_equals_pillow(filter: int) -> None:
    rng = Rng(filter)
    for sample in range(300):
        pixels, numbers = picture(rng), (rng.random(), filter, *rng.choice(FILLS))
        wanted = reference.perspective(Image.fromarray(pixels), numbers, Draws(0, 0, sample))
        assert np.array_equal(moved(pixels, "perspective", numbers, sample), np.asarray(wanted))


def test_perspectives_coefficients_are_torchvisions() -> None:
    """To the last bit of float32 but one, or to 1e-9: how LAPACK rounds is its own."""
    rng = Rng(0)
    for sample in range(2000):
        width, height = rng.randrange(2, 700), rng.randrange(2, 700)
        scale = rng.random()
        found, is_perspective = _C.motion_of("perspective", [scale, 0, 0, 0, 0], width, height, 0, 0, sample)
        corners = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
        pulled = reference.pulled_corners(scale, (width, height), Draws(0, 0, sample))
        wanted = reference.coefficients(corners, pulled)
        assert is_perspective
        assert np.allclose(found, wanted, rtol=2.0**-23, atol=1e-9)


@pytest.mark.parametrize("side", [40_000, 33_000])
def test_pictures_beyond_fixed_point_equal_pillows(side: int) -> None:
    """Pillow counts in double where 16 bits do not hold a column."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, side, 3), dtype=np.uint8)
    numbers = (1e-3, 0, 0, 0, 0, 9, 9, 9)
    wanted = reference.rotate(Image.fromarray(pixels), numbers)
    assert np.array_equal(moved(pixels, "rotate", numbers), np.asarray(wanted))


def test_all_that_moves_is_known_to_move() -> None:
    assert set(_C.MOVING_OPERATIONS) == set(reference.MOVING)


def uses(*chain: Any) -> tuple[list[str], list[str]]:
    plan = compile_plan(T.Compose(chain))
    assert plan.tail == ()
    return [use.name for use in plan.geometry], [use.name for use in plan.pixels]


def test_a_flip_behind_what_moves_is_done_behind_it() -> None:
    flip, turn = T.RandomHorizontalFlip(), T.RandomRotation(9)
    assert uses(flip, turn) == (["horizontal_flip"], ["rotate"])
    assert uses(turn, flip) == ([], ["rotate", "horizontal_flip"])
    assert uses(flip, turn, flip) == (["horizontal_flip"], ["rotate", "horizontal_flip"])
    assert uses(T.RandomGrayscale(), flip) == (["horizontal_flip"], ["grayscale"])
    (group,) = compile_plan(T.RandomApply([flip, T.RandomInvert()])).pixels
    assert [part.name for part in group.parts[0].parts or group.parts] == ["horizontal_flip", "invert"]
    assert uses(T.RandomApply([turn]), flip) == ([], ["all", "horizontal_flip"])


def test_a_vertical_flip_may_stand_anywhere() -> None:
    flip = T.RandomVerticalFlip()
    crop = T.RandomResizedCrop(8)
    assert uses(flip, crop) == (["vertical_flip", "random_resized_crop"], [])
    assert uses(crop, flip) == (["random_resized_crop", "vertical_flip"], [])
    assert uses(crop, T.RandomRotation(9), flip) == (["random_resized_crop"], ["rotate", "vertical_flip"])
    plan = compile_plan(T.Compose([T.ToDtype("float32"), flip]))
    assert [use.name for use in plan.geometry] == ["vertical_flip"]
    with pytest.raises(ValueError, match=r"RandomVerticalFlip.* is out of order"):
        compile_plan(T.Compose([T.RandomRotation(9), T.ToDtype("float32"), flip]))


def test_what_moves_does_not_stand_within_the_geometry() -> None:
    with pytest.raises(ValueError, match=r"CenterCrop.* is out of order"):
        compile_plan(T.Compose([T.Resize((9, 9)), T.RandomAffine(9), T.CenterCrop(5)]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.RandomRotation(-1), r"RandomRotation.degrees must be at least 0 .*Found: -1"),
        (
            lambda: T.RandomRotation((9, 3)),
            r"RandomRotation.degrees must be .low, high. with low <= high.*Found: \(9.0, 3.0\)",
        ),
        (lambda: T.RandomRotation(9, "box"), r"interpolation must be one of nearest, .*Found: 'box'"),
        (lambda: T.RandomRotation(9, expand=True), r"expand must be False.*Found: True"),
        (lambda: T.RandomRotation(9, fill=256), r"RandomRotation.fill must be a number in \[0, 255\]"),
        (lambda: T.RandomRotation(9, fill=(1, 2)), r"RandomRotation.fill must be .* or three. Found"),
        (lambda: T.RandomRotation(9, center=(1,)), r"RandomRotation.center must be 2 finite numbers"),
        (lambda: T.RandomAffine(9, (0.1, 1.1)), r"RandomAffine.translate must be in \[0, 1\]"),
        (lambda: T.RandomAffine(9, scale=(0, 1)), r"RandomAffine.scale must be above 0"),
        (lambda: T.RandomAffine(9, shear=(3, 2)), r"RandomAffine.shear must be .low, high. with low <= high"),
        (lambda: T.RandomPerspective(1.5), r"distortion_scale must be in \[0, 1\]. Found: 1.5"),
        (lambda: T.RandomVerticalFlip(2), r"RandomVerticalFlip.p must be in \[0, 1\]. Found: 2"),
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_torchvisions_objects_become_native() -> None:
    affine = {"degrees": [-9.0, 9.0], "translate": (0.1, 0.2), "scale": (0.5, 2.0), "fill": 3}
    parts = [
        tv_crop(),
        from_torchvision("RandomVerticalFlip", p=0.25),
        from_torchvision(
            "RandomRotation", degrees=[-5.0, 5.0], interpolation="bilinear", expand=False, center=None, fill=0
        ),
        from_torchvision("RandomAffine", **affine, shear=None, interpolation="nearest", center=(3, 4)),
        from_torchvision(
            "RandomPerspective", distortion_scale=0.5, p=0.5, interpolation="bicubic", fill=[1, 2, 3]
        ),
        from_torchvision("RandomHorizontalFlip", p=0.5),
    ]
    plan = compile_plan(T.Compose(parts))
    assert plan.tail == ()
    found = {use.name: (use.probability, use.numbers) for use in plan.pixels}
    assert [(use.name, use.numbers) for use in plan.geometry[1:]] == [("vertical_flip", (0.25,))]
    assert found == {
        "rotate": (1.0, (Drawn("uniform", (-5.0, 5.0)), 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)),
        "affine": (
            1.0,
            (
                Drawn("uniform", (-9.0, 9.0)),
                Drawn("uniform", (-0.1, 0.1)),
                Drawn("uniform", (-0.2, 0.2)),
                Drawn("uniform", (0.5, 2.0)),
                *(0.0, 0.0),
                *(1.0, 3.0, 4.0, 2.0),
                *(0.0, 3.0, 3.0, 3.0),
            ),
        ),
        "perspective": (0.5, (0.5, 2.0, 1.0, 2.0, 3.0)),
        "horizontal_flip": (0.5, ()),
    }
    larger = from_torchvision(
        "RandomRotation", degrees=[-5.0, 5.0], interpolation="nearest", expand=True, center=None, fill=0
    )
    plan = compile_plan(larger)
    assert plan.tail == (larger,)
    assert "expand must be False" in plan.steps[0].why


def test_of_tensors_torchvisions_moves_are_others() -> None:
    turn = from_torchvision(
        "RandomRotation", degrees=[-5.0, 5.0], interpolation="nearest", expand=False, center=None, fill=0
    )
    assert compile_plan(T.Compose([from_torchvision("PILToTensor"), turn])).tail == (turn,)


def test_what_is_certain_is_not_random() -> None:
    assert not compile_plan(T.RandomRotation((5, 5))).is_random
    assert compile_plan(T.RandomRotation(5)).is_random
    assert compile_plan(T.RandomPerspective(p=1.0)).is_random
