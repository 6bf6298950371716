"""Picture rules: their checks, what they print, the core's numbers, and counts by NumPy."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest
from long_forms import SEED, as_drawn, how_many

from fastload.vlm import rules
from fastload.vlm.rules import (
    FAMILIES,
    Gemma3,
    Grid,
    Idefics3,
    InternVL,
    LlavaOneVision,
    PaliGemma,
    Qwen2VL,
    Rule,
    SigLIP2,
)

COUNT = how_many(100_000, 1_000_000)
#: One of each family with other numbers than the defaults, and what else changes counts.
RULES: dict[str, Rule] = {
    "qwen2_vl": Qwen2VL(16, min_pixels=65536, max_pixels=16777216, mean=(0.5,) * 3, std=(0.5,) * 3),
    "qwen2_vl_default": Qwen2VL(),
    "qwen2_vl_first": Qwen2VL(first_max_pixels=768 * 768),
    "siglip2": SigLIP2(14, 729),
    "idefics3": Idefics3(2048, 512, tile_tokens=64),
    "idefics3_default": Idefics3(),
    "idefics3_capped": Idefics3(5001, 999),
    "idefics3_odd": Idefics3(1001, 91),  # where an odd side that is made even needs one more tile
    "idefics3_whole": Idefics3(crop_to_patches=False),
    "llava_onevision": LlavaOneVision(
        100, ((100, 300), (200, 200), (300, 100)), tile_tokens=36, select="default"
    ),
    "llava_onevision_default": LlavaOneVision(anyres_max=4),
    "internvl": InternVL(448, True, 2, 9, dtype="bfloat16"),
    "internvl_default": InternVL(),
    "gemma3": Gemma3((896, 896), True, 128, 5, 1.5, tile_tokens=64),
    "gemma3_default": Gemma3(),
    "paligemma": PaliGemma((448, 224), dtype="uint8"),
}

# ---- Values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_a_rule_prints_as_it_is_typed_compares_and_pickles(name: str) -> None:
    rule = RULES[name]
    assert eval(repr(rule), vars(rules)) == rule
    again = pickle.loads(pickle.dumps(rule))
    assert again == rule
    assert hash(again) == hash(rule)
    assert replace(rule, rescale=1.0) != rule  # type: ignore[type-var]
    with pytest.raises(FrozenInstanceError):
        rule.dtype = "uint8"


def test_defaults_print_as_nothing() -> None:
    assert [repr(kind()) for kind in FAMILIES.values()] == [
        f"{kind.__name__}()" for kind in FAMILIES.values()
    ]
    assert repr(Qwen2VL(patch=16, filter="lanczos")) == "Qwen2VL(patch=16, filter='lanczos')"


def test_every_family_is_here() -> None:
    assert {type(rule) for rule in RULES.values()} == set(FAMILIES.values())
    assert list(FAMILIES) == [
        "qwen2_vl", "siglip2", "idefics3", "llava_onevision", "internvl", "gemma3", "paligemma",
    ]  # fmt: skip


def test_numbers_for_the_core() -> None:
    """Each family's own, without what counts tokens."""
    pixels = {"filter", "mean", "std", "rescale"}
    own = {
        "qwen2_vl": {"patch", "merge", "temporal", "min_pixels", "max_pixels"},
        "siglip2": {"patch", "max_patches"},
        "idefics3": {"longest_edge", "tile", "crop_to_patches"},
        "llava_onevision": {"tile", "pinpoints"},
        "internvl": {"tile", "crop_to_patches", "min_tiles", "max_tiles"},
        "gemma3": {"size", "pan_and_scan", "pan_min_crop", "pan_max_crops", "pan_min_ratio"},
        "paligemma": {"size"},
    }
    for family, kind in FAMILIES.items():
        found, numbers = kind().core()
        assert found == family
        assert set(numbers) == own[family] | pixels
    assert Qwen2VL(first_max_pixels=7).core()[1]["first_max_pixels"] == 7
    family, numbers = LlavaOneVision().core()
    assert numbers["pinpoints"][:2] == [(384, 384), (384, 768)]
    assert len(numbers["pinpoints"]) == 36
    assert (numbers["filter"], numbers["rescale"]) == ("bicubic", 1 / 255)


def test_one_number_is_that_of_all_channels_and_lists_become_tuples() -> None:
    assert SigLIP2(mean=0, std=1).mean == (0.0, 0.0, 0.0)  # type: ignore[arg-type]
    rule = LlavaOneVision(pinpoints=[[384, 768]], mean=[0.1, 0.2, 0.3])  # type: ignore[arg-type]
    assert rule.pinpoints == ((384, 768),)
    assert rule.mean == (0.1, 0.2, 0.3)
    assert Gemma3(size=[8, 9]).size == (8, 9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Qwen2VL, {"patch": 0}, r"Qwen2VL.patch must be an integer of at least 1. Found: 0."),
        (Qwen2VL, {"merge": 2.0}, r"Qwen2VL.merge must be an integer of at least 1. Found: 2.0."),
        (Qwen2VL, {"min_pixels": 9, "max_pixels": 8}, r"min_pixels must be at most max_pixels, 8. Found: 9."),
        (Qwen2VL, {"first_max_pixels": True}, r"first_max_pixels must be an integer .* Found: True."),
        (SigLIP2, {"max_patches": -1}, r"SigLIP2.max_patches must be .* Found: -1."),
        (
            SigLIP2,
            {"mean": (0.5, 0.5)},
            r"SigLIP2.mean must be three finite numbers, one for each channel. Fou",
        ),
        (SigLIP2, {"mean": math.nan}, r"SigLIP2.mean must be three finite numbers"),
        (SigLIP2, {"mean": "0.5"}, r"SigLIP2.mean must be three finite numbers"),
        (
            SigLIP2,
            {"std": (0.5, 0, 0.5)},
            r"SigLIP2.std must be three numbers above 0, .* Found: \(0.5, 0, 0.5\).",
        ),
        (
            SigLIP2,
            {"filter": "box"},
            r"SigLIP2.filter must be one of bilinear, bicubic, lanczos. Found: 'box'.",
        ),
        (
            SigLIP2,
            {"dtype": "float16"},
            r"SigLIP2.dtype must be one of float32, bfloat16, uint8. Found: 'float16'",
        ),
        (SigLIP2, {"rescale": 0}, r"SigLIP2.rescale must be a number above 0. Found: 0."),
        (Idefics3, {"tile": "364"}, r"Idefics3.tile must be an integer .* Found: '364'."),
        (Idefics3, {"crop_to_patches": 1}, r"Idefics3.crop_to_patches must be True or False. Found: 1."),
        (
            LlavaOneVision,
            {"pinpoints": ()},
            r"pinpoints must be pairs \(height, width\) of multiples of tile, 384",
        ),
        (LlavaOneVision, {"pinpoints": ((384, 500),)}, r"of multiples of tile, 384. Found: \(384, 500\)."),
        (
            LlavaOneVision,
            {"select": "cls"},
            r"LlavaOneVision.select must be one of full, default. Found: 'cls'.",
        ),
        (InternVL, {"min_tiles": 5, "max_tiles": 4}, r"min_tiles must be at most max_tiles, 4. Found: 5."),
        (Gemma3, {"size": 224}, r"Gemma3.size must be a pair \(height, width\) in pixels. Found: 224."),
        (Gemma3, {"size": (224, 0)}, r"Gemma3.size must be an integer of at least 1. Found: 0."),
        (Gemma3, {"pan_min_crop": 3}, r"Gemma3.pan_min_crop must be an integer of at least 4. Found: 3."),
        (PaliGemma, {"tile_tokens": 0}, r"PaliGemma.tile_tokens must be an integer of at least 1. Found: 0."),
    ],
)
def test_errors_name_value_and_range(kind: type[Rule], given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(**given)


def test_of_other_packages_numpy_alone_is_imported() -> None:
    heavy = ("torch", "PIL", "transformers")
    code = f"import sys, fastload.vlm.rules; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# ---- Sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "size", "grid"),
    [  # halves are rounded to even: 42/28 is 2, 70/28 is 2
        (Qwen2VL(), (42, 70), Grid(56, 56, 4, 4, 4)),
        (Qwen2VL(), (1, 200), Grid(28, 812, 2, 58, 29)),
        (SigLIP2(), (500, 375), Grid(288, 224, 18, 14, 252)),
        (Idefics3(), (500, 375), Grid(1456, 1092, 4, 3, 13 * 169)),
        (Idefics3(364), (100, 80), Grid(364, 364, 0, 0, 169)),
        (Idefics3(crop_to_patches=False), (500, 375), Grid(364, 364, 0, 0, 169)),
        (LlavaOneVision(), (384, 384), Grid(384, 384, 1, 1, 729 + 729 + 27)),
        (InternVL(448, True), (448, 896), Grid(448, 896, 1, 2, 3 * 256)),
        (InternVL(448, True), (100, 100), Grid(448, 448, 1, 1, 256)),
        (InternVL(), (448, 896), Grid(384, 384, 1, 1, 256)),
        (Gemma3(pan_and_scan=True), (300, 1000), Grid(224, 224, 1, 3, 4 * 256)),
        (Gemma3(pan_and_scan=True), (1000, 300), Grid(224, 224, 3, 1, 4 * 256)),
        (Gemma3(pan_and_scan=True), (300, 300), Grid(224, 224, 0, 0, 256)),
        (PaliGemma(), (3, 4), Grid(224, 224, 0, 0, 256)),
    ],
)
def test_sizes_by_hand(rule: Rule, size: tuple[int, int], grid: Grid) -> None:
    assert rule.sizes(*size) == grid
    assert rule.tokens_of(np.array([size])).tolist() == [grid.tokens]


def test_a_picture_among_several_is_one_tile() -> None:
    rule = LlavaOneVision(select="default")
    assert rule.sizes(500, 375, 2) == Grid(384, 384, 0, 0, 729)
    sizes = np.array([[500, 375], [500, 375]])
    assert rule.tokens_of(sizes, np.array([1, 2])).tolist() == [rule.sizes(500, 375).tokens, 729]


def test_the_first_resize() -> None:
    rule = Qwen2VL(first_max_pixels=10_000)
    assert rule.first(100, 100) == (100, 100)
    assert rule.first(300, 200) == (122, 81)
    assert rule.sizes(300, 200) == Qwen2VL().sizes(122, 81)


@pytest.mark.parametrize("name", RULES)
def test_counts_of_many_are_those_of_each(name: str) -> None:
    rule = RULES[name]
    rng = np.random.default_rng(SEED)
    sizes = np.exp(rng.uniform(0, math.log(8000), (COUNT, 2))).astype(np.int64)
    sizes[: COUNT // 10] = rng.integers(1, 100, (COUNT // 10, 2))
    among = rng.integers(1, 3, COUNT)
    if isinstance(rule, Qwen2VL):
        kept = sizes.max(axis=1) / sizes.min(axis=1) <= 150
        sizes, among = sizes[kept], among[kept]
    assert len(sizes) > COUNT // 2
    found = rule.tokens_of(sizes, among)
    assert found.dtype == np.int64
    slow = [
        rule.sizes(*size, several).tokens
        for size, several in zip(sizes.tolist(), among.tolist(), strict=True)
    ]
    wrong = np.flatnonzero(found != np.array(slow))
    assert not len(wrong), as_drawn((rule, sizes[wrong[0]], among[wrong[0]]))


@pytest.mark.parametrize("name", RULES)
def test_no_pictures_have_no_counts(name: str) -> None:
    assert RULES[name].tokens_of(np.zeros((0, 2), np.int64)).shape == (0,)


def test_pictures_that_have_no_size() -> None:
    said = r"at most 200 times the shorter. Found: 3 x 603 pixels \(height x width\), 201.0 times."
    with pytest.raises(ValueError, match=said):
        Qwen2VL().sizes(3, 603)
    with pytest.raises(ValueError, match=said):
        Qwen2VL().tokens_of(np.array([[5, 5], [3, 603], [1, 1000]]))
    rule, said = (
        SigLIP2(first_max_pixels=4),
        r"first_max_pixels=4\): a picture of 1 x 100 .* would be resized to 0 x",
    )
    with pytest.raises(ValueError, match=said):
        rule.sizes(1, 100)
    with pytest.raises(ValueError, match=said):
        rule.tokens_of(np.array([[1, 2], [1, 100]]))


@pytest.mark.parametrize(
    ("sizes", "pictures", "said"),
    [
        (
            np.zeros((3, 3), int),
            1,
            r"Gemma3.tokens_of: sizes must be \(n, 2\) integers, .* Found: \(3, 3\) int64.",
        ),
        (np.ones((3, 2)), 1, r"sizes must be \(n, 2\) integers.* Found: \(3, 2\) float64."),
        (
            np.ones((3, 2), int),
            np.ones(2, int),
            r"pictures must be a number or \(3,\) integers. Found: \(2,\)",
        ),
        (np.ones((3, 2), int), 1.5, r"pictures must be a number or \(3,\) integers. Found: \(\) float64."),
        (np.array([[1, 0]]), 1, r"sizes must be at least 1. Found: 0."),
        (np.array([[1, 1]]), 0, r"pictures must be at least 1. Found: 0."),
    ],
)
def test_errors_of_many(sizes: np.ndarray, pictures: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Gemma3().tokens_of(sizes, pictures)


def test_errors_of_one() -> None:
    for size, said in (((0, 5), "height"), ((5, -1), "width"), ((5, 5, 0), "pictures")):
        with pytest.raises(
            ValueError, match=rf"PaliGemma.sizes: {said} must be an integer of at least 1. Found: "
        ):
            PaliGemma().sizes(*size)


def test_fields_are_in_one_order() -> None:
    """Those of all families are named alike."""
    common = ["filter", "mean", "std", "rescale", "dtype", "first_max_pixels"]
    for kind in FAMILIES.values():
        names = [part.name for part in fields(kind)]  # type: ignore[arg-type]
        assert [name for name in names if name in common] == common
