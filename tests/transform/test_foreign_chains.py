"""Chains of torchvision, timm and CLIP: what is native, what callables get, and what is said of the rest."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import geometry_uses as steps
import pytest
from torchvision_likes import MEAN, STD, from_torchvision, tv_crop, tv_normalize

from fastload import transforms as T
from fastload.transforms import Plan, compile_plan
from fastload.transforms.plan import Fill, GeometryUse

CROP = Plan(geometry=(steps.crop(224, 224),))
NORMALIZED: dict[str, Any] = {"dtype": "float32", "scale": True, "normalize": True, "mean": MEAN, "std": STD}


def foreign(image: Any) -> Any:
    return image


def like(module: str, name: str, **attributes: Any) -> Any:
    """An object, or a function, that looks like another library's."""
    return from_torchvision(name, module, **attributes)


def test_the_presets_of_weights_are_native() -> None:
    """What torchvision's ``weights.transforms()`` gives."""
    attributes = {"crop_size": [224], "resize_size": [232], "mean": list(MEAN), "std": list(STD)}
    bicubic = SimpleNamespace(value="bicubic")
    preset = like(
        "torchvision.transforms._presets",
        "ImageClassification",
        **attributes,
        interpolation=bicubic,
        antialias=True,
    )
    wanted = Plan(geometry=(steps.shorter(232), steps.center(224, 224)), **NORMALIZED)
    assert compile_plan(preset) == replace(wanted, filter="bicubic")
    behind = compile_plan(T.Compose([T.CenterCrop(300), preset]))
    assert behind.geometry == (steps.center(300, 300), *wanted.geometry)
    behind = compile_plan(T.Compose([T.Resize(300), preset]))
    assert behind == Plan(geometry=(steps.shorter(300),), tail=(preset,), picture=True)


def to_rgb(image: Any) -> Any:
    raise AssertionError("never called")


def test_timms_and_clips_chains_are_native() -> None:
    bicubic = SimpleNamespace(value="bicubic")
    timm = "timm.data.transforms"
    scale, ratio = (0.08, 1.0), (3 / 4, 4 / 3)
    crop = like(
        timm,
        "RandomResizedCropAndInterpolation",
        size=(224, 224),
        scale=scale,
        ratio=ratio,
        interpolation=bicubic,
    )
    chain = [
        crop,
        from_torchvision("RandomHorizontalFlip", p=0.5),
        like(timm, "MaybeToTensor"),
        tv_normalize(),
    ]
    plan = compile_plan(T.Compose(chain))
    assert plan == Plan(geometry=(steps.crop(224, 224), steps.flip(0.5)), filter="bicubic", **NORMALIZED)
    crop.interpolation = (SimpleNamespace(value="bilinear"), bicubic)  # timm draws one for each picture
    drawn = (steps.crop(224, 224), GeometryUse("random_filter", ()))
    assert compile_plan(crop) == Plan(geometry=drawn, picture=True)
    crop.interpolation = (SimpleNamespace(value="nearest"), bicubic)
    assert compile_plan(crop) == Plan(tail=(crop,), picture=True)
    to_rgb.__module__, to_rgb.__qualname__ = "clip.clip", "_convert_image_to_rgb"
    resize = from_torchvision("Resize", size=224, interpolation=bicubic, max_size=None, antialias=True)
    center = from_torchvision("CenterCrop", size=(224, 224))
    clip = T.Compose([resize, center, to_rgb, from_torchvision("ToTensor"), tv_normalize()])
    wanted = Plan(geometry=(steps.shorter(224), steps.center(224, 224)), **NORMALIZED)
    assert compile_plan(clip) == replace(wanted, filter="bicubic")


def test_conversions_that_change_nothing_cost_nothing() -> None:
    rgb, identity = from_torchvision("RGB"), from_torchvision("Identity")
    assert compile_plan(T.Compose([rgb, identity, tv_crop(), rgb])) == replace(CROP, picture=True)
    crop = from_torchvision("RandomCrop", size=(9, 9), padding=None, pad_if_needed=False)
    assert compile_plan(T.Compose([T.Resize(12), crop])).geometry == (steps.shorter(12), steps.window(9, 9))
    crop = from_torchvision(
        "RandomCrop", size=(9, 9), padding=4, pad_if_needed=False, fill=0, padding_mode="edge"
    )
    bordered = GeometryUse("pad_border", (4, 4, 4, 4, 1))
    assert compile_plan(crop).geometry == (bordered, GeometryUse("random_crop", (9, 9)))
    crop.pad_if_needed = True  # two borders, one around the other
    plan = compile_plan(crop)
    assert plan.tail == (crop,)
    assert "goes with padding or with pad_if_needed" in plan.steps[0].why
    zeros = Fill((0,), 0)
    padded = from_torchvision("RandomCrop", size=(9, 9), padding=4, pad_if_needed=False, fill=0)
    by_four = GeometryUse("pad", (4, 4, 4, 4), fill=zeros)
    assert compile_plan(padded).geometry == (by_four, GeometryUse("random_crop", (9, 9), fill=zeros))


@pytest.mark.parametrize(
    ("before", "picture"),
    [
        ([], True),
        ([tv_crop()], True),
        ([T.RandomResizedCrop(9), T.RandomHorizontalFlip()], True),
        ([from_torchvision("RGB")], True),
        ([from_torchvision("ToTensor")], False),
        ([tv_crop(), from_torchvision("PILToTensor")], False),
        ([from_torchvision("ToImage"), tv_crop()], False),
        ([T.ToDtype("uint8")], False),
        ([T.Normalize(MEAN, STD)], False),
    ],
)
def test_callables_get_pictures_until_something_makes_tensors(before: list[Any], picture: bool) -> None:
    plan = compile_plan(T.Compose([*before, foreign]))
    assert plan.tail == (foreign,)
    assert plan.picture == picture


def test_where_nothing_is_foreign_samples_are_tensors() -> None:
    """Without a callable only a collate_fn sees the difference."""
    assert not compile_plan(None).picture
    assert not compile_plan(T.RandomResizedCrop(9)).picture
    assert compile_plan(tv_crop()).picture


def test_what_stands_behind_a_callable_says_what_would_keep_it() -> None:
    flip = from_torchvision("RandomHorizontalFlip", p=0.5)
    plan = compile_plan(T.Compose([tv_crop(), foreign, flip, from_torchvision("MixUp")]))
    assert [step.native for step in plan.steps] == [True, False, False, False]
    assert plan.steps[1].why == "a callable that the core does not know"
    assert plan.steps[2].why == "after foreign"
    assert plan.steps[2].keep == "put it before foreign, if the order does not matter to you"
    assert plan.steps[3].keep == ""
    mixed = compile_plan(from_torchvision("MixUp")).steps[0]
    assert mixed.why == "the core has no MixUp"
    assert "batch_transform=MixUp" in mixed.keep
    nearest = compile_plan(tv_crop(interpolation=SimpleNamespace(value="nearest"))).steps[0]
    assert "interpolation must be one of bilinear, bicubic, lanczos" in nearest.why
