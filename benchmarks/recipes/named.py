"""Training recipes: what people run in front of their models, once for each library.

    trivial_augment  torchvision's recipe for ResNets of 2021: RandomResizedCrop(176), flip,
                     TrivialAugmentWide, normalise, RandomErasing(0.1)
    rand_augment     RandomResizedCrop(224), flip, RandAugment(2, 9), normalise
    auto_augment     RandomResizedCrop(224), flip, AutoAugment (ImageNet), normalise
    timm_rand        timm's rand-m9-mstd0.5-inc1, RandomErasing(0.25, pixel), 224 bicubic
    simclr           two views of 224: crop, flip, ColorJitter(0.8, 0.8, 0.8, 0.2) in 80%, gray in 20%,
                     GaussianBlur(23) in 50%, normalise (Chen et al. 2020)
    dino             two views of 224 and eight of 96, bicubic: flip, ColorJitter(0.4, 0.4, 0.2, 0.1) in
                     80%, gray in 20%, Pillow's GaussianBlur, solarize, normalise (facebookresearch/dino,
                     main_dino.py)
    callable         RandomResizedCrop(224), flip, and a callable that only Python knows, on the picture

Standard library only when it is loaded.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

__all__ = ["RECIPES", "Several", "shifted_channels"]

# Name -> samples a batch: of ten views, 128 would be half a gigabyte.
RECIPES = {
    "trivial_augment": 128,
    "rand_augment": 128,
    "auto_augment": 128,
    "timm_rand": 128,
    "simclr": 64,
    "dino": 32,
    "callable": 128,
}


def shifted_channels(image: Any) -> Any:
    """The channels of a Pillow image in another order: stands for a callable of the user's own."""
    from PIL import Image

    red, green, blue = image.split()
    return Image.merge("RGB", (green, blue, red))


class Several:
    """Several transforms of one picture, as SimCLR's and DINO's own code does it."""

    def __init__(self, *transforms: Callable[[Any], Any]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> list[Any]:
        return [transform(image) for transform in self.transforms]


class PillowBlur:
    """DINO's GaussianBlur: Pillow's, of a random radius."""

    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, image: Any) -> Any:
        from PIL import ImageFilter

        if random.random() > self.p:
            return image
        return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(0.1, 2.0)))
