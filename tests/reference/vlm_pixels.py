"""The pixels that a picture rule of ``fastload/vlm/rules.py`` makes, plainly: Pillow resizes, NumPy cuts.

Written from the rules, one step after the other. ``tests/foreign/transformers`` compares it with
transformers' PIL classes, so that it can stand for them where transformers is not installed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch

import numpy as np
import torch
from PIL import Image

from fastload.vlm.rules import Gemma3, Idefics3, InternVL, LlavaOneVision, PaliGemma, Qwen2VL, Rule, SigLIP2

__all__ = ["all_rows", "rows_of", "table_of"]

FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def table_of(rule: Rule) -> np.ndarray:
    """What each value of each channel becomes, (3, 256) float32, by the PIL classes' formula."""
    scaled = (np.arange(256, dtype=np.float64) * rule.rescale).astype(np.float32)
    mean, std = (np.array(part, np.float32)[:, None] for part in (rule.mean, rule.std))
    return np.asarray((scaled - mean) / std, np.float32)


def rows_of(rule: Rule, picture: np.ndarray, pictures: int = 1) -> torch.Tensor:
    """The rows of a picture (height, width, 3) uint8, (patches, row) or (tiles, 3, height, width).

    ``pictures``: how many its sample has.
    """
    height, width = rule.first(*picture.shape[:2])
    if (height, width) != picture.shape[:2]:  # LLaMA-Factory calls image.resize((width, height))
        picture = np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC))
    pixels = _pixels(rule, picture, pictures)  # (..., 3 channels)
    if rule.dtype != "uint8":
        table = table_of(rule)
        pixels = np.stack([table[channel][pixels[..., channel]] for channel in range(3)], axis=-1)
    rows = torch.from_numpy(np.ascontiguousarray(_rows(rule, pixels)))
    return rows.to(torch.bfloat16) if rule.dtype == "bfloat16" else rows


def all_rows(
    rule: Rule, samples: Sequence[Sequence[np.ndarray]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, grids, counts and sizes of a batch, as :func:`fastload.vlm.layouts.batch_of` takes them."""
    flat = [(picture, len(sample)) for sample in samples for picture in sample]
    grids = [rule.sizes(*picture.shape[:2], among) for picture, among in flat]
    return (
        torch.cat([rows_of(rule, picture, among) for picture, among in flat]),
        torch.tensor([(grid.rows, grid.columns) for grid in grids]),
        torch.tensor([len(sample) for sample in samples]),
        torch.tensor([picture.shape[:2] for picture, _ in flat]),
    )


def _resized(picture: np.ndarray, height: int, width: int, rule: Rule) -> np.ndarray:
    return np.asarray(Image.fromarray(picture).resize((width, height), FILTERS[rule.filter]))


def _tiles(picture: np.ndarray, tile: int) -> list[np.ndarray]:
    """The tiles of a picture, row by row."""
    tops, lefts = range(0, picture.shape[0], tile), range(0, picture.shape[1], tile)
    return [picture[top : top + tile, left : left + tile] for top in tops for left in lefts]


# ---- Pixels: (height, width, 3) or (tiles, height, width, 3) uint8 ----------------------------------


@singledispatch
def _pixels(rule: Rule, picture: np.ndarray, pictures: int) -> np.ndarray:
    raise NotImplementedError(rule)


@_pixels.register(Qwen2VL)
@_pixels.register(SigLIP2)
def _(rule: Qwen2VL | SigLIP2, picture: np.ndarray, pictures: int) -> np.ndarray:
    grid = rule.sizes(*picture.shape[:2])
    return _resized(picture, grid.height, grid.width, rule)


@_pixels.register
def _(rule: Idefics3, picture: np.ndarray, pictures: int) -> np.ndarray:
    grid = rule.sizes(*picture.shape[:2])
    longest = _resized(picture, *rule.longest(*picture.shape[:2]), rule)
    whole = _resized(longest, grid.height, grid.width, rule)
    if not grid.rows:
        return whole[None]
    return np.stack([*_tiles(whole, rule.tile), _resized(whole, rule.tile, rule.tile, rule)])


@_pixels.register
def _(rule: LlavaOneVision, picture: np.ndarray, pictures: int) -> np.ndarray:
    height, width = picture.shape[:2]
    if pictures > 1:
        side = max(height, width)
        square = np.empty((side, side, 3), np.uint8)
        square[...] = [int(part * 255) for part in rule.mean]
        top, left = (side - height) // 2, (side - width) // 2
        square[top : top + height, left : left + width] = picture
        return _resized(square, rule.tile, rule.tile, rule)[None]
    best = rule.sizes(height, width)
    across, down = best.width / width, best.height / height
    if across < down:
        inner = min(math.ceil(height * across), best.height), best.width
    else:
        inner = best.height, min(math.ceil(width * down), best.width)
    canvas = np.zeros((best.height, best.width, 3), np.uint8)
    top, left = (best.height - inner[0]) // 2, (best.width - inner[1]) // 2
    canvas[top : top + inner[0], left : left + inner[1]] = _resized(picture, *inner, rule)
    return np.stack([_resized(picture, rule.tile, rule.tile, rule), *_tiles(canvas, rule.tile)])


@_pixels.register
def _(rule: InternVL, picture: np.ndarray, pictures: int) -> np.ndarray:
    grid = rule.sizes(*picture.shape[:2])
    tiles = _tiles(_resized(picture, grid.height, grid.width, rule), rule.tile)
    whole = [_resized(picture, rule.tile, rule.tile, rule)] if len(tiles) > 1 else []
    return np.stack([*tiles, *whole])


@_pixels.register
def _(rule: Gemma3, picture: np.ndarray, pictures: int) -> np.ndarray:
    height, width = picture.shape[:2]
    rows, columns = rule.crops(height, width)
    crops = [picture]
    if rows * columns:
        down, across = math.ceil(height / rows), math.ceil(width / columns)
        tops, lefts = [down * row for row in range(rows)], [across * column for column in range(columns)]
        crops += [picture[top : top + down, left : left + across] for top in tops for left in lefts]
    return np.stack([_resized(np.ascontiguousarray(crop), *rule.size, rule) for crop in crops])


@_pixels.register
def _(rule: PaliGemma, picture: np.ndarray, pictures: int) -> np.ndarray:
    return _resized(picture, *rule.size, rule)[None]


# ---- Rows -------------------------------------------------------------------------------------------


def _rows(rule: Rule, pixels: np.ndarray) -> np.ndarray:
    """The rows of pixels, channels last, whatever their dtype."""
    if isinstance(rule, Qwen2VL):
        patch, merge = rule.patch, rule.merge
        down, across = pixels.shape[0] // (patch * merge), pixels.shape[1] // (patch * merge)
        cells = pixels.reshape(down, merge, patch, across, merge, patch, 3)
        cells = cells.transpose(0, 3, 1, 4, 6, 2, 5)  # groups, patches of a group, channels, pixels
        frames = np.repeat(cells[:, :, :, :, :, None], 1 if rule.dtype == "uint8" else rule.temporal, axis=5)
        return frames.reshape(down * across * merge * merge, -1)
    if isinstance(rule, SigLIP2):
        down, across = pixels.shape[0] // rule.patch, pixels.shape[1] // rule.patch
        cells = pixels.reshape(down, rule.patch, across, rule.patch, 3)
        return cells.transpose(0, 2, 1, 3, 4).reshape(down * across, -1)
    return np.moveaxis(pixels, -1, 1)
