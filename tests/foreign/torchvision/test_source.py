"""torchvision's own objects before its crops: what its functions make of whole pictures."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
import torch
from pictures import encoded, picture
from PIL import Image
from pixel_reference import drawn_around
from plain_pack import plain_pack
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import functional as F
from transform_reference import Draws

from fastload import DataLoader
from fastload._native import _C
from fastload.transforms import compile_plan

COUNT = 24
FUNCTIONS = {
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "saturation": F.adjust_saturation,
    "hue": F.adjust_hue,
    "sharpness": F.adjust_sharpness,
    "grayscale": lambda image: F.rgb_to_grayscale(image, 3),
    "rotate": lambda image, angle, *_: F.rotate(image, angle, InterpolationMode.BILINEAR, fill=[9]),
    "vertical_flip": F.vflip,
}


def chains(of: Any) -> list[list[Any]]:
    crop, flip = of.RandomResizedCrop(28), of.RandomHorizontalFlip()
    jitter = of.ColorJitter(0.4, 0.4, 0.4, 0.1)
    return [
        [jitter, crop, flip],
        [flip, of.RandomApply([jitter], p=0.8), of.RandomGrayscale(0.3), crop],
        [of.RandomRotation(30, InterpolationMode.BILINEAR, fill=9), of.RandomVerticalFlip(), crop, jitter],
        [of.RandomAdjustSharpness(2.0), of.Resize(40), of.CenterCrop(32), flip],
    ]


def shown(image: Any, plan: Any, draws: Draws) -> Any:
    """By torchvision's functions, with what the core draws."""
    before, behind = drawn_around(plan, draws)
    for name, numbers in before:
        image = FUNCTIONS[name](image, *numbers)
    key = (*image.size, draws.seed, draws.epoch, draws.sample)
    (x, y, width, height), resized, (left, top, w, h), flip = _C.draw_view(plan.geometry_spec(), *key)
    image = F.resized_crop(image, y, x, height, width, list(resized[::-1]))
    image = F.crop(image, top, left, h, w)
    image = F.hflip(image) if flip else image
    for name, numbers in behind:
        image = FUNCTIONS[name](image, *numbers)
    return np.asarray(image)


@pytest.mark.parametrize("of", [v1, v2], ids=["v1", "v2"])
@pytest.mark.parametrize("number", range(4))
def test_its_objects_before_the_crop(tmp_path: Path, of: Any, number: int) -> None:
    blobs = [encoded(picture(i, 60 + 17 * i % 90, 70 + 23 * i % 80), quality=85) for i in range(COUNT)]
    dataset = plain_pack(tmp_path / "set", blobs, range(COUNT))
    chain, worked = of.Compose(chains(of)[number]), 0
    plan = compile_plan(chain)
    assert len(plan.source) > 0
    assert plan.tail == ()
    with DataLoader(dataset, COUNT, transform=chain, seed=3) as loader:
        assert not loader.explain().slow
        images, labels = next(iter(loader))
    assert labels.tolist() == list(range(COUNT))
    for i in range(COUNT):
        draws = Draws(3, 0, i)
        worked += len(drawn_around(plan, draws)[0]) > 0
        wanted = shown(Image.open(io.BytesIO(blobs[i])).convert("RGB"), plan, draws)
        assert torch.equal(images[i].permute(1, 2, 0), torch.from_numpy(wanted.copy()))
    assert worked > COUNT // 4


@pytest.mark.parametrize("of", [v1, v2], ids=["v1", "v2"])
def test_between_two_steps_of_the_geometry_it_runs_in_python(of: Any) -> None:
    plan = compile_plan(of.Compose([of.Resize(40), of.ColorJitter(0.4), of.RandomCrop(32)]))
    assert ([step.native for step in plan.steps], plan.source) == ([True, True, False], ())
