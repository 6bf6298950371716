"""The sizes and counts of picture rules for many pictures at once, by NumPy.

Each function does what the rule of its name in ``fastload/vlm/rules.py`` does for one picture, with the same
operations on doubles in the same order, so that all results are equal; ``tests/vlm`` compares them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

#: Integers, int64, or doubles on the way to them.
Array: TypeAlias = npt.NDArray[Any]


def sides(rule: str, sizes: Any, pictures: Any) -> tuple[Array, Array, Array]:
    """Return heights, widths and numbers of pictures of a rule's argument, each (n,) int64.

    Raises:
        ValueError: not integers of the right shape, or a number below 1.
    """
    given = np.asarray(sizes)
    if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
        raise ValueError(
            f"{rule}.tokens_of: sizes must be (n, 2) integers, height and width of each picture. Found: "
            f"{given.shape} {given.dtype}."
        )
    among = np.asarray(pictures)
    if among.dtype.kind not in "iu" or among.shape not in {(), (len(given),)}:
        raise ValueError(
            f"{rule}.tokens_of: pictures must be a number or ({len(given)},) integers. Found: {among.shape} "
            f"{among.dtype}."
        )
    for name, numbers in (("sizes", given), ("pictures", among)):
        if numbers.size and numbers.min() < 1:
            raise ValueError(f"{rule}.tokens_of: {name} must be at least 1. Found: {numbers.min()}.")
    height, width = given.astype(np.int64).T
    return height, width, np.broadcast_to(among.astype(np.int64), height.shape)


def first(height: Array, width: Array, most: int) -> tuple[Array, Array]:
    """Return heights and widths after LLaMA-Factory's resize to ``most`` pixels."""
    factor = np.sqrt(most / (width * height))
    larger = height * width > most
    return (
        np.where(larger, (height * factor).astype(np.int64), height),
        np.where(larger, (width * factor).astype(np.int64), width),
    )


def qwen2_vl(
    height: Array, width: Array, factor: int, min_pixels: int, max_pixels: int
) -> tuple[Array, Array]:
    """Return heights and widths of the resized pictures."""
    # np.rint rounds halves to even, as round does.
    down, across = (np.rint(side / factor).astype(np.int64) * factor for side in (height, width))
    beta = np.sqrt(height * width / max_pixels)
    less = (np.maximum(factor, _whole(np.floor(side / beta / factor)) * factor) for side in (height, width))
    beta_up = np.sqrt(min_pixels / (height * width))
    more = (_whole(np.ceil(side * beta_up / factor)) * factor for side in (height, width))
    large, small = down * across > max_pixels, down * across < min_pixels
    chosen = [
        np.where(large, shrunk, np.where(small, grown, rounded))
        for rounded, shrunk, grown in zip((down, across), less, more, strict=True)
    ]
    return chosen[0], chosen[1]


def siglip2(height: Array, width: Array, patch: int, max_patches: int) -> Array:
    """Return the patches of each picture."""

    def patches(scale: Array) -> Array:
        down, across = (np.maximum(1, _whole(np.ceil(side * scale / patch))) for side in (height, width))
        return down * across

    least, most = np.full(len(height), 1e-5 / 10), np.full(len(height), 100.0)
    while (most - least >= 1e-5).any():  # for all pictures equally often
        scale = (least + most) / 2
        fits = patches(scale) <= max_patches
        least, most = np.where(fits, scale, least), np.where(fits, most, scale)
    return patches(least)


def idefics3(
    height: Array, width: Array, longest_edge: int, tile: int, longest_side: int
) -> tuple[Array, Array]:
    """Return rows and columns of tiles of each picture."""
    wide = width >= height
    ratio = width / height
    # The shorter side follows; what the other branch would compute is thrown away.
    short = _whole(np.where(wide, longest_edge / ratio, longest_edge * ratio))
    short = np.maximum(short + short % 2, 1)
    height, width = np.where(wide, short, longest_edge), np.where(wide, longest_edge, short)
    wide, ratio = width >= height, width / height
    over = np.maximum(height, width) > longest_side
    short = np.maximum(_whole(np.where(wide, longest_side / ratio, longest_side * ratio)), 1)
    height, width = (
        np.where(over, np.where(wide, short, longest_side), height),
        np.where(over, np.where(wide, longest_side, short), width),
    )
    wide, ratio = width >= height, width / height
    long = -(-np.maximum(height, width) // tile) * tile
    short = _whole(np.where(wide, long / ratio, long * ratio))
    short, long = -(-short // tile), long // tile
    return np.where(wide, short, long), np.where(wide, long, short)


def best_resolution(height: Array, width: Array, pinpoints: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    """Return height and width of the resolution into which each picture is fitted."""
    chosen = np.zeros((2, len(height)), np.int64)
    most, least_waste = np.zeros(len(height), np.int64), np.full(len(height), np.iinfo(np.int64).max)
    area = height * width
    for down, across in pinpoints:
        scale = np.minimum(across / width, down / height)
        effective = np.minimum(_whole(width * scale) * _whole(height * scale), area)
        waste = down * across - effective
        better = (effective > most) | ((effective == most) & (waste < least_waste))
        chosen[:, better] = np.array([[down], [across]])
        most, least_waste = np.where(better, effective, most), np.where(better, waste, least_waste)
    return chosen[0], chosen[1]


def llava_features(
    height: Array, width: Array, rows: Array, columns: Array, tile_tokens: int, anyres_max: int
) -> Array:
    """Return the tokens of each picture that is a sample's only one, with select="full"."""
    side = int(math.sqrt(tile_tokens))
    down, across = side * rows, side * columns
    wide = width / height > across / down
    seen_down = _rounded(height * (across / width))
    seen_across = _rounded(width * (down / height))
    down, across = (
        np.where(wide, down - (down - seen_down) // 2 * 2, down),
        np.where(wide, across, across - (across - seen_across) // 2 * 2),
    )
    ratio = np.sqrt(down * across / (anyres_max * side**2))
    ratio = np.where(ratio > 1.1, ratio, 1)  # a whole number divided by 1 stays
    lines = _whole(down // ratio)
    return lines * _whole(across // ratio) + lines + tile_tokens


def internvl(height: Array, width: Array, grids: Sequence[tuple[int, int]], tile: int) -> Array:
    """Return the tiles of each picture's grid, without the whole picture's."""
    ratio, area = width / height, width * height
    least, tiles = np.full(len(height), np.inf), np.ones(len(height), np.int64)
    for columns, rows in grids:
        distance = np.abs(ratio - columns / rows)
        large = area > 0.5 * tile * tile * columns * rows
        tiles = np.where((distance < least) | ((distance == least) & large), columns * rows, tiles)
        least = np.minimum(least, distance)
    return tiles


def gemma3(height: Array, width: Array, min_crop: int, max_crops: int, min_ratio: float) -> Array:
    """Return the crops of each picture."""
    longer, shorter = np.maximum(height, width), np.minimum(height, width)
    count = np.minimum(longer // min_crop, _whole(np.floor(longer / shorter + 0.5)))
    count = np.minimum(max_crops, np.maximum(2, count))
    small = np.minimum(-(-longer // count), shorter) < min_crop
    return np.where((longer / shorter < min_ratio) | small, 0, count)


def _whole(numbers: Array) -> Array:
    """As ``int`` makes them: towards zero."""
    return numbers.astype(np.int64)


def _rounded(numbers: Array) -> Array:
    """``int(round(x, 7))``: up where less than half of the last digit is missing."""
    down = np.floor(numbers)
    return _whole(down) + (numbers - down > 1 - 5e-8)
