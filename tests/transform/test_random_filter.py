"""A crop whose filter is drawn for each sample, as timm's random interpolation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import geometry_uses as steps
import pytest
import torch
from torchvision_likes import from_torchvision
from transform_reference import Draws, uniform

from fastload import DataLoader
from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.plan import GeometryUse

FILTER = 9  # DrawOp::kFilter


def is_bilinear(draws: Draws) -> bool:
    words = draws.words(FILTER, 0)
    return uniform(words[0], words[1]) < 0.5


def test_the_filter_is_drawn_by_a_number_of_its_own() -> None:
    drawn = steps.spec_of(steps.crop(20, 30), GeometryUse("random_filter", ()))
    plain, count = steps.spec_of(steps.crop(20, 30)), 0
    for sample in range(2000):
        key = (300, 200, 5, 2, sample, 1)
        wanted = is_bilinear(Draws(5, 2, sample, 1))
        assert _C.draw_view(drawn, *key).filter == ("bilinear" if wanted else "bicubic")
        assert tuple(_C.draw_view(drawn, *key)) == tuple(_C.draw_view(plain, *key))
        assert _C.draw_view(plain, *key).filter == "bilinear"
        count += wanted
    assert 900 < count < 1100


def batch(folder: Path, interpolation: str, **options: Any) -> torch.Tensor:
    chain = T.Compose([T.RandomResizedCrop(24, interpolation=interpolation), T.RandomHorizontalFlip()])
    with DataLoader(folder, 16, transform=chain, seed=3, **options) as loader:
        return torch.cat([images.clone() for images, _ in loader])


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}])
def test_samples_are_those_of_one_filter_or_the_other(folder: Path, options: dict[str, Any]) -> None:
    bilinear, bicubic, found = (batch(folder, name, **options) for name in ("bilinear", "bicubic", "random"))
    wanted = [is_bilinear(Draws(3, 0, sample)) for sample in range(len(found))]
    assert 0 < sum(wanted) < len(wanted)
    for i, first in enumerate(wanted):
        assert torch.equal(found[i], bilinear[i] if first else bicubic[i])
        assert not torch.equal(bilinear[i], bicubic[i])


def test_outside_a_batch_it_is_the_same() -> None:
    plan = compile_plan(T.RandomResizedCrop(24, interpolation="random"))
    assert plan.is_random
    assert plan.output_size == (24, 24)
    pixels = torch.randint(0, 256, (50, 70, 3), dtype=torch.uint8).numpy()
    for sample in range(8):
        view = _C.draw_view(plan.geometry_spec(), 70, 50, 1, 0, sample)
        name = "bilinear" if is_bilinear(Draws(1, 0, sample)) else "bicubic"
        assert (plan.made_of(pixels, 1, 0, sample) == _C.resize(pixels, view, name)).all()


def test_timms_crop_draws_one_of_two() -> None:
    both = tuple(SimpleNamespace(value=name) for name in ("bilinear", "bicubic"))
    ratios: dict[str, Any] = {"scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
    module = "timm.data.transforms"
    name = "RandomResizedCropAndInterpolation"
    crop = from_torchvision(name, module, size=(24, 24), interpolation=both, **ratios)
    plan = compile_plan(crop)
    assert plan.tail == ()
    assert plan.geometry == compile_plan(T.RandomResizedCrop(24, interpolation="random")).geometry


def test_dali_has_one_filter(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"backend='dali' resizes by one filter. Found: interpolation='rand"):
        DataLoader(folder, 4, transform=T.RandomResizedCrop(9, interpolation="random"), backend="dali")
    with pytest.raises(ValueError, match=r"'bilinear' or 'bicubic'. Found: 'lanczos'. Say one of these"):
        DataLoader(folder, 4, transform=T.RandomResizedCrop(9, interpolation="lanczos"), backend="dali")
