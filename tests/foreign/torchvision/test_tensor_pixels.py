"""Behind ``ToImage`` and ``PILToTensor``: the core's pixels against torchvision's of uint8 tensors, within
what docs/guide/drop-in.md says."""

from __future__ import annotations

from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import v2

from fastload.transforms import compile_plan

#: Steps by how many levels they may be apart, for a class of torchvision's of either version.
EQUAL = {
    "flips": lambda of: [of.RandomHorizontalFlip(1.0), of.RandomVerticalFlip(1.0)],
    "crops": lambda of: [of.CenterCrop((90, 30)), of.Pad(4), of.CenterCrop((26, 20))],
    "points": lambda of: [of.RandomInvert(1.0), of.RandomPosterize(4, 1.0), of.RandomSolarize(100, 1.0)],
}
WITHIN_ONE = {
    "blur": lambda of: [of.GaussianBlur(5, (1.3, 1.3))],
    "smaller": lambda of: [of.Resize((17, 23), antialias=True)],
    "larger": lambda of: [of.Resize((90, 71), antialias=True)],
    "bicubic": lambda of: [of.Resize((31, 60), Mode.BICUBIC, antialias=True)],
    "gray": lambda of: [of.Grayscale(3)],
    **{f"brightness {f}": lambda of, f=f: [of.ColorJitter(brightness=(f, f))] for f in (0.5, 1.5)},
    **{f"contrast {f}": lambda of, f=f: [of.ColorJitter(contrast=(f, f))] for f in (0.0, 0.5, 1.5, 2.0)},
    **{f"saturation {f}": lambda of, f=f: [of.ColorJitter(saturation=(f, f))] for f in (0.0, 0.5, 1.5, 2.0)},
    **{f"hue {f}": lambda of, f=f: [of.ColorJitter(hue=(f, f))] for f in (-0.5, -0.1, 0.05, 0.3)},
}


def both(of: Any, steps: list[Any], pixels: Any) -> tuple[Any, Any]:
    first = v2.ToImage() if of is v2 else v1.PILToTensor()
    chain = [first, *steps]
    plan = compile_plan(of.Compose(chain))
    assert plan.tail == (), [step.why for step in plan.steps]
    wanted = torch.as_tensor(of.Compose(chain)(Image.fromarray(pixels))).permute(1, 2, 0).numpy()
    return plan.made_of(pixels, 0).reshape(wanted.shape).astype(int), wanted.astype(int)


CASES = [(of, name) for of in (v1, v2) for name in (*EQUAL, *WITHIN_ONE) if (of, name) != (v1, "bicubic")]


@pytest.mark.parametrize(("of", "name"), CASES)
def test_pixels_are_those_of_tensors(of: Any, name: str) -> None:
    rng, off, share = np.random.default_rng(4), 0, []
    for number in range(12):
        height, width = (int(side) for side in rng.integers(30, 80, 2))
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        if number % 3 == 0:
            pixels = np.ascontiguousarray(pixels // 64 * 80)
        found, wanted = both(of, {**EQUAL, **WITHIN_ONE}[name](of), pixels)
        off = max(off, int(np.abs(found - wanted).max()))
        share.append(float((found != wanted).mean()))
    assert off <= (2 if name == "bicubic" else int(name in WITHIN_ONE)), name
    if not name.startswith(("smaller", "larger", "bicubic")) and of is v2:
        assert max(share) < 0.02, (name, share)


def test_v1_resizes_tensors_by_bicubic_filters_in_python() -> None:
    """As floats: between the passes nothing keeps them from 0 to 255, and edges are tens of levels apart."""
    for step in (
        v1.Resize((31, 60), Mode.BICUBIC, antialias=True),
        v1.RandomResizedCrop(9, interpolation=Mode.BICUBIC),
    ):
        assert compile_plan(v1.Compose([v1.PILToTensor(), step])).tail != ()
        assert compile_plan(v1.Compose([step, v1.PILToTensor()])).tail == ()


def test_pillows_colours_are_others() -> None:
    """Else these tests could not tell."""
    pixels = np.random.default_rng(4).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    for steps in (
        [v2.ColorJitter(hue=(0.1, 0.1))],
        [v2.ColorJitter(saturation=(1.5, 1.5))],
        [v2.Grayscale(3)],
    ):
        found, _ = both(v2, steps, pixels)
        pillow = np.asarray(v2.Compose(steps)(Image.fromarray(pixels))).astype(int)
        assert float((found != pillow).mean()) > 0.2
