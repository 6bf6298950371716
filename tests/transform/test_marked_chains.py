"""Chains that are drawn at random, over pictures whose marks say where everything is: all fields lie where
the picture's marks do behind them, whatever form batches have.

These are of fastload's own transforms and of Python functions; tests/foreign/torchvision does the same with
torchvision's. Each run draws 240, the long form (tests/reference/long_forms.py) 10,000.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from long_forms import SEED, as_drawn, how_many
from marked_chains import FORMATS, FORMS, World, make_world, tried

from fastload import transforms as T

CHAINS = how_many(240, 10_000)
FIRST = SEED * 1_000_000  # a chain's number is its seed
Rng = random.Random
Make = Callable[[Rng], Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("marked"))


def sides(rng: Rng) -> tuple[int, int, int, int]:
    left, top, right, bottom = (rng.randrange(0, 12) for _ in range(4))
    return left, top, right, bottom


def fill(rng: Rng) -> Any:
    return rng.choice([0, 9, (1, 2, 3), {"image": (7, 7, 7), "mask": 0}])


#: Steps that keep sides upright, with which boxes fit the marks.
UPRIGHT: list[Make] = [
    lambda rng: T.RandomHorizontalFlip(rng.choice([0, 0.5, 1])),
    lambda rng: T.RandomVerticalFlip(rng.choice([0, 0.5, 1])),
    lambda rng: T.Pad(sides(rng), fill(rng)),
    lambda rng: T.CenterCrop((rng.randrange(30, 80), rng.randrange(40, 90))),
    lambda rng: T.RandomCrop((rng.randrange(30, 44), rng.randrange(36, 50))),
    lambda rng: T.RandomCrop((rng.randrange(60, 90), 70), sides(rng), True, fill(rng)),
    lambda rng: T.PadIfSmaller((70, 80), fill(rng)),
    lambda rng: T.Resize((rng.randrange(40, 90), rng.randrange(40, 90))),
    lambda rng: T.Resize(rng.randrange(40, 80), interpolation="bicubic"),
    lambda rng: T.RandomResizedCrop((60, 66), (0.5, 1.0)),
    lambda rng: T.ScaleJitter((70, 70), (0.8, 1.3)),
    lambda rng: T.RandomShortestSize([50, 60, 70], 110),
    lambda rng: T.RandomResize(48, 70),
    lambda rng: T.FixedSizeCrop((64, 72), fill(rng)),
    lambda rng: T.RandomZoomOut(fill(rng), (1.0, 1.6), rng.choice([0.5, 1.0])),
    lambda rng: T.RandomIoUCrop(min_scale=0.6),
    lambda rng: T.Letterbox(80, rule="letterbox", center=rng.random() < 0.5),
    lambda rng: T.RandomQuarterTurn(),
    lambda rng: T.ClampBoundingBoxes(),
    lambda rng: T.SanitizeBoundingBoxes(),
]
TURNED: list[Make] = [
    lambda rng: T.RandomRotation(rng.choice([15, (90, 90), (180, 180)]), fill=rng.choice([0, (5, 6, 7)])),
    lambda rng: T.RandomAffine(
        10, (0.1, 0.1), (0.9, 1.2), 5, interpolation="bilinear", version=rng.choice([1, 2])
    ),
    lambda rng: T.RandomPerspective(0.2, p=0.7),
]
COLOURS: list[Make] = [
    lambda rng: T.ColorJitter(0.2, 0.2, 0.2, 0.05),
    lambda rng: T.RandomPhotometricDistort(),
    lambda rng: T.RandomInvert(),
    lambda rng: T.GaussianBlur(3, (0.1, 0.5)),
    lambda rng: T.RandomApply([T.ColorJitter(0.2), T.RandomInvert(1)], 0.5),
]
ENDS: list[Make] = [
    lambda rng: T.ToDtype("float32", scale=True),
    lambda rng: T.ToDtype(None, masks="int64"),
    lambda rng: T.ConvertBoundingBoxFormat("XYXY"),
]


def still(sample: Any) -> Any:
    return sample


def mirrored(sample: Any) -> Any:
    """All of a sample mirrored, by hand: of a set whose boxes are corners in pixels."""
    found, width = dict(sample), sample["image"].shape[-1]
    for name in ("image", "right", "mask", "outlines"):
        if isinstance(found.get(name), torch.Tensor):
            found[name] = found[name].flip(-1)
    left, top, right, bottom = found["boxes"].unbind(-1)
    found["boxes"] = torch.stack([width - right, top, width - left, bottom], -1)
    points = found["points"].clone()
    points[..., 0] = width - points[..., 0]
    found["points"] = points
    return found


def drawn(rng: Rng, form: tuple[str, bool], forms: str) -> tuple[list[Any], bool, str | None]:
    """A chain, whether boxes fit the marks behind it, and the format that it gives them."""
    count = rng.randrange(1, 7)
    steps = [rng.choice(rng.choice([UPRIGHT, UPRIGHT, UPRIGHT, COLOURS, TURNED]))(rng) for _ in range(count)]
    if not any(isinstance(step, T.SanitizeBoundingBoxes) for step in steps):
        steps.append(T.ClampBoundingBoxes())  # or boxes reach to where a crop has cut the picture off
    if rng.random() < 0.3:
        steps.append(rng.choice(ENDS)(rng))
    if form == ("xyxy", False) and forms not in ("listed", "views", "rich") and rng.random() < 0.3:
        steps += [rng.choice([still, mirrored])]
    becomes = next((step.format for step in steps if isinstance(step, T.ConvertBoundingBoxFormat)), None)
    upright = not any(
        isinstance(step, (T.RandomRotation, T.RandomAffine, T.RandomPerspective)) for step in steps
    )
    return steps, upright, becomes


REFUSALS = (
    "out of order or there twice",
    "another fill than a step before it",
    "must come before the operations on pixels",
    "is there twice, in a group, or after",
    "allows one such border",
    "fill masks with different numbers",
    "drops objects, and",
    "stacks pictures",
)
# Of a picture that is too small for it, as in torchvision.
ERRORS = ("RandomCrop of",)


def unlike(world: World, number: int, kinds: Counter[str]) -> str:
    """What is wrong with a chain; empty: nothing is."""
    rng = Rng(number)
    form, batch_form = rng.choice(FORMATS), rng.choice(FORMS)
    steps, upright, becomes = drawn(rng, form, batch_form)
    zeros = any(isinstance(step, T.RandomIoUCrop) for step in steps)
    how = {"exact": upright, "loose": 2.5, "zeros": zeros}
    found = tried(world, form, batch_form, T.Compose(steps), becomes, number, **how)
    kinds[found.kind] += 1
    known = {"failed": ERRORS, "refused": REFUSALS}.get(found.kind, ())
    if found.kind == "right" or any(words in found.words for words in known):
        return ""
    return as_drawn(f"chain {number}, {form}, {batch_form}: {steps}: {found.words}")


@pytest.mark.parametrize("part", range(4))
def test_fields_lie_where_the_marks_do(world: World, part: int) -> None:
    kinds: Counter[str] = Counter()
    numbers = range(FIRST + part, FIRST + CHAINS, 4)
    wrong = [words for words in (unlike(world, number, kinds) for number in numbers) if words]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(numbers)} chains", *wrong])
    assert kinds["right"] > kinds["refused"] // 2 > 0, kinds


def test_what_is_left_behind_is_seen(world: World) -> None:
    """The check can fail: a callable that mirrors the picture alone, or the boxes alone."""

    def picture_alone(sample: Any) -> Any:
        return {**sample, "image": sample["image"].flip(-1)}

    def boxes_alone(sample: Any) -> Any:
        return {**mirrored(sample), "image": sample["image"], "mask": sample["mask"]}

    def points_alone(sample: Any) -> Any:
        return {**sample, "points": mirrored(sample)["points"]}

    for function, words in ((picture_alone, "mark"), (boxes_alone, "its box"), (points_alone, "its middle")):
        found = tried(world, FORMATS[0], "list", function)
        assert found.kind == "wrong"
        assert words in found.words
