"""The recipes in torchvision's and timm's own objects, on Pillow's pictures."""

from __future__ import annotations

from typing import Any

from loaders.jobs import MEAN, STD
from recipes.named import PillowBlur, Several, shifted_channels

__all__ = ["transform_of"]


def transform_of(recipe: str) -> Any:
    """The transform of a recipe; its picture becomes a tensor, or a list of tensors."""
    import torchvision.transforms as t

    ending = [t.ToTensor(), t.Normalize(MEAN, STD)]
    start = [t.RandomResizedCrop(224), t.RandomHorizontalFlip()]
    if recipe == "trivial_augment":
        start = [t.RandomResizedCrop(176), t.RandomHorizontalFlip(), t.TrivialAugmentWide()]
        return t.Compose([*start, *ending, t.RandomErasing(0.1)])
    if recipe == "rand_augment":
        return t.Compose([*start, t.RandAugment(2, 9), *ending])
    if recipe == "auto_augment":
        return t.Compose([*start, t.AutoAugment(), *ending])
    if recipe == "callable":
        return t.Compose([*start, shifted_channels, *ending])
    if recipe == "timm_rand":
        return _timm()
    if recipe == "simclr":
        jitter = t.RandomApply([t.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8)
        blur = t.RandomApply([t.GaussianBlur(23, (0.1, 2.0))], 0.5)
        one = t.Compose([*start, jitter, t.RandomGrayscale(0.2), blur, *ending])
        return Several(one, one)
    if recipe == "dino":
        return _dino(t, ending)
    raise ValueError(f"There is no recipe {recipe!r}.")


def _timm() -> Any:
    from timm.data import auto_augment, create_transform

    for name in ("Posterize", "PosterizeIncreasing", "PosterizeOriginal", "PosterizeTpu"):
        auto_augment.NAME_TO_OP[name] = _posterized
    return create_transform(
        224,
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        re_prob=0.25,
        re_mode="pixel",
        interpolation="bicubic",
        color_jitter=None,
    )


def _posterized(image: Any, bits: int, **_: Any) -> Any:
    """timm's posterize; its 0 bits, which make a black picture, are an error for Pillow 13."""
    from PIL import ImageOps

    if bits >= 8:
        return image
    return ImageOps.posterize(image, bits) if bits else image.point(lambda value: 0)


def _dino(t: Any, ending: list[Any]) -> Any:
    mode = t.InterpolationMode.BICUBIC
    jitter = t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8)
    colours = [t.RandomHorizontalFlip(), jitter, t.RandomGrayscale(0.2)]

    def view(size: int, scale: tuple[float, float], *more: Any) -> Any:
        return t.Compose([t.RandomResizedCrop(size, scale, interpolation=mode), *colours, *more, *ending])

    local = view(96, (0.05, 0.4), PillowBlur(0.5))
    first = view(224, (0.4, 1.0), PillowBlur(1.0))
    second = view(224, (0.4, 1.0), PillowBlur(0.1), t.RandomSolarize(128, 0.2))
    return Several(first, second, *[local] * 8)
