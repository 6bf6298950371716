"""The recipes in fastload's transforms."""

from __future__ import annotations

from typing import Any

from loaders.jobs import MEAN, STD
from recipes.named import shifted_channels

__all__ = ["transform_of"]


def transform_of(recipe: str) -> Any:
    """The transform of a recipe."""
    from fastload import transforms as t

    ending = [t.Normalize(mean=MEAN, std=STD)]
    start = [t.RandomResizedCrop(224), t.RandomHorizontalFlip()]
    if recipe == "trivial_augment":
        start = [t.RandomResizedCrop(176), t.RandomHorizontalFlip(), t.TrivialAugmentWide()]
        return t.Compose([*start, *ending, t.RandomErasing(0.1)])
    if recipe == "rand_augment":
        return t.Compose([*start, t.RandAugment(2, 9), *ending])
    if recipe == "auto_augment":
        return t.Compose([*start, t.AutoAugment(), *ending])
    if recipe == "callable":
        return t.Compose([*start, shifted_channels, to_normalized])
    if recipe == "timm_rand":
        crop = t.RandomResizedCrop(224, interpolation="bicubic")
        policy = t.TimmAugment("rand-m9-mstd0.5-inc1", mean=MEAN)
        erase = t.RandomErasing(0.25, (0.02, 1 / 3), (0.3, 1 / 0.3), "random")
        return t.Compose([crop, t.RandomHorizontalFlip(), policy, *ending, erase])
    if recipe == "simclr":
        jitter = t.RandomApply([t.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8)
        blur = t.RandomApply([t.GaussianBlur(23, (0.1, 2.0))], 0.5)
        one = t.Compose([*start, jitter, t.RandomGrayscale(0.2), blur, *ending])
        return t.Views(first=one, second=one)
    if recipe == "dino":
        return _dino(t, ending)
    raise ValueError(f"There is no recipe {recipe!r}.")


def to_normalized(image: Any) -> Any:
    """ToTensor and Normalize of a Pillow image, in Python."""
    import numpy as np
    import torch

    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
    return tensor.sub_(torch.tensor(MEAN).view(3, 1, 1)).div_(torch.tensor(STD).view(3, 1, 1))


def _dino(t: Any, ending: list[Any]) -> Any:
    jitter = t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8)
    colours = [t.RandomHorizontalFlip(), jitter, t.RandomGrayscale(0.2)]

    def view(size: int, scale: tuple[float, float], *more: Any) -> Any:
        crop = t.RandomResizedCrop(size, scale, interpolation="bicubic")
        return t.Compose([crop, *colours, *more, *ending])

    def blur(p: float) -> Any:
        return t.RandomApply([t.PillowGaussianBlur((0.1, 2.0))], p)

    return t.Views(
        first=view(224, (0.4, 1.0), blur(1.0)),
        second=view(224, (0.4, 1.0), blur(0.1), t.RandomSolarize(128, 0.2)),
        local=(8, view(96, (0.05, 0.4), blur(0.5))),
    )
