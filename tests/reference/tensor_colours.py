"""What torchvision does to the colours of a uint8 tensor, by NumPy: torchvision 0.28,
transforms/v2/functional/_color.py, each product and sum rounded to float32 where torch rounds it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["TENSORS", "changed"]

F = np.float32


def fused(a: Any, b: Any, c: float) -> Any:
    """a + b * c, rounded once."""
    return (np.asarray(a, np.float64) + np.asarray(b, np.float64) * np.float64(F(c))).astype(F)


def luma(pixels: Any) -> Any:
    red, green, blue = np.moveaxis(pixels.astype(F), -1, 0)
    return fused(fused(red * F(0.2989), green, 0.587), blue, 0.114)


def blended(pixels: Any, other: Any, factor: float) -> Any:
    mixed = fused(pixels.astype(F) * F(factor), other, 1.0 - factor)
    return np.clip(mixed, 0, 255).astype(np.uint8)


def grayscale(pixels: Any) -> Any:
    return np.repeat(luma(pixels).astype(np.uint8)[..., None], 3, -1)


def contrast(pixels: Any, factor: float) -> Any:
    mean = F(np.floor(luma(pixels)).astype(np.float64).mean())
    return blended(pixels, np.broadcast_to(mean, pixels.shape), factor)


def saturation(pixels: Any, factor: float) -> Any:
    gray = np.floor(luma(pixels))[..., None]
    return blended(pixels, np.broadcast_to(gray, pixels.shape), factor)


def hue(pixels: Any, factor: float) -> Any:
    image = pixels.astype(F) * F(1.0 / 255.0)
    r, g, _ = np.moveaxis(image, -1, 0)
    most, least = image.max(-1), image.min(-1)
    gray, span = most == least, most - least
    s = span / np.where(gray, F(1), most)
    rc, gc, bc = np.moveaxis((most[..., None] - image) / np.where(gray, F(1), span)[..., None], -1, 0)
    h = np.where(most == r, bc - gc, np.where(most == g, rc + F(2) - bc, gc + F(4) - rc))
    h = np.fmod(h * F(1.0 / 6.0) + F(1), F(1)) + F(factor)
    h = np.where(h < 0, h + F(1), h)
    h = np.where(h >= 1, h - F(1), h)
    sixths = h * F(6)
    sector = np.floor(sixths).astype(int)
    part = s * (sixths - sector.astype(F))
    rest = F(1) - s
    p, q, t = (np.clip(one * most, F(0), F(1)) for one in (rest, F(1) - part, part + rest))
    vpqt = np.stack([most, p, q, t])
    order = np.array([[0, 2, 1, 1, 3, 0], [3, 0, 0, 2, 1, 1], [1, 1, 3, 0, 0, 2]])[:, sector % 6]
    rgb = np.take_along_axis(vpqt, order, 0)
    return np.moveaxis((rgb * F(255.999)).astype(np.uint8), 0, -1)


_RUNS: dict[str, Callable[..., Any]] = {
    "tensor_grayscale": grayscale,
    "tensor_contrast": contrast,
    "tensor_saturation": saturation,
    "tensor_hue": hue,
}
_FACTORS = {"tensor_hue": (-0.5, -0.1, 0.0, 0.01, 0.25, 0.5)}


def changed(name: str, picture: Image.Image, *numbers: float) -> Image.Image:
    """A Pillow picture, whose pixels were changed as those of a tensor."""
    return Image.fromarray(np.ascontiguousarray(_RUNS[name](np.asarray(picture), *numbers)))


def _with(name: str, numbers: tuple[float, ...]) -> Callable[[Image.Image], Image.Image]:
    return lambda picture: changed(name, picture, *numbers)


#: Numbers to try each by, and what becomes of a picture then.
TENSORS: dict[str, list[tuple[tuple[float, ...], Callable[[Image.Image], Image.Image]]]] = {
    "tensor_grayscale": [((), partial(changed, "tensor_grayscale"))],
    **{
        name: [
            ((factor,), _with(name, (factor,))) for factor in _FACTORS.get(name, (0.0, 0.5, 1.0, 1.3, 2.0))
        ]
        for name in ("tensor_contrast", "tensor_saturation", "tensor_hue")
    },
}
