"""Batch transforms the slow way: loops over samples and pixels, float64, colorsys."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.transforms.batch import ColorJitter, RandomErasing

Array = npt.NDArray[Any]
ERASE, JITTER, BATCH = 5, 6, 7


def uniform32(word: int, low: float = 0.0, high: float = 1.0) -> float:
    """Uniform by one word."""
    return low + (high - low) * (int(word) / 2**32)


def boxes(
    spec: RandomErasing, seed: int, epoch: int, sample: int, draw: int, height: int, width: int
) -> list[list[int]]:
    """torchvision's RandomErasing.get_params, and timm's loop around it, with the words of the sample; as
    many as there may be."""

    def words(block: int) -> Sequence[int]:
        return _C.sample_words(seed, epoch, sample, draw, ERASE, block)

    least, most = spec.count  # type: ignore[misc]
    first, found = words(0), [[0, 0, 0, 0] for _ in range(most)]
    if uniform32(first[0]) >= spec.p:
        return found
    count = least + math.floor(uniform32(first[1]) * (most - least + 1))
    for number in range(count):
        for attempt in range(10):
            a, r, i, j = words(10 * number + attempt + 1)
            area = height * width / count * uniform32(a, *spec.scale)
            aspect = math.exp(uniform32(r, math.log(spec.ratio[0]), math.log(spec.ratio[1])))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < height and w < width:
                top = math.floor(uniform32(i) * (height - h + 1))
                left = math.floor(uniform32(j) * (width - w + 1))
                found[number] = [top, top + h, left, left + w]
                break
    return found


def erased(image: Array, where: list[int], values: Sequence[float]) -> Array:
    """(3, h, w) with a rectangle filled."""
    result = image.copy()
    top, bottom, left, right = where
    for y in range(top, bottom):
        for x in range(left, right):
            result[:, y, x] = values
    return result


def jittered(image: Array, spec: ColorJitter, seed: int, epoch: int, sample: int) -> Array:
    """(3, h, w) float64 in [0, 1] of a uint8 picture, pixel by pixel."""
    words = _C.sample_words(seed, epoch, sample, 0, JITTER, 0)
    ranges: list[Any] = [spec.brightness, spec.contrast, spec.saturation, spec.hue]
    brightness, contrast, saturation, hue = (
        uniform32(word, *span) for word, span in zip(words, ranges, strict=True)
    )
    x = np.clip(image.astype(np.float64) / 255 * brightness, 0, 1)
    x = np.clip(contrast * x + (1 - contrast) * gray(x).mean(), 0, 1)
    x = np.clip(saturation * x + (1 - saturation) * gray(x), 0, 1)
    result = np.empty_like(x)
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*x[:, i, j])
            result[:, i, j] = colorsys.hsv_to_rgb((h + hue) % 1.0, s, v)
    return result


def gray(image: Array) -> Array:
    """torchvision's luminance."""
    return 0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def mixed(images: Array, lam: float) -> Array:
    """Sample i with sample i - 1."""
    return np.stack([lam * images[i] + (1 - lam) * images[i - 1] for i in range(len(images))])


def soft(labels: Array, classes: int, lam: float) -> Array:
    """One-hot labels, mixed; no row for labels out of range."""
    hot = np.zeros((len(labels), classes))
    for i, label in enumerate(labels):
        if 0 <= label < classes:
            hot[i, label] = 1.0
    return mixed(hot, lam)
