"""The transform stage, slowly and obviously: Philox in Python ints, Pillow's resize in NumPy, store in torch.

Sources: Salmon et al. 2011 (Philox4x32-10), torchvision's RandomResizedCrop.get_params, Resize and
CenterCrop, Pillow 13's libImaging/Resample.c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

MASK = 0xFFFFFFFF
CROP, FLIP = 1, 2  # DrawOp in csrc/core/base/philox.h
HALF = 1 << 21

Rect = tuple[int, int, int, int]  # x, y, width, height
View = tuple[Rect, tuple[int, int], Rect, bool]  # crop, resized (width, height), window, flip


def philox(counter: list[int], key: list[int]) -> list[int]:
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


@dataclass(frozen=True)
class Draws:
    """The random words of one sample in one epoch."""

    seed: int
    epoch: int
    sample: int
    draw: int = 0
    view: int = 0

    def words(self, op: int, block: int) -> list[int]:
        fold = [self.epoch & MASK, self.epoch >> 32, 0x6661737A, 0x6C6F6164]
        key = philox(fold, [self.seed & MASK, self.seed >> 32])[:2]
        return philox(
            [self.sample & MASK, self.sample >> 32, self.draw, self.view << 24 | op << 16 | block], key
        )


def uniform(high: int, low: int) -> float:
    return ((high << 32 | low) >> 11) * 2.0**-53


def below(high: int, low: int, n: int) -> int:
    return (high << 32 | low) * n >> 64


def random_crop(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float], draws: Draws
) -> Rect:
    for i in range(10):
        a = draws.words(CROP, 2 * i)
        target = width * height * (scale[0] + uniform(a[0], a[1]) * (scale[1] - scale[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + uniform(a[2], a[3]) * (high - low))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            b = draws.words(CROP, 2 * i + 1)
            y = below(b[0], b[1], height - h + 1)
            return below(b[2], b[3], width - w + 1), y, w, h
    return central_crop(width, height, ratio)


def central_crop(width: int, height: int, ratio: tuple[float, float]) -> Rect:
    w, h = width, height  # torchvision fails where it rounds a side to 0; here it is 1
    if width / height < ratio[0]:
        h = max(round(w / ratio[0]), 1)
    elif width / height > ratio[1]:
        w = max(round(h * ratio[1]), 1)
    return (width - w) // 2, (height - h) // 2, w, h


def flipped(p: float, draws: Draws) -> bool:
    words = draws.words(FLIP, 0)
    return uniform(words[0], words[1]) < p


def resized_shorter(width: int, height: int, size: int, max_size: int | None) -> tuple[int, int]:
    """torchvision's _compute_resized_output_size: (width, height)."""
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = size, int(size * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    new_short, new_long = max(new_short, 1), max(new_long, 1)
    return (new_short, new_long) if width <= height else (new_long, new_short)


def center_window(width: int, height: int, crop: tuple[int, int]) -> Rect:
    """torchvision's center_crop of ``(height, width)``; a negative corner means padding with zeros."""
    offsets = [
        -((c - s) // 2) if c > s else round((s - c) / 2.0)
        for s, c in zip((width, height), crop[::-1], strict=True)
    ]
    return offsets[0], offsets[1], crop[1], crop[0]


def sinc(x: float) -> float:
    return math.sin(x * math.pi) / (x * math.pi) if x != 0.0 else 1.0


def kernel(x: float, name: str) -> float:
    if name == "lanczos":
        return sinc(x) * sinc(x / 3) if -3.0 <= x < 3.0 else 0.0
    x, a = abs(x), -0.5
    if name == "bilinear":
        return 1.0 - x if x < 1.0 else 0.0
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2.0 else 0.0


def weights(in_size: int, out_size: int, name: str) -> np.ndarray:
    """(out_size, in_size) int64: 22-bit fixed-point weights, by Pillow's precompute_coeffs."""
    scale = in_size / out_size
    stretch = max(scale, 1.0)
    support, inverse = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}[name] * stretch, 1.0 / stretch
    matrix = np.zeros((out_size, in_size), np.int64)
    for i in range(out_size):
        center = (i + 0.5) * scale
        low = max(int(center - support + 0.5), 0)
        high = min(int(center + support + 0.5), in_size)
        values = [kernel((k - center + 0.5) * inverse, name) for k in range(low, high)]
        total = 0.0
        for value in values:
            total += value
        for k, value in enumerate(values):
            w = value / total if total != 0.0 else value
            matrix[i, low + k] = int(w * (1 << 22) + (-0.5 if w < 0 else 0.5))
    return matrix


def along(pixels: np.ndarray, matrix: np.ndarray, axis: int) -> np.ndarray:
    sums = np.moveaxis(np.tensordot(matrix, pixels.astype(np.int64), (1, axis)), 0, axis)
    return np.clip((sums + HALF) >> 22, 0, 255).astype(np.uint8)


def resize(pixels: np.ndarray, width: int, height: int, name: str) -> np.ndarray:
    """(H, W, 3) uint8 resized as Pillow 13 does, with its order of the two passes."""
    in_height, in_width = pixels.shape[:2]
    passes = [(1, in_width, width), (0, in_height, height)]
    if in_height - height > 0 and in_height - height > 2 * (in_width - width):
        passes.reverse()
    for axis, before, after in passes:
        if before != after:
            pixels = along(pixels, weights(before, after, name), axis)
    return pixels


def cut(pixels: np.ndarray, window: Rect, flip: bool) -> np.ndarray:
    """The window of a picture, zero where it leaves it, mirrored if ``flip``."""
    x, y, width, height = window
    out = np.zeros((height, width, 3), np.uint8)
    top, left = max(y, 0), max(x, 0)
    inside = pixels[top : max(y + height, 0), left : max(x + width, 0)]
    out[top - y : top - y + inside.shape[0], left - x : left - x + inside.shape[1]] = inside
    return out[:, ::-1] if flip else out


def show(pixels: np.ndarray, view: View, name: str) -> np.ndarray:
    """The sample that a view shows of an (H, W, 3) uint8 picture."""
    (x, y, w, h), (width, height), window, flip = view
    return cut(resize(pixels[y : y + h, x : x + w], width, height, name), window, flip)


def stored(pixels: np.ndarray, dtype: str, scale: bool, norm: Any, channels_last: bool) -> torch.Tensor:
    """An (H, W, 3) uint8 picture in float64 arithmetic, rounded to float32, then by torch to ``dtype``.

    ``norm``: (mean, std) or None.
    """
    values = torch.from_numpy(pixels.copy()).double()
    if scale or norm:
        values /= 255
    if norm:
        values = (values - torch.tensor(norm[0]).double()) / torch.tensor(norm[1]).double()
    target = getattr(torch, dtype)
    result = values.to(target) if dtype == "uint8" else values.float().to(target)
    return result if channels_last else result.permute(2, 0, 1).contiguous()
