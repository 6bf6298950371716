"""The jobs every loader candidate does, and the crop that its library may lack. Standard library only."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path

from recipes.named import RECIPES

__all__ = ["JOBS", "MEAN", "STD", "Job", "class_names", "is_jpeg", "listing", "random_crop"]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Job:
    """Train: RandomResizedCrop(224), flip, shuffled. Validation: Resize(256), CenterCrop(224), in order.

    Batches of ``batch`` images, drop_last. uint8: pixels as they are, interleaved (NHWC memory).
    float32: (x / 255 - mean) / std, a (N, 3, 224, 224) array; its strides are the loader's own choice.
    With a recipe, a name in recipes/named.py, its transform instead.
    """

    name: str
    train: bool
    normalize: bool
    batch: int = 128
    recipe: str = ""


JOBS = {
    "train_u8": Job("train_u8", True, False),
    "train_f32": Job("train_f32", True, True),
    "val_u8": Job("val_u8", False, False),
    "val_f32": Job("val_f32", False, True),
    **{name: Job(name, True, True, batch, name) for name, batch in RECIPES.items()},
}


def is_jpeg(path: Path) -> bool:
    """Whether the file begins as a JPEG does."""
    with open(path, "rb") as file:
        return file.read(3) == b"\xff\xd8\xff"


def class_names(folder: Path) -> list[str]:
    """The sorted names of the class folders."""
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir())


def listing(folder: Path) -> list[tuple[str, int]]:
    """Path and class index of each file, in the order of class and name."""
    names = class_names(folder)
    return [
        (str(path), label) for label, name in enumerate(names) for path in sorted((folder / name).iterdir())
    ]


def random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    """left, top, width, height in pixels: the draw of torchvision's RandomResizedCrop.

    Area 8% to 100% of the image, log-uniform aspect ratio 3/4 to 4/3, ten tries, then the centre.
    """
    area = width * height
    for _ in range(10):
        target = area * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    if width / height < 3 / 4:
        w, h = width, round(width / (3 / 4))
    elif width / height > 4 / 3:
        w, h = round(height * (4 / 3)), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h
