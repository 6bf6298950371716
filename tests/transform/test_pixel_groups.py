"""Groups of operations on pixels, and numbers that are drawn: as the reference draws them."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pixel_reference import drawn_steps
from torchvision_likes import from_torchvision
from transform_reference import Draws

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.plan import Drawn, PixelUse

LEAVES = (
    PixelUse("invert", 0.5),
    PixelUse("grayscale", 1.0),
    PixelUse("solarize", 1.0, (Drawn("uniform", (10.0, 200.0)),)),
    PixelUse("solarize", 0.7, (Drawn("among", (1.0, 2.0, 3.0)),)),
    PixelUse("solarize", 1.0, (Drawn("level", (9.0, 0.5, 10.0, 10.0, 256.0, 1.0, 0.0, 0.0, 0.0, 256.0)),)),
    PixelUse("solarize", 1.0, (Drawn("level", (9.0, math.inf, 10.0, 10.0, 0.9, 0.0, 1.0, 1.0, 0.1, 2.0)),)),
    PixelUse("solarize", 1.0, (Drawn("level", (9.0, 0.0, 10.0, 10.0, 30.0, 0.0, 1.0, 0.0, -30.0, 30.0)),)),
)


def groups(parts: Any) -> Any:
    some = st.lists(parts, min_size=1, max_size=5).map(tuple)
    chances = st.sampled_from([0.0, 0.3, 1.0])
    both = [st.builds(PixelUse, st.just(name), chances, st.just(()), some) for name in ("all", "order")]
    weighted = some.flatmap(
        lambda found: st.builds(
            PixelUse,
            st.just("choice"),
            chances,
            st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(found), max_size=len(found)).map(tuple),
            st.just(found),
        )
    )
    return st.one_of(*both, weighted)


USES = st.recursive(st.sampled_from(LEAVES), groups, max_leaves=20)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(USES, max_size=4), st.integers(0, 2**64 - 1), st.integers(0, 2**32), st.integers(0, 2**64 - 1)
)
def test_what_is_drawn_is_the_references(uses: Any, seed: int, epoch: int, sample: int) -> None:
    spec = _C.PixelSpec([use.as_node() for use in uses])
    found = spec.drawn(seed, epoch, sample)
    wanted = drawn_steps(uses, Draws(seed, epoch, sample))
    assert [name for name, _ in found] == [name for name, _ in wanted]
    for (_, numbers), (_, expected) in zip(found, wanted, strict=True):
        assert np.allclose(numbers, expected, rtol=1e-12, atol=0)  # log and cos are the libraries'


def drawn_of(transform: Any, samples: int) -> list[tuple[Any, ...]]:
    spec = compile_plan(transform).pixel_spec()
    return [tuple(spec.drawn(7, 0, sample)) for sample in range(samples)]


def chi_square(counts: Counter[Any], shares: dict[Any, float]) -> float:
    """Over the expected counts; what is not expected counts as infinite."""
    total = sum(counts.values())
    if set(counts) - set(shares):
        return math.inf
    return sum((counts[key] - total * share) ** 2 / (total * share) for key, share in shares.items())


def test_choices_have_their_weights() -> None:
    parts = [T.RandomInvert(1.0), T.Grayscale(3), T.RandomSolarize(1.0, 1.0)]
    names = ["invert", "grayscale", "solarize"]
    found = Counter(steps[0][0] for steps in drawn_of(T.RandomChoice(parts, [1, 2, 5]), 40_000))
    assert chi_square(found, dict(zip(names, (1 / 8, 2 / 8, 5 / 8), strict=True))) < 13.8  # 0.1% of 2
    found = Counter(steps[0][0] for steps in drawn_of(T.RandomChoice(parts), 40_000))
    assert chi_square(found, dict.fromkeys(names, 1 / 3)) < 13.8


def test_every_order_is_as_likely() -> None:
    parts = [T.RandomSolarize(float(i), 1.0) for i in range(4)]
    found = Counter(
        tuple(int(numbers[0]) for _, numbers in steps) for steps in drawn_of(T.RandomOrder(parts), 48_000)
    )
    assert chi_square(found, dict.fromkeys(permutations(range(4)), 1 / 24)) < 49.7  # 0.1% of 23


def test_random_apply_is_all_or_nothing() -> None:
    found = Counter(
        len(steps) for steps in drawn_of(T.RandomApply([T.RandomInvert(1.0), T.Grayscale(3)], 0.3), 40_000)
    )
    assert chi_square(found, {0: 0.7, 2: 0.3}) < 10.8


def test_a_normal_level_has_its_moments() -> None:
    use = PixelUse("solarize", 1.0, (Drawn("level", (5.0, 1.0, 1e9, 1.0, 1.0, 0.0, 0.0, 0.0, -1e9, 1e9)),))
    spec = _C.PixelSpec([use.as_node()])
    found = np.array([spec.drawn(1, 0, i)[0][1][0] for i in range(40_000)])
    assert abs(found.mean() - 5) < 0.02
    assert abs(found.std() - 1) < 0.02
    assert abs(np.mean(((found - found.mean()) / found.std()) ** 4) - 3) < 0.15


def test_torchvisions_groups_become_native() -> None:
    invert = from_torchvision("RandomInvert", p=0.25)
    gray = from_torchvision("Grayscale", num_output_channels=3)
    composed = from_torchvision("Compose", transforms=[invert, gray])
    choice = from_torchvision("RandomChoice", transforms=[composed, gray], p=None, probabilities=[0.5, 0.5])
    order = from_torchvision("RandomOrder", transforms=[choice, invert])
    apply = from_torchvision("RandomApply", transforms=[order], p=0.8)
    plan = compile_plan(apply)
    leaf, certain = PixelUse("invert", 0.25), PixelUse("grayscale", 1.0)
    inner = PixelUse("choice", 1.0, (0.5, 0.5), (PixelUse("all", 1.0, (), (leaf, certain)), certain))
    assert plan.pixels == (PixelUse("all", 0.8, (), (PixelUse("order", 1.0, (), (inner, leaf)),)),)
    assert plan.tail == ()
    assert plan.is_random


@pytest.mark.parametrize("name", ["RandomApply", "RandomChoice", "RandomOrder"])
def test_a_group_with_a_stranger_runs_in_python(name: str) -> None:
    def mine(image: Any) -> Any:
        return image

    item = from_torchvision(name, transforms=[from_torchvision("RandomInvert", p=0.5), mine], p=None)
    if name == "RandomApply":
        item.p = 0.5
    plan = compile_plan(item)
    assert plan.tail == (item,)
    assert plan.pixels == ()
    assert "a callable that the core does not know" in plan.steps[0].why


def test_what_groups_refuse() -> None:
    with pytest.raises(
        TypeError, match=r"RandomApply takes transforms that the core knows. Found: <built-in"
    ):
        T.RandomApply([len])
    with pytest.raises(ValueError, match=r"RandomOrder needs at least one transform"):
        T.RandomOrder([])
    with pytest.raises(ValueError, match=r"RandomChoice.p must be weights of at least 0"):
        T.RandomChoice([T.RandomInvert()], [0.0])
    with pytest.raises(ValueError, match=r"RandomApply.p must be in \[0, 1\]. Found: 2"):
        T.RandomApply([T.RandomInvert()], 2)
    with pytest.raises(ValueError, match=r"CenterCrop.* is .*"):
        compile_plan(T.RandomApply([T.CenterCrop(3)]))
    with pytest.raises(ValueError, match=r"ToDtype.* is in RandomApply, whose parts may only be operations"):
        compile_plan(T.RandomApply([T.ToDtype("float32")]))
    with pytest.raises(ValueError, match=r"choice takes 2 numbers. Found: 0"):
        _C.PixelSpec([("choice", 1.0, [], [("invert", 1.0, []), ("invert", 1.0, [])])])
    with pytest.raises(ValueError, match=r"order takes 1 to 256 parts. Found: 0"):
        _C.PixelSpec([("order", 1.0, [], [])])
    with pytest.raises(ValueError, match=r"invert takes no parts. Found: 1"):
        _C.PixelSpec([("invert", 1.0, [], [("invert", 1.0, [])])])
    with pytest.raises(ValueError, match=r"weights of a choice must be at least 0. Found: -1"):
        _C.PixelSpec([("choice", 1.0, [-1.0], [("invert", 1.0, [])])])
    with pytest.raises(ValueError, match=r"A number must be constant, uniform, among or level. Found: odd"):
        _C.PixelSpec([("solarize", 1.0, [("odd", [1.0])])])
    with pytest.raises(ValueError, match=r"A number that is uniform has 2 values. Found: 1"):
        _C.PixelSpec([("solarize", 1.0, [("uniform", [1.0])])])
