"""What processors of vision-language models make of a picture, plainly: Pillow, NumPy and Python's floats.

Written from the classes of transformers 5.23 that work with Pillow. tests/foreign/transformers compares the
core with these classes themselves (test_vision.py), and this (test_vlm_rules.py), so that it stands for them
where transformers is not installed. Sizes are (height, width), as there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image

from fastload.vlm.rules import Rule

__all__ = ["CASES", "FAMILIES", "Made", "all_rows", "byte_rows", "rows", "rows_of", "sizes", "table"]

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
HALF = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
CLIP = {"mean": CLIP_MEAN, "std": CLIP_STD}
SQUARES = [(384 * high, 384 * wide) for high in range(1, 7) for wide in range(1, 7)]

# The numbers of each family where nothing is said.
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2_vl": {
        "patch": 14, "merge": 2, "temporal": 2, "min_pixels": 3136, "max_pixels": 1003520,
        "filter": "bicubic", **CLIP,
    },
    "siglip2": {"patch": 16, "max_patches": 256, "filter": "bilinear", **HALF},
    "idefics3": {
        "longest_edge": 1456, "tile": 364, "tokens": 169, "crop_to_patches": True, "filter": "lanczos",
        **HALF,
    },
    "llava_onevision": {
        "tile": 384, "pinpoints": SQUARES, "max_tiles": 9, "tokens": 729, "filter": "bicubic", **CLIP,
    },
    "internvl": {
        "tile": 384, "min_tiles": 1, "max_tiles": 12, "crop_to_patches": False, "tokens": 256,
        "filter": "bicubic", **CLIP,
    },
    "gemma3": {
        "size": (224, 224), "pan_and_scan": False, "pan_min_crop": 256, "pan_max_crops": 4,
        "pan_min_ratio": 1.2, "tokens": 256, "filter": "bilinear", **HALF,
    },
    "paligemma": {"size": (224, 224), "tokens": 256, "filter": "bicubic", **HALF},
}  # fmt: skip
EVERY = {"first_max_pixels": 0, "rescale": 1 / 255}

# Settings that tests go through: a family, and what differs from it.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen2-VL": ("qwen2_vl", {}),
    "Qwen3-VL": ("qwen2_vl", {"patch": 16, "min_pixels": 65536, "max_pixels": 16777216, **HALF}),
    "Qwen, small": ("qwen2_vl", {"max_pixels": 20000, "merge": 1, "temporal": 3, "patch": 7}),
    "LLaMA-Factory": ("qwen2_vl", {"first_max_pixels": 589824}),
    "SigLIP2": ("siglip2", {}),
    "SigLIP2, 14": ("siglip2", {"patch": 14, "max_patches": 100}),
    "Idefics3": ("idefics3", {}),
    "SmolVLM": ("idefics3", {"longest_edge": 2048, "tile": 512, "tokens": 64}),
    "Idefics3, small": ("idefics3", {"longest_edge": 130, "tile": 50}),
    "Idefics3, whole": ("idefics3", {"crop_to_patches": False, "longest_edge": 500}),
    "LLaVA-OneVision": ("llava_onevision", {}),
    "LLaVA, few canvases": (
        "llava_onevision",
        {"tile": 112, "pinpoints": [(112, 224), (336, 112), (224, 224)]},
    ),
    "InternVL": ("internvl", {"tile": 448, "crop_to_patches": True}),
    "InternVL, 3 to 6": ("internvl", {"tile": 100, "crop_to_patches": True, "min_tiles": 3, "max_tiles": 6}),
    "GOT-OCR2": ("internvl", {}),
    "InternVL, LLaMA-Factory": (
        "internvl",
        {"tile": 100, "crop_to_patches": True, "max_tiles": 4, "first_max_pixels": 60000},
    ),
    "Gemma3": ("gemma3", {"size": (896, 896)}),
    "Gemma3, pan and scan": ("gemma3", {"pan_and_scan": True, "pan_min_crop": 64, "pan_max_crops": 5}),
    "PaliGemma": ("paligemma", {"size": (100, 201)}),
}


@dataclass
class Made:
    """What becomes of a picture's size."""

    height: int
    width: int
    rows: int
    grid: tuple[int, int]
    tokens: int
    more: dict[str, Any] = field(default_factory=dict)  # what rows() needs besides


Settings: TypeAlias = "str | tuple[str, dict[str, Any]]"  # a case, or a family and what differs from it


def settings(of: Settings) -> tuple[str, dict[str, Any]]:
    family, given = CASES[of] if isinstance(of, str) else of
    return family, {**EVERY, **FAMILIES[family], **given}


# ---- Sizes


def smart_resize(height: int, width: int, factor: int, least: int, most: int) -> tuple[int, int]:
    if max(height, width) / min(height, width) > 200:
        raise ValueError("too narrow")
    high, wide = round(height / factor) * factor, round(width / factor) * factor
    if high * wide > most:
        beta = math.sqrt((height * width) / most)
        high = max(factor, math.floor(height / beta / factor) * factor)
        wide = max(factor, math.floor(width / beta / factor) * factor)
    elif high * wide < least:
        beta = math.sqrt(least / (height * width))
        high = math.ceil(height * beta / factor) * factor
        wide = math.ceil(width * beta / factor) * factor
    return high, wide


def qwen2_vl(height: int, width: int, pictures: int, s: dict[str, Any]) -> Made:
    patch, merge = s["patch"], s["merge"]
    high, wide = smart_resize(height, width, patch * merge, s["min_pixels"], s["max_pixels"])
    grid = high // patch, wide // patch
    count = grid[0] * grid[1]
    return Made(high, wide, count, grid, count // merge**2)


def siglip2(height: int, width: int, pictures: int, s: dict[str, Any]) -> Made:
    patch = s["patch"]

    def scaled(scale: float, side: int) -> int:
        return max(patch, math.ceil(side * scale / patch) * patch)

    low, high = 1e-5 / 10, 100.0
    while high - low >= 1e-5:
        scale = (low + high) / 2
        count = (scaled(scale, height) / patch) * (scaled(scale, width) / patch)
        if count <= s["max_patches"]:
            low = scale
        else:
            high = scale
    down, across = scaled(low, height), scaled(low, width)
    grid = down // patch, across // patch
    return Made(down, across, grid[0] * grid[1], grid, grid[0] * grid[1])


def idefics3(height: int, width: int, pictures: int, s: dict[str, Any]) -> Made:
    ratio, edge, tile = width / height, s["longest_edge"], s["tile"]
    if width >= height:
        width, height = edge, int(edge / ratio)
        height += height % 2
    else:
        height, width = edge, int(edge * ratio)
        width += width % 2
    height, width = max(height, 1), max(width, 1)
    ratio = width / height
    if width >= height and width > 4096:
        width, height = 4096, int(4096 / ratio)
    elif height > width and height > 4096:
        height, width = 4096, int(4096 * ratio)
    first = height, width = max(height, 1), max(width, 1)
    if not s["crop_to_patches"]:
        return Made(tile, tile, 1, (0, 0), s["tokens"], {"first": first})
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        height = math.ceil(int(width / ratio) / tile) * tile
    else:
        height = math.ceil(height / tile) * tile
        width = math.ceil(int(height * ratio) / tile) * tile
    split = height > tile or width > tile
    grid = (height // tile, width // tile) if split else (0, 0)
    count = grid[0] * grid[1] + 1
    return Made(height, width, count, grid, count * s["tokens"], {"first": first})


def best_canvas(height: int, width: int, canvases: list[tuple[int, int]]) -> tuple[int, int]:
    best, most, least = (0, 0), 0, math.inf
    for high, wide in canvases:
        scale = min(wide / width, high / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        waste = wide * high - kept
        if kept > most or (kept == most and waste < least):
            best, most, least = (high, wide), kept, waste
    return best


def unpadded(height: int, width: int, grid: tuple[int, int], s: dict[str, Any]) -> int:
    side = int(math.sqrt(s["tokens"]))
    down, across = side * grid[0], side * grid[1]
    if width / height > across / down:
        down -= (down - int(round(height * (across / width), 7))) // 2 * 2
    else:
        across -= (across - int(round(width * (down / height), 7))) // 2 * 2
    ratio = math.sqrt(down * across / (s["max_tiles"] * side**2))
    if ratio > 1.1:
        return int(down // ratio) * int(across // ratio) + int(down // ratio)
    return down * across + down


def llava_onevision(height: int, width: int, pictures: int, s: dict[str, Any]) -> Made:
    tile = s["tile"]
    if pictures > 1:
        return Made(tile, tile, 1, (0, 0), s["tokens"] + 1, {"many": True})
    high, wide = best_canvas(height, width, s["pinpoints"])
    across, down = wide / width, high / height
    if across < down:
        to = min(math.ceil(height * across), high), wide
    else:
        to = high, min(math.ceil(width * down), wide)
    grid = high // tile, wide // tile
    tokens = s["tokens"] + unpadded(height, width, grid, s)
    return Made(high, wide, 1 + grid[0] * grid[1], grid, tokens, {"many": False, "to": to})


def internvl(height: int, width: int, pictures: int, s: dict[str, Any]) -> Made:
    tile, most = s["tile"], s["max_tiles"]
    best, least = (1, 1), math.inf
    if s["crop_to_patches"] and most > 1:
        pairs = [(c, r) for c in range(1, most + 1) for r in range(1, most + 1)]
        grids = [pair for pair in pairs if s["min_tiles"] <= pair[0] * pair[1] <= most]
        for columns, lines in sorted(grids, key=lambda pair: pair[0] * pair[1]):
            away = abs(width / height - columns / lines)
            tie = away == least and width * height > 0.5 * tile * tile * columns * lines
            if away < least or tie:
                best, least = (lines, columns), away
    count = best[0] * best[1]
    count += count > 1
    return Made(tile * best[0], tile * best[1], count, best, count * s["tokens"])


def pan(height: int, width: int, s: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    """Boxes of crops: left, top, right, bottom."""
    longer, shorter = max(height, width), min(height, width)
    if not s["pan_and_scan"] or longer / shorter < s["pan_min_ratio"]:
        return []
    count = min(math.floor(longer / s["pan_min_crop"]), math.floor(longer / shorter + 0.5))
    count = min(s["pan_max_crops"], max(2, count))
    side = math.ceil(longer / count)
    if min(side, shorter) < s["pan_min_crop"]:
        return []
    if width >= height:
        return [(side * i, 0, min(side * (i + 1), width), height) for i in range(count)]
    return [(0, side * i, width, min(side * (i + 1), height)) for i in range(count)]


def gemma3(height: int, width: int, pictures: int, s: dict[str, Any]) -> Made:
    crops = pan(height, width, s)
    grid = (0, 0) if not crops else (1, len(crops)) if width >= height else (len(crops), 1)
    count = 1 + len(crops)
    return Made(*s["size"], count, grid, count * s["tokens"], {"crops": crops})


def paligemma(height: int, width: int, pictures: int, s: dict[str, Any]) -> Made:
    return Made(*s["size"], 1, (0, 0), s["tokens"], {"crops": []})


def first(height: int, width: int, s: dict[str, Any]) -> tuple[int, int]:
    """The size that LLaMA-Factory gives a picture before the processor gets it."""
    most = s["first_max_pixels"]
    if not most or width * height <= most:
        return height, width
    factor = math.sqrt(most / (width * height))
    return int(height * factor), int(width * factor)


def sizes(of: Settings, height: int, width: int, pictures: int = 1) -> Made:
    """What becomes of a picture of that size; ValueError where there is no answer."""
    family, s = settings(of)
    made: Made = globals()[family](*first(height, width, s), pictures, s)
    return made


# ---- Pixels


def resized(pixels: np.ndarray, to: tuple[int, int], filter: str) -> np.ndarray:
    return np.asarray(Image.fromarray(pixels).resize((to[1], to[0]), FILTERS[filter]))


def tiles(pixels: np.ndarray, high: int, wide: int) -> list[np.ndarray]:
    return [
        pixels[y : y + high, x : x + wide]
        for y in range(0, pixels.shape[0], high)
        for x in range(0, pixels.shape[1], wide)
    ]


def canvas(pixels: np.ndarray, to: tuple[int, int], colour: tuple[int, ...]) -> np.ndarray:
    """The picture in the middle of a canvas."""
    found = np.empty((*to, 3), np.uint8)
    found[:] = colour
    y, x = (to[0] - pixels.shape[0]) // 2, (to[1] - pixels.shape[1]) // 2
    found[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
    return found


def pictures_of(family: str, pixels: np.ndarray, made: Made, s: dict[str, Any]) -> list[np.ndarray]:
    """The pictures of equal size that a family of tiles is given, in order."""
    how = s["filter"]
    if family in ("gemma3", "paligemma"):
        crops = [pixels[y0:y1, x0:x1] for x0, y0, x1, y1 in made.more["crops"]]
        return [resized(part, s["size"], how) for part in [pixels, *crops]]
    tile = s["tile"]
    one = (tile, tile)
    if family == "idefics3":
        whole = resized(resized(pixels, made.more["first"], how), (made.height, made.width), how)
        return [whole] if made.rows == 1 else [*tiles(whole, *one), resized(whole, one, how)]
    if family == "internvl":
        parts = tiles(resized(pixels, (made.height, made.width), how), *one)
        return parts if len(parts) == 1 else [*parts, resized(pixels, one, how)]
    if made.more["many"]:
        side = max(pixels.shape[:2])
        colour = tuple(int(mean * 255) for mean in s["mean"])
        return [resized(canvas(pixels, (side, side), colour), one, how)]
    placed = canvas(resized(pixels, made.more["to"], how), (made.height, made.width), (0, 0, 0))
    return [resized(pixels, one, how), *tiles(placed, *one)]


def byte_rows(of: Settings, pixels: np.ndarray, pictures: int = 1) -> np.ndarray:
    """(rows, ...) uint8, without Qwen's repetition."""
    family, s = settings(of)
    made = sizes(of, *pixels.shape[:2], pictures)
    to = first(*pixels.shape[:2], s)
    if to != pixels.shape[:2]:  # by Pillow's own default
        pixels = resized(pixels, to, "bicubic")
    if family not in ("qwen2_vl", "siglip2"):
        return np.stack([part.transpose(2, 0, 1) for part in pictures_of(family, pixels, made, s)])
    patch = s["patch"]
    parts = np.stack(tiles(resized(pixels, (made.height, made.width), s["filter"]), patch, patch))
    if family == "siglip2":
        return parts.reshape(made.rows, -1)
    parts = parts.transpose(0, 3, 1, 2).reshape(made.rows, -1)
    merge, (down, across) = s["merge"], made.grid
    order = [
        (i + di) * across + j + dj
        for i in range(0, down, merge)
        for j in range(0, across, merge)
        for di in range(merge)
        for dj in range(merge)
    ]
    return parts[order]


def table(of: Settings) -> np.ndarray:
    """(3, 256) float32: what a byte becomes in each channel."""
    _, s = settings(of)
    scaled = (np.arange(256).astype(np.float64) * s["rescale"]).astype(np.float32)
    mean, std = (np.array(s[word], np.float32)[:, None] for word in ("mean", "std"))
    return (scaled - mean) / std


def rows(of: Settings, pixels: np.ndarray, pictures: int = 1) -> np.ndarray:
    """(rows, ...) float32, as the family's processor has them."""
    family, s = settings(of)
    found = byte_rows(of, pixels, pictures)
    values = table(of)
    if family == "siglip2":
        return values[np.arange(found.shape[1]) % 3, found]
    if family != "qwen2_vl":
        return values[np.arange(3)[:, None, None], found]
    planes = found.reshape(len(found), 3, 1, -1)
    repeated = np.repeat(values[np.arange(3)[:, None, None], planes], s["temporal"], axis=2)
    return repeated.reshape(len(found), -1)


# ---- Of rules of fastload/vlm/rules.py


def rows_of(rule: Rule, pixels: np.ndarray, pictures: int = 1) -> torch.Tensor:
    """The rows of a picture (height, width, 3) uint8 in the rule's dtype."""
    made = (byte_rows if rule.dtype == "uint8" else rows)(rule.core(), pixels, pictures)
    found = torch.from_numpy(np.ascontiguousarray(made))
    return found.to(torch.bfloat16) if rule.dtype == "bfloat16" else found


def all_rows(
    rule: Rule, samples: Sequence[Sequence[np.ndarray]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, grids, counts and sizes of a batch, as :func:`fastload.vlm.layouts.batch_of` takes them."""
    flat = [(picture, len(sample)) for sample in samples for picture in sample]
    return (
        torch.cat([rows_of(rule, picture, among) for picture, among in flat]),
        torch.tensor([sizes(rule.core(), *picture.shape[:2], among).grid for picture, among in flat]),
        torch.tensor([len(sample) for sample in samples]),
        torch.tensor([picture.shape[:2] for picture, _ in flat]),
    )
