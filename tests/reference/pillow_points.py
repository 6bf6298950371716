"""What Pillow does for the core's operations on single pixels and their neighbours, as torchvision and timm
call it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

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


def permuted(which: float) -> Run:
    """torchvision's permute_channels, by the number of the order among all in rising order."""
    order = list(permutations(range(3)))[int(which)]
    return lambda picture: Image.fromarray(np.ascontiguousarray(np.asarray(picture)[..., order]))


def shifted(by: int, clip: bool) -> Run:
    """Noise that does not vary."""
    sums = [value + by for value in range(256)]
    table = [min(max(value, 0), 255) if clip else value % 256 for value in sums]
    return lambda picture: picture.point(table * 3)


# Of operations whose numbers recipes draw: what Pillow does for these numbers.
BY_NUMBERS: dict[str, Callable[..., Run]] = {
    "brightness": lambda factor: enhanced(ImageEnhance.Brightness, factor),
    "contrast": lambda factor: enhanced(ImageEnhance.Contrast, factor),
    "saturation": lambda factor: enhanced(ImageEnhance.Color, factor),
    "sharpness": lambda factor: enhanced(ImageEnhance.Sharpness, factor),
    "hue": turned,
    "channel_permutation": permuted,
}
PILLOW: dict[str, list[tuple[tuple[float, ...], Run]]] = {
    **{
        name: [((factor,), BY_NUMBERS[name](factor)) for factor in FACTORS]
        for name in ("brightness", "contrast", "saturation", "sharpness")
    },
    "hue": [((factor,), turned(factor)) for factor in HUES],
    "channel_permutation": [((float(which),), permuted(which)) for which in range(6)],
    # Without a deviation; with one tests/transform/test_noise.py looks at the distribution.
    "gaussian_noise": [
        ((mean, 0.0, float(clip)), shifted(int(mean * 255), clip))
        for mean in (0.0, 0.1, -0.1, -3.0, 3.0)
        for clip in (True, False)
    ],
    "posterize": [((float(bits),), posterized(bits)) for bits in range(9)],
    "autocontrast": [((), ImageOps.autocontrast)],
    "equalize": [((), ImageOps.equalize)],
    "solarize_add": [((float(add), 128.0), added(add, 128)) for add in (0, 30, 110)],
}
