"""What Pillow does for the core's operations on single pixels and their neighbours, as torchvision and timm
call it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

Run = Callable[[Image.Image], Image.Image]

# Beyond what recipes draw: [0, 2] of most, [0.1, 1.9] of the policies; 0 and 1 are special cases of Pillow's.
FACTORS = (0.0, 0.1, 0.25, 0.6, 0.95, 1.0, 1.0 + 1e-7, 1.27, 1.9, 2.0, 3.5, 100.0)
HUES = (-0.5, -0.25, -0.1, -0.001, 0.0, 0.004, 0.1, 1 / 3, 0.5)


def enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance], factor: float) -> Run:
    """An ImageEnhance of this kind and factor."""
    return lambda picture: kind(picture).enhance(factor)


def turned(factor: float) -> Run:
    """torchvision's adjust_hue of a PIL picture."""

    def run(picture: Image.Image) -> Image.Image:
        hue, saturation, value = picture.convert("HSV").split()
        moved = np.asarray(hue) + np.int32(factor * 255).astype(np.uint8)
        return Image.merge("HSV", (Image.fromarray(moved), saturation, value)).convert("RGB")

    return run


def posterized(bits: int) -> Run:
    """ImageOps.posterize; it refuses 0 bits."""
    return lambda picture: ImageOps.posterize(picture, bits) if bits else picture.point(lambda _: 0)


def added(add: int, threshold: int) -> Run:
    """timm's solarize_add."""
    table = [min(255, value + add) if value < threshold else value for value in range(256)]
    return lambda picture: picture.point(table * 3)


PILLOW: dict[str, list[tuple[tuple[float, ...], Run]]] = {
    "brightness": [((factor,), enhanced(ImageEnhance.Brightness, factor)) for factor in FACTORS],
    "contrast": [((factor,), enhanced(ImageEnhance.Contrast, factor)) for factor in FACTORS],
    "saturation": [((factor,), enhanced(ImageEnhance.Color, factor)) for factor in FACTORS],
    "sharpness": [((factor,), enhanced(ImageEnhance.Sharpness, factor)) for factor in FACTORS],
    "hue": [((factor,), turned(factor)) for factor in HUES],
    "posterize": [((float(bits),), posterized(bits)) for bits in range(9)],
    "autocontrast": [((), ImageOps.autocontrast)],
    "equalize": [((), ImageOps.equalize)],
    "solarize_add": [((float(add), 128.0), added(add, 128)) for add in (0, 30, 110)],
}
