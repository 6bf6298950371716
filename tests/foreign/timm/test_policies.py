"""timm's own policies against the core: pixels of every operation at every magnitude, and what is drawn."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
from PIL import Image
from timm.data import auto_augment, create_transform
from two_samples import same_shares, same_values

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.operations.timm import RULES, Settings, operation
from fastload.transforms.plan import Drawn

pytestmark = pytest.mark.timeout(900)  # 30,000 draws of theirs, several times

SIZE = (45, 64)  # height, width
DRAWS = 30_000
FILTERS = {"bilinear": 2, "bicubic": 3}

STRINGS = [
    "rand-m9-mstd0.5-inc1",
    "rand-m7-n3-p0.7",
    "rand-m9-n1-mstd101-mmax12-inc1",
    "rand-n2-m5-mstd1-tweights",
    "rand-m8-t3a",
    "rand-n3-mstd1-t3aw",
    "original",
    "original-mstd0.5",
    "originalr",
    "v0",
    "v0r-mstd0.5",
    "3a",
    "augmix-m5-w4-d2",
    "augmix-m5-w4-d2-b1-mstd1-a0.5",
    "augmix",
]


def theirs(config: str, **hparams: Any) -> Any:
    more = {**auto_augment._HPARAMS_DEFAULT, **hparams}
    for start, make in (
        ("rand", auto_augment.rand_augment_transform),
        ("augmix", auto_augment.augment_and_mix_transform),
    ):
        if config.startswith(start):
            return make(config, more)
    return auto_augment.auto_augment_transform(config, more)


@pytest.mark.parametrize("config", STRINGS)
def test_a_string_and_its_object_mean_the_same(config: str) -> None:
    more = {"translate_pct": 0.3} if config.startswith("augmix") else {}  # as create_transform says
    (use,) = compile_plan(theirs(config, **more)).pixels
    found = T.TimmAugment(config).use
    assert use.name == found.name
    assert use.parts == found.parts
    assert np.allclose(
        np.array(use.numbers[1:]) / sum(use.numbers[1:] or [1]),  # timm's weights have a sum of one
        np.array(found.numbers[1:]) / sum(found.numbers[1:] or [1]),
    )


def picture() -> Any:
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    values = np.stack([3 * x + y, 250 - 4 * y, 20 + 2 * x], -1)
    noise = np.random.default_rng(1).integers(0, 60, values.shape)
    return (values + noise).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("name", sorted(set(RULES) - {"GaussianBlurRand"}))
def test_pixels_of_every_operation(name: str, filter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hparams = {"translate_const": 20, "img_mean": (124, 116, 104), "interpolation": FILTERS[filter]}
    pixels, compared = picture(), 0
    for magnitude in (0, 1, 2.5, 5, 7, 9, 9.7, 10):
        op = auto_augment.AugmentOp(name, 1.0, magnitude, hparams)
        use = operation(name, 1.0, magnitude, Settings(**hparams))  # type: ignore[arg-type]
        place = 1 if name.endswith("Rel") else 0
        number = use.numbers[place] if use.numbers else 0.0
        if use.name == "posterize" and number == 0.0:
            with pytest.raises(ValueError, match="bits"):  # Pillow 13
                op(Image.fromarray(pixels))
            black = _C.operate(pixels, _C.PixelSpec([use.as_node()]), 0, 0, 0)
            assert not black.any()
            continue
        for value in number.values if isinstance(number, Drawn) else [number]:
            one = list(use.numbers)
            one[place : place + 1] = [value] if one else []
            found = _C.operate(pixels, _C.PixelSpec([(use.name, 1.0, one)]), 0, 0, 0)
            wanted = []
            for coin in (0.0, 1.0) if isinstance(number, Drawn) else (0.0,):  # timm's sign
                monkeypatch.setattr(random, "random", lambda coin=coin: coin)
                wanted.append(np.asarray(op(Image.fromarray(pixels))))
            assert any(np.array_equal(found, one) for one in wanted), (magnitude, value)
            compared += 1
    assert compared >= 6


def recorded(item: Any) -> list[Any]:
    """timm's object with its functions replaced by some that note (name, number); the list is theirs."""
    steps: list[Any] = []
    ops = item.ops if hasattr(item, "ops") else [op for pair in item.policy for op in pair]
    for op in ops:

        def note(image: Any, *numbers: float, name: str = op.name, **_: Any) -> Any:
            number = numbers[0] if numbers else 0.0
            if name == "Desaturate":
                number = min(1.0, max(0.0, 1.0 - number))
            steps.append((RULES[name].row, float(number)))
            return image

        op.aug_fn = note
    return steps


def number_of(name: str, numbers: tuple[float, ...]) -> float:
    if name.startswith("translate"):
        return numbers[0] or numbers[1]
    return numbers[0] if numbers else 0.0


@pytest.mark.parametrize("config", [one for one in STRINGS if not one.startswith("augmix")])
def test_what_is_drawn(config: str) -> None:
    """Operations of 30,000 samples in their order, chi-square against timm's own; their numbers, too."""
    item = theirs(config)
    spec = _C.PixelSpec([use.as_node() for use in compile_plan(item).pixels])
    steps, image = recorded(item), Image.new("RGB", SIZE[::-1])
    random.seed(0)
    np.random.seed(0)
    wanted, found = (
        [],
        [
            tuple((name, number_of(name, numbers)) for name, numbers in spec.drawn(5, 0, i))
            for i in range(DRAWS)
        ],
    )
    for _ in range(DRAWS):
        item(image)
        wanted.append(tuple(steps))
        steps.clear()
    if config == "3a":  # timm draws the radius where it blurs
        assert {number for one in wanted for name, number in one if "blur" in name} == {1.0}
    names = [Counter(tuple(name for name, _ in one) for one in both) for both in (found, wanted)]
    assert same_shares(*names)
    for row in {name for one in found for name, _ in one} - {"gaussian_blur_pillow"}:
        ours_, theirs_ = (
            [number for one in both for name, number in one if name == row] for both in (found, wanted)
        )
        assert same_values(ours_, theirs_), row


@pytest.mark.parametrize("config", ["augmix", "augmix-m5-w4-d2", "augmix-b1-a0.5"])
def test_what_augmix_draws(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operations of a chain, and the weight of the chains."""
    item = theirs(config)
    (use,) = compile_plan(item).pixels
    spec = _C.PixelSpec([use.as_node()])
    steps, image, blends = recorded(item), Image.new("RGB", SIZE[::-1]), []
    monkeypatch.setattr(Image, "blend", lambda a, b, share: blends.append(float(share)) or a)
    np.random.seed(0)
    random.seed(0)
    wanted, shares, found, ours_ = Counter[Any](), [], Counter[Any](), []
    for i in range(20_000):
        item(image)
        wanted[len(steps)] += 1
        shares.append(blends[-1])
        steps.clear()
        blends.clear()
        drawn = spec.drawn(5, 0, i)
        found[sum(not name.startswith(("mix", "turn")) for name, _ in drawn)] += 1
        ours_.append(drawn[-1 if use.name == "mix_and_blend" else -2][1][0])
    assert same_shares(found, wanted)
    assert same_values(ours_, shares)


def test_create_transform_is_native() -> None:
    chain = create_transform(
        224, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", interpolation="bicubic", color_jitter=None
    )
    plan = compile_plan(chain)
    assert plan.tail == ()
    assert [step.native for step in plan.steps] == [True] * 5
    policy = compile_plan(T.Compose([T.RandomResizedCrop(224), chain.transforms[2]])).pixels
    assert policy == plan.pixels
    assert "rotate" in str(policy)
    assert math.isclose(plan.mean[0], 0.485, abs_tol=1e-6)
