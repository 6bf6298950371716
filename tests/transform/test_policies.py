"""Policies: the core's pixels are Pillow's, for what the reference draws; objects of torchvision's."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pixel_reference import drawn_steps
from policy_reference import policy_reference
from torchvision_likes import from_torchvision
from transform_reference import Draws

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.operations.policies import SUB_POLICIES
from fastload.transforms.plan import Drawn, PixelUse

SIZE = (37, 53)  # height, width

POLICIES: dict[str, Any] = {
    "imagenet": T.AutoAugment(),
    "imagenet bilinear": T.AutoAugment(interpolation="bilinear", fill=(124, 116, 104)),
    "cifar10": T.AutoAugment("cifar10", version=2),
    "svhn": T.AutoAugment("svhn", fill=7),
    "rand": T.RandAugment(),
    "rand strong": T.RandAugment(4, 30, interpolation="bicubic"),
    "rand v2": T.RandAugment(1, 5, 9, version=2),
    "trivial": T.TrivialAugmentWide(),
    "trivial bicubic": T.TrivialAugmentWide(interpolation="bicubic", fill=[1, 2, 3]),
    "augmix": T.AugMix(),
    "augmix deep": T.AugMix(10, 4, 2, 0.5, False, "nearest", version=2),
    "rand-m9-mstd0.5-inc1": T.TimmAugment("rand-m9-mstd0.5-inc1"),
    "rand-m7-n3-p0.7": T.TimmAugment("rand-m7-n3-p0.7", interpolation="bicubic"),
    "rand-m15-mmax20-mstd101-inc1": T.TimmAugment("rand-m15-mmax20-mstd101-inc1"),
    "rand-n3-m5-tweights": T.TimmAugment("rand-n3-m5-tweights"),
    "rand-m8-t3a": T.TimmAugment("rand-m8-t3a", (0.485, 0.456, 0.406)),
    "rand-mstd1-t3aw": T.TimmAugment("rand-mstd1-t3aw"),
    "v0": T.TimmAugment("v0"),
    "v0r": T.TimmAugment("v0r-mstd0.5"),
    "original": T.TimmAugment("original-mstd0.5"),
    "originalr": T.TimmAugment("originalr"),
    "3a": T.TimmAugment("3a"),
    "augmix-m5-w4-d2": T.TimmAugment("augmix-m5-w4-d2"),
    "augmix-m5-w4-d2-b1": T.TimmAugment("augmix-m5-w4-d2-b1-mstd1"),
}


def uses_of(policy: Any) -> tuple[PixelUse, ...]:
    return compile_plan(T.Compose([T.CenterCrop(SIZE), policy])).pixels


def pictures() -> list[Any]:
    """Noise, smooth colours, few colours."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    smooth = np.stack([3 * x + y, 90 + 2 * y, 200 - 2 * x - y], -1).clip(0, 255).astype(np.uint8)
    return [noise, smooth, noise // 90 * 40 + 20]


@pytest.mark.parametrize("name", POLICIES)
def test_the_core_equals_pillow(name: str) -> None:
    uses, changed = uses_of(POLICIES[name]), 0
    spec, given = _C.PixelSpec([use.as_node() for use in uses]), pictures()
    for sample in range(300):
        pixels = given[sample % len(given)]
        found = _C.operate(pixels, spec, 5, 1, sample)
        assert np.array_equal(found, policy_reference(pixels, uses, Draws(5, 1, sample))), sample
        changed += not np.array_equal(found, pixels)
    assert changed > 50


def same(found: Any, wanted: Any) -> bool:
    if [name for name, _ in found] != [name for name, _ in wanted]:
        return False
    pairs = zip(found, wanted, strict=True)
    return all(np.allclose(a, b, rtol=1e-12, atol=0) for (_, a), (_, b) in pairs)


@pytest.mark.parametrize("name", ["some", "augmix", "mix_and_blend", "blend_in_turn"])
def test_what_groups_of_policies_draw_is_the_references(name: str) -> None:
    parts = tuple(
        PixelUse("solarize", 1.0 if i % 2 else 0.6, (Drawn("uniform", (float(i), i + 1.0)),))
        for i in range(4)
    )
    for numbers in (
        [(3.0, 1.0, 0.0, 2.0, 0.5), (2.0, 1.0, 1.0, 1.0, 1.0)] if name == "some" else [(0.3,), (2.5,)]
    ):
        use = PixelUse("all", 0.9, (), (PixelUse(name, 0.8, numbers, parts), parts[0]))
        spec = _C.PixelSpec([use.as_node()])
        for sample in range(500):
            assert same(spec.drawn(3, 2, sample), drawn_steps([use], Draws(3, 2, sample)))


def chi_square(counts: Counter[Any], shares: dict[Any, float]) -> float:
    """Over the expected counts; what is not expected counts as infinite."""
    total = sum(counts.values())
    if set(counts) - set(shares):
        return math.inf
    return sum((counts[key] - total * share) ** 2 / (total * share) for key, share in shares.items())


def test_some_are_drawn_by_weight_and_none_twice() -> None:
    weights = (1.0, 2.0, 5.0)
    parts = tuple(PixelUse("solarize", 1.0, (float(i),)) for i in range(3))
    spec = _C.PixelSpec([PixelUse("some", 1.0, (2.0, *weights), parts).as_node()])
    found = Counter(tuple(int(step[1][0]) for step in spec.drawn(1, 0, i)) for i in range(50_000))
    shares = {
        (i, j): weights[i] / 8 * weights[j] / (8 - weights[i]) for i in range(3) for j in range(3) if i != j
    }
    assert chi_square(found, shares) < 20.5  # 0.1% of 5


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_weights_of_a_mix_have_their_moments(alpha: float) -> None:
    """Beta(alpha, alpha) of the picture; Dirichlet of the chains: means, variances and third moments."""
    parts = (PixelUse("invert", 1.0),) * 3
    spec = _C.PixelSpec([PixelUse("mix_and_blend", 1.0, (alpha,), parts).as_node()])
    steps = [spec.drawn(9, 0, i) for i in range(40_000)]
    both = np.array([one[-1][1][0] for one in steps])
    chains = np.array([[number[0] for name, number in one if name == "mix_add"] for one in steps])
    assert np.allclose(chains.sum(1), 1, atol=1e-6)
    for values, a, b in ((both, alpha, alpha), *((chains[:, i], alpha, 2 * alpha) for i in range(3))):
        moment = 1.0
        for order in (1, 2, 3):
            moment *= (a + order - 1) / (a + b + order - 1)
            spread = np.std(values**order) / np.sqrt(len(values))
            assert abs(np.mean(values**order) - moment) < 4.5 * spread


def test_every_operation_and_sign_is_as_likely() -> None:
    """Of 100,000 samples of RandAugment, as torchvision draws them: operation, then sign."""
    spec = _C.PixelSpec([use.as_node() for use in uses_of(T.RandAugment(1, 9))])
    found: Counter[Any] = Counter()
    for sample in range(100_000):
        steps = spec.drawn(2, 0, sample)
        name, numbers = steps[0] if steps else ("identity", ())
        found[name, numbers[0] if numbers else 0.0] += 1
    names = Counter(name for name, _ in found.elements())
    assert len(names) == 14
    assert chi_square(names, dict.fromkeys(names, 1 / 14)) < 34.5
    signed = {name for name, count in Counter(name for name, _ in found).items() if count == 2}
    assert signed == {
        *("shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
        *("brightness", "saturation", "contrast", "sharpness"),
    }
    shares = {key: 1 / 28 if key[0] in signed else 1 / 14 for key in found}
    assert chi_square(found, shares) < 46.8  # 0.1% of 22


def test_all_strengths_of_trivial_augment_are_as_likely() -> None:
    spec = _C.PixelSpec([use.as_node() for use in uses_of(T.TrivialAugmentWide())])
    found = Counter(
        numbers[0] for i in range(100_000) for name, numbers in spec.drawn(2, 0, i) if name == "rotate"
    )
    shares = {sign * 4.5 * k: 1 / 62 for k in range(1, 31) for sign in (1, -1)} | {0.0: 2 / 62}
    assert chi_square(found, shares) < 99.6  # 0.1% of 60


BARE = ("Equalize", "Invert", "AutoContrast")
MODULES = {1: "torchvision.transforms.autoaugment", 2: "torchvision.transforms.v2._auto_augment"}


def tv(name: str, version: int, **attributes: Any) -> Any:
    more = {"interpolation": SimpleNamespace(value="nearest"), "fill": None}
    return from_torchvision(name, MODULES[version], **{**more, **attributes})


@pytest.mark.parametrize("version", [1, 2])
def test_torchvisions_objects_become_native(version: int) -> None:
    pairs = [
        tuple((name, p, None if name in BARE else level) for name, p, level in pair)
        for pair in SUB_POLICIES["svhn"]
    ]
    policies = {"policies" if version == 1 else "_policies": pairs}
    given = [
        (tv("RandAugment", version, num_ops=3, magnitude=7, num_magnitude_bins=11), T.RandAugment(3, 7, 11)),
        (tv("TrivialAugmentWide", version, num_magnitude_bins=21, fill=9), T.TrivialAugmentWide(21, fill=9)),
        (tv("AutoAugment", version, policy=SimpleNamespace(value="svhn"), **policies), T.AutoAugment("svhn")),
    ]
    for item, spec in given:
        spec.__dict__["version"] = version
        plan = compile_plan(from_torchvision("Compose", transforms=[T.CenterCrop(SIZE), item]))
        assert plan.tail == ()
        assert plan.pixels == uses_of(spec)
        assert [step.native for step in plan.steps] == [True, True]  # one line for a policy


def test_what_means_something_else_stays_in_python() -> None:
    changed = tv("AutoAugment", 1, policy=SimpleNamespace(value="svhn"), policies=[])
    box = tv("RandAugment", 2, num_ops=2, magnitude=9, num_magnitude_bins=31, interpolation="box")
    per_type = tv("TrivialAugmentWide", 2, num_magnitude_bins=31, fill={int: 3})
    mix = tv("AugMix", 1, severity=3)
    for item, why in (
        (changed, "sub-policies are not those of its policy"),
        (box, "interpolation must be one of nearest, bilinear, bicubic. Found: 'box'"),
        (per_type, "TrivialAugmentWide.fill must be 1 numbers. Found: ({<class 'int'>: 3},)"),
        (mix, "it converts pictures to tensors"),
    ):
        plan = compile_plan(T.Compose([T.CenterCrop(SIZE), item]))
        assert plan.tail == (item,)
        assert why in plan.steps[-1].why
    assert "fastload.transforms.AugMix" in plan.steps[-1].keep


def test_shifts_by_a_share_need_a_size() -> None:
    with pytest.raises(ValueError, match=r"RandAugment shifts by a share of the picture's size, which"):
        compile_plan(T.RandAugment())
    item = tv("RandAugment", 1, num_ops=2, magnitude=9, num_magnitude_bins=31)
    plan = compile_plan(item)
    assert plan.tail == (item,)
    assert "Put it after RandomResizedCrop" in plan.steps[0].why
    assert compile_plan(T.TrivialAugmentWide()).tail == ()  # it shifts by pixels
    grouped = T.Compose([T.CenterCrop(SIZE), T.RandomApply([T.RandAugment()], 0.5)])
    assert compile_plan(grouped).pixels[0].parts == uses_of(T.RandAugment())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.AutoAugment("mnist"), r"policy must be one of imagenet, cifar10, svhn. Found: 'mnist'"),
        (lambda: T.RandAugment(-1), r"RandAugment.num_ops must be in \[0, 64\]. Found: -1"),
        (lambda: T.RandAugment(2, 31), r"RandAugment.magnitude must be in \[0, 30\]. Found: 31"),
        (
            lambda: T.RandAugment(fill=300),
            r"RandAugment.fill must be a number in \[0, 255\], or three. Found: 300",
        ),
        (lambda: T.TrivialAugmentWide(1), r"num_magnitude_bins must be in \[2, 2048\]. Found: 1"),
        (lambda: T.TrivialAugmentWide(version=3), r"version must be 1 or 2. Found: 3"),
        (lambda: T.AugMix(0), r"AugMix.severity must be in \[1, 10\]. Found: 0"),
        (lambda: T.AugMix(chain_depth=0), r"AugMix.chain_depth must be in \[1, 16\]. Found: 0"),
        (lambda: T.AugMix(alpha=0), r"AugMix.alpha must be in \[0.05, 1000\]. Found: 0"),
        (lambda: T.TimmAugment("rand-x3"), r"'rand-x3': it may have m, n, .*Found: 'x3'"),
        (lambda: T.TimmAugment("rand-inc"), r"each with its value. Found: 'inc'"),
        (lambda: T.TimmAugment("rand-mx"), r"each with its value. Found: 'mx'"),
        (lambda: T.TimmAugment("rand-n0"), r"n must be in \[1, 16\]. Found: 0"),
        (lambda: T.TimmAugment("augmix-w17"), r"w must be in \[1, 16\]. Found: 17"),
        (lambda: T.TimmAugment("augmix-a0"), r"a must be in \[0.05, 1000\]. Found: '0'"),
        (lambda: T.TimmAugment("rand-tno"), r"t must be one of weights, 3aw, 3a. Found: 'no'"),
        (lambda: T.TimmAugment("v1"), r"must begin with rand, augmix, v0, v0r, .*Found: 'v1'"),
        (lambda: T.TimmAugment("3a-mstd1"), r"GaussianBlurRand draws a radius below one that mstd"),
        (
            lambda: T.TimmAugment("rand", (1, 2, 3)),
            r"TimmAugment.mean must be in \[0, 1\]. Found: \(1, 2, 3\)",
        ),
        (lambda: T.TimmAugment("rand", interpolation="box"), r"interpolation must be one of nearest"),
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            ("some", 1.0, [3.0, 1.0, 0.0], [("invert", 1.0, [])] * 2),
            r"Of some parts 0 to 1 can be taken.*: 3",
        ),
        (("some", 1.0, [1.0], [("invert", 1.0, [])]), r"some takes 2 numbers. Found: 1"),
        (("augmix", 1.0, [0.01], [("invert", 1.0, [])]), r"alpha of a mix must be in \[0.05, 1000\]"),
        (("augmix", 1.0, [], [("invert", 1.0, [])]), r"augmix takes 1 numbers. Found: 0"),
        (("blend_in_turn", 1.0, [1.0], []), r"blend_in_turn takes 1 to 16 parts. Found: 0"),
        (
            (
                "augmix",
                1.0,
                [1.0],
                [("all", 1.0, [], [("mix_and_blend", 1.0, [1.0], [("invert", 1.0, [])])])],
            ),
            r"augmix cannot have a mix among its parts",
        ),
    ],
)
def test_what_groups_refuse(node: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _C.PixelSpec([node])
