"""Sizes, rows, grids and tokens of pictures for vision-language models, against the plain reference.

Each run draws 100,000 sizes for each family, the long form (tests/reference/long_forms.py) a million.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from long_forms import SEED, as_drawn, how_many
from vision_reference import CASES, FAMILIES, Made, sizes

from fastload._native import _C

FIRST = {family: name for name, (family, _) in reversed(list(CASES.items()))}  # a case of each family
ODD = [(1, 1), (7, 300), (2000, 700), (199, 1), (200, 1), (1, 200), (13, 13), (8000, 8000), (65500, 400)]


def rule(name: str) -> Any:
    family, numbers = CASES[name]
    return _C.VisionRule(family, **numbers)


def told(found: dict[str, Any]) -> Made:
    return Made(*(found[word] for word in ("height", "width", "rows", "grid", "tokens")))


def plain(made: Made) -> Made:
    return Made(made.height, made.width, made.rows, made.grid, made.tokens)


def drawn(name: str, count: int) -> np.ndarray:
    """(count, 2) int32 widths and heights of 8 to 8,000 pixels, every third a round or narrow one."""
    rng = np.random.default_rng([SEED, list(CASES).index(name)])
    found = np.exp(rng.uniform(np.log(8), np.log(8000), (count, 2))).astype(np.int32)
    found[::3] = found[::3] // 7 * 7 + 7
    found[1::9, 1] = found[1::9, 0] * rng.integers(1, 6, len(found[1::9]))
    return found


def compare(name: str, given: np.ndarray, pictures: int = 1) -> int:
    """The number of sizes that the rule has an answer for."""
    counts = np.full(len(given), pictures, np.int32)
    rows, grids, tokens = _C.vision_plans(rule(name), given, counts, strict=False)
    answered = 0
    for i, (width, height) in enumerate(given.tolist()):
        found = int(rows[i]), tuple(grids[i].tolist()), int(tokens[i])
        try:
            made = sizes(name, height, width, pictures)
        except ValueError:
            assert found == (0, (0, 0), 0), as_drawn((name, width, height))
            continue
        assert found == (made.rows, made.grid, made.tokens), as_drawn((name, width, height))
        answered += 1
    return answered


@pytest.mark.parametrize("name", CASES)
def test_sizes_of_each_case(name: str) -> None:
    made = rule(name)
    answered = 0
    for width, height in [*ODD, *drawn(name, 300).tolist()]:
        try:
            wanted = plain(sizes(name, height, width))
        except ValueError:
            with pytest.raises(ValueError, match=rf"at most 200 times .*Found: {width} x {height} pixels"):
                made.plan(width, height)
            continue
        assert told(made.plan(width, height)) == wanted
        answered += 1
    assert answered > 250


@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_sizes(family: str) -> None:
    count = how_many(100_000, 1_000_000)
    assert compare(FIRST[family], drawn(FIRST[family], count)) > 0.9 * count


def test_several_pictures_of_llava_are_no_tiles() -> None:
    assert compare("LLaVA-OneVision", drawn("LLaVA-OneVision", 1000), pictures=3) == 1000
    assert rule("LLaVA-OneVision").plan(500, 400, 2)["tokens"] == 730


def test_bytes_of_rows() -> None:
    wanted = {"uint8": 3 * 196, "bfloat16": 2 * 6 * 196, "float32": 4 * 6 * 196}
    assert rule("Qwen2-VL").plan(50, 50)["row_bytes"] == wanted
    assert rule("SigLIP2").plan(50, 50)["row_bytes"]["float32"] == 4 * 768
    assert rule("PaliGemma").plan(50, 50)["row_bytes"]["bfloat16"] == 2 * 3 * 100 * 201
    assert rule("Idefics3").row_shape() == [3, 364, 364]
    assert rule("Qwen2-VL").row_shape("uint8") == [588]


def test_a_picture_without_an_answer_is_named() -> None:
    given = np.array([[30, 40], [1, 201], [50, 50]], np.int32)
    with pytest.raises(ValueError, match=r"Picture 1: A picture's longer side must be at most 200 times"):
        _C.vision_plans(rule("Qwen2-VL"), given)
    with pytest.raises(ValueError, match=r"must have a number for each size, 3. Found: 2"):
        _C.vision_plans(rule("Qwen2-VL"), given, np.ones(2, np.int32))
    with pytest.raises(ValueError, match=r"must be at least 1. Found: 0 x 5 pixels, 1 pictures"):
        rule("SigLIP2").plan(0, 5)
    with pytest.raises(ValueError, match=r"sides must be in \[1, 16777216\]. Found: 34346004 x 0 pixels"):
        _C.VisionRule("qwen2_vl", first_max_pixels=589824).plan(2_000_000_000, 1)


def test_pan_and_scan_leaves_no_crop_empty() -> None:
    tiny = _C.VisionRule("gemma3", pan_and_scan=True, pan_min_crop=1)
    with pytest.raises(ValueError, match=r"something for the last of 4 crops. Found: 5 x 1 pixels"):
        tiny.plan(5, 1)


@pytest.mark.parametrize(
    ("family", "numbers", "message"),
    [
        ("qwen", {}, r"family must be one of qwen2_vl, siglip2, .*, paligemma. Found: qwen\."),
        (
            "qwen2_vl",
            {"tile": 3},
            r"qwen2_vl has the numbers patch, merge, .*, rescale, first_max_pixels, filter. Found: tile\.",
        ),
        ("paligemma", {"patch": 3}, r"paligemma has the numbers tokens, size, mean, .*Found: patch\."),
        ("siglip2", {"patch": 0}, r"patch must be one whole number in \[1, 256\]. Found: 0\."),
        ("siglip2", {"patch": 2.5}, r"patch must be one whole number in \[1, 256\]. Found: 2.5"),
        ("siglip2", {"patch": "x"}, r"patch must be one whole number in \[1, 256\]. Found: x\."),
        ("siglip2", {"patch": (1, 2)}, r"patch must be one whole number in \[1, 256\]. Found: 1, 2\."),
        ("siglip2", {"mean": (0.5,)}, r"mean must be 3 numbers in .*Found: 0.5"),
        ("siglip2", {"std": (1, 0, 1)}, r"std must not be 0. Found: 0\."),
        ("siglip2", {"filter": "box"}, r"filter must be one of bilinear, bicubic, lanczos. Found: box\."),
        ("siglip2", {"filter": 3}, r"filter must be one of bilinear, bicubic, lanczos. Found: 3\."),
        ("qwen2_vl", {"max_pixels": 9}, r"min_pixels must be at most max_pixels. Found: 3136 and 9\."),
        ("internvl", {"min_tiles": 13}, r"min_tiles must be at most max_tiles. Found: 13 and 12\."),
        ("llava_onevision", {"tile": 100}, r"whole tiles of 100 pixels. Found: 384, 384\."),
        ("llava_onevision", {"pinpoints": []}, r"pinpoints must be 1 to 1000 pairs .*Found: nothing\."),
        ("llava_onevision", {"mean": (0, 0, 2)}, r"must be in \[0, 1\]. Found: 2\."),
        ("gemma3", {"pan_and_scan": 2}, r"pan_and_scan must be one whole number in \[0, 1\]. Found: 2\."),
    ],
)
def test_numbers_that_are_refused(family: str, numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _C.VisionRule(family, **numbers)
