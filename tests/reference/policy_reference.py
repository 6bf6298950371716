"""What Pillow makes of a picture by the steps that a policy drew, slowly and obviously, as torchvision and
timm call it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from pixel_reference import Step, drawn_steps
from transform_reference import Draws

from fastload.transforms.plan import PixelUse

FILTERS = (Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)


def _warped(picture: Image.Image, b: float, c: float, d: float, f: float, last: tuple[float, ...]) -> Any:
    fill = tuple(int(value) for value in last[1:])
    matrix = (1, b, c, d, 1, f)
    affine = Image.Transform.AFFINE
    return picture.transform(picture.size, affine, matrix, FILTERS[int(last[0])], fillcolor=fill)


def _shear_x(picture: Image.Image, factor: float, by_angle: float, *last: float) -> Any:
    angle = math.radians(math.degrees(math.atan(factor)))
    return _warped(picture, math.tan(angle) if by_angle else factor, 0, 0, 0, last)


def _shear_y(picture: Image.Image, factor: float, by_angle: float, *last: float) -> Any:
    angle = math.radians(math.degrees(math.atan(factor)))
    return _warped(picture, 0, 0, math.sin(angle) / math.cos(angle) if by_angle else factor, 0, last)


def _moved(pixels: float, share: float, whole: float, size: int) -> float:
    moved = pixels + share * size
    return -float(int(moved)) if whole else -moved


def _translate_x(picture: Image.Image, pixels: float, share: float, whole: float, *last: float) -> Any:
    return _warped(picture, 0, _moved(pixels, share, whole, picture.width), 0, 0, last)


def _translate_y(picture: Image.Image, pixels: float, share: float, whole: float, *last: float) -> Any:
    return _warped(picture, 0, 0, 0, _moved(pixels, share, whole, picture.height), last)


def _rotate(picture: Image.Image, angle: float, has_center: float, x: float, y: float, *last: float) -> Any:
    fill = tuple(int(value) for value in last[1:])
    center = (x, y) if has_center else None
    return picture.rotate(angle, FILTERS[int(last[0])], center=center, fillcolor=fill)


def _posterize(picture: Image.Image, bits: float) -> Any:
    kept = min(max(int(bits), 0), 8)
    return ImageOps.posterize(picture, kept) if kept else picture.point(lambda _: 0)


def _solarize_add(picture: Image.Image, add: float, threshold: float) -> Any:
    return picture.point(
        [min(255, value + int(add)) if value < threshold else value for value in range(256)] * 3
    )


RUN: dict[str, Callable[..., Any]] = {
    "autocontrast": ImageOps.autocontrast,
    "equalize": ImageOps.equalize,
    "invert": ImageOps.invert,
    "brightness": lambda picture, factor: ImageEnhance.Brightness(picture).enhance(factor),
    "contrast": lambda picture, factor: ImageEnhance.Contrast(picture).enhance(factor),
    "saturation": lambda picture, factor: ImageEnhance.Color(picture).enhance(factor),
    "sharpness": lambda picture, factor: ImageEnhance.Sharpness(picture).enhance(factor),
    "solarize": ImageOps.solarize,
    "posterize": _posterize,
    "solarize_add": _solarize_add,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
    "rotate": _rotate,
    "gaussian_blur_pillow": lambda picture, radius: picture.filter(ImageFilter.GaussianBlur(radius)),
}


def run_steps(picture: Image.Image, steps: Iterable[Step]) -> Image.Image:
    """The picture after the steps. Mixes as torchvision's (``mix_end`` with 1) and timm's do it, in NumPy."""
    original, kept = picture, np.zeros(0, np.float32)
    for name, numbers in steps:
        share = np.float32(numbers[0]) if numbers else np.float32(0)
        if name == "mix_begin":
            original, kept = picture, share * np.asarray(picture, np.float32)
        elif name == "mix_add":
            kept = kept + share * np.asarray(picture, np.float32)
            picture = original
        elif name == "mix_end":
            mixed = Image.fromarray(np.clip(kept, 0, 255).astype(np.uint8))
            picture = Image.blend(original, mixed, float(share))
        elif name == "turn_begin":
            original = turned = picture
        elif name == "turn_add":
            turned, picture = Image.blend(turned, picture, float(share)), original
        elif name == "turn_end":
            picture = turned
        else:
            picture = RUN[name](picture, *numbers)
    return picture


def policy_reference(pixels: Any, uses: Iterable[PixelUse], draws: Draws) -> Any:
    """(H, W, 3) uint8 after a plan's operations on pixels, drawn for this sample."""
    return np.asarray(run_steps(Image.fromarray(pixels), drawn_steps(uses, draws)))
