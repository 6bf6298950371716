"""Picture rules of vision-language models: what an image processor of transformers does to a picture.

A rule says to which size a picture is resized, into which patches or tiles it is cut, and how many image
tokens it takes. The reference is transformers' PIL classes (``...ImageProcessorPil``); expressions stand in
the order of their code, in double precision, because another order rounds differently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from fastload.vlm import counted

Filter: TypeAlias = Literal["bilinear", "bicubic", "lanczos"]
Dtype: TypeAlias = Literal["float32", "bfloat16", "uint8"]
Three: TypeAlias = "tuple[float, float, float]"

FILTERS = ("bilinear", "bicubic", "lanczos")
DTYPES = ("float32", "bfloat16", "uint8")
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)
ONEVISION_PINPOINTS = tuple((384 * down, 384 * across) for down in range(1, 7) for across in range(1, 7))
MOST_RATIO = 200  # of Qwen2-VL's sides
LONGEST_SIDE = 4096  # of Idefics3's pictures

# ---- Checks -----------------------------------------------------------------------------------------


def _whole(name: str, value: Any, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}. Found: {value!r}.")


def _word(name: str, value: Any, legal: Sequence[str]) -> None:
    if value not in legal:
        raise ValueError(f"{name} must be one of {', '.join(legal)}. Found: {value!r}.")


def _number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number above 0. Found: {value!r}.")


def _three(name: str, value: Any, above_zero: bool = False) -> Three:
    """Return a number for each channel; a single one is all three."""
    parts = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * 3
    right = all(isinstance(part, int | float) and math.isfinite(part) for part in parts)
    if len(parts) != 3 or not right or (above_zero and min(parts) <= 0):
        kind = "numbers above 0" if above_zero else "finite numbers"
        raise ValueError(f"{name} must be three {kind}, one for each channel. Found: {value!r}.")
    return float(parts[0]), float(parts[1]), float(parts[2])


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False. Found: {value!r}.")


# ---- Rules ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """What a rule makes of a picture.

    Attributes:
        height, width: of the resized picture in pixels; of a rule with tiles, without the small picture of
            the whole.
        rows, columns: of patches; of a rule with tiles, of tiles (0, 0: the picture alone).
        tokens: image tokens in the text, without those that frame them.
    """

    height: int
    width: int
    rows: int
    columns: int
    tokens: int


class Rule:
    """What all rules have: a family's name, checks, sizes and counts, and what the core is given."""

    family: ClassVar[str]
    #: Whether it stands for all that is done to pictures, as ``transform=`` of a DataLoader.
    is_vision: ClassVar[bool] = True
    #: Fields that the core needs not know: they count tokens, or choose the dtype of what it makes.
    _NOT_CORE: ClassVar[frozenset[str]] = frozenset({"tile_tokens", "dtype"})

    mean: Three
    std: Three
    filter: Filter
    rescale: float
    dtype: Dtype
    first_max_pixels: int | None

    def __repr__(self) -> str:
        """As short as it can be typed: the parts that are not the defaults."""
        parts = [
            f"{part.name}={getattr(self, part.name)!r}"
            for part in fields(self)  # type: ignore[arg-type]
            if getattr(self, part.name) != part.default
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "mean", _three(f"{name}.mean", self.mean))
        object.__setattr__(self, "std", _three(f"{name}.std", self.std, above_zero=True))
        _word(f"{name}.filter", self.filter, FILTERS)
        _number(f"{name}.rescale", self.rescale)
        _word(f"{name}.dtype", self.dtype, DTYPES)
        if self.first_max_pixels is not None:
            _whole(f"{name}.first_max_pixels", self.first_max_pixels)
        for part in fields(self):  # type: ignore[arg-type]
            if part.type in ("int", "bool"):  # as they are written
                (_whole if part.type == "int" else _flag)(f"{name}.{part.name}", getattr(self, part.name))
        self._check(name)

    def core(self) -> tuple[str, dict[str, Any]]:
        """Return the family and the numbers of the core's rule. What is None is left out."""
        numbers = {
            part.name: getattr(self, part.name)
            for part in fields(self)  # type: ignore[arg-type]
            if part.name not in self._NOT_CORE and getattr(self, part.name) is not None
        }
        return self.family, numbers

    def sizes(self, height: int, width: int, pictures: int = 1) -> Grid:
        """Return what becomes of a picture of ``height`` x ``width`` pixels.

        Args:
            height, width: of the picture in pixels.
            pictures: how many the sample has; only LLaVA-OneVision's rule depends on it.

        Raises:
            ValueError: a number below 1, or a picture that the rule has no size for.
        """
        for name, value in (("height", height), ("width", width), ("pictures", pictures)):
            _whole(f"{type(self).__name__}.sizes: {name}", value)
        height, width = self.first(height, width)
        return self._grid(height, width, pictures)

    def tokens_of(self, sizes: Any, pictures: Any = 1) -> np.ndarray:
        """Return the image tokens of many pictures, (n,) int64: :meth:`sizes` for each, by NumPy.

        Args:
            sizes: (n, 2) integers, height and width of each picture in pixels.
            pictures: how many pictures the sample of each has: a number, or (n,) integers.

        Raises:
            ValueError: another shape, a number below 1, or a picture that the rule has no size for.
        """
        height, width, among = counted.sides(type(self).__name__, sizes, pictures)
        if self.first_max_pixels is not None:
            height, width = counted.first(height, width, self.first_max_pixels)
            for row in np.flatnonzero((height < 1) | (width < 1))[:1].tolist():
                self.first(*np.asarray(sizes)[row].tolist())  # which raises
        return self._tokens(height, width, among)

    def first(self, height: int, width: int) -> tuple[int, int]:
        """Return the picture's height and width after the first resize; the same where there is none.

        Raises:
            ValueError: a side would have no pixel.
        """
        most = self.first_max_pixels
        if most is None or height * width <= most:
            return height, width
        # LLaMA-Factory's BasePlugin._preprocess_image, with Pillow's bicubic filter.
        factor = math.sqrt(most / (width * height))
        across, down = int(width * factor), int(height * factor)
        if min(down, across) < 1:
            raise ValueError(
                f"{type(self).__name__}(first_max_pixels={most}): a picture of {height} x {width} pixels "
                f"(height x width) would be resized to {down} x {across}. Leave it out, or raise "
                f"first_max_pixels."
            )
        return down, across

    def tiles(self, rows: Any, columns: Any) -> Any:
        """Return the tiles of a picture of so many rows and columns, the whole picture's among them.

        Takes and gives integers, or arrays of them.
        """
        return rows * columns + 1

    def _check(self, name: str) -> None:
        """Check what the types do not say."""

    def _grid(self, height: int, width: int, pictures: int) -> Grid:
        raise NotImplementedError

    def _tokens(self, height: np.ndarray, width: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        raise NotImplementedError


# ---- Rules that cut patches -------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Qwen2VL(Rule):
    """Qwen2-VL, 2.5 and 3 (``Qwen2VLImageProcessor``): sides are rounded to whole groups of patches, between
    a least and a greatest number of pixels.

    Args:
        patch: height and width of a patch in pixels.
        merge: patches of a group, across and down; a group is a token.
        temporal: how often a patch stands in its row: the frames that a video would have.
        min_pixels, max_pixels: of the resized picture.
        filter: "bilinear", "bicubic" or "lanczos".
        mean, std: of each channel, after ``rescale``.
        rescale: what pixels are multiplied by first.
        dtype: of the values: "float32", "bfloat16" (float32, rounded to nearest even) or "uint8" (pixels).
        first_max_pixels: larger pictures are first resized to so many pixels, as LLaMA-Factory does (its
            ``image_max_pixels``, 589,824 there); None: no such step.

    Raises:
        ValueError: a value of the wrong kind or out of range.
    """

    family: ClassVar[str] = "qwen2_vl"

    patch: int = 14
    merge: int = 2
    temporal: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    filter: Filter = "bicubic"
    mean: Three = CLIP_MEAN
    std: Three = CLIP_STD
    rescale: float = 1 / 255
    dtype: Dtype = "float32"
    first_max_pixels: int | None = None

    def _check(self, name: str) -> None:
        if self.min_pixels > self.max_pixels:
            raise ValueError(
                f"{name}.min_pixels must be at most max_pixels, {self.max_pixels}. Found: {self.min_pixels}."
            )

    def _grid(self, height: int, width: int, pictures: int) -> Grid:
        self._check_ratio(height, width)
        factor = self.patch * self.merge
        down = round(height / factor) * factor
        across = round(width / factor) * factor
        if down * across > self.max_pixels:
            beta = math.sqrt((height * width) / self.max_pixels)
            down = max(factor, math.floor(height / beta / factor) * factor)
            across = max(factor, math.floor(width / beta / factor) * factor)
        elif down * across < self.min_pixels:
            beta = math.sqrt(self.min_pixels / (height * width))
            down = math.ceil(height * beta / factor) * factor
            across = math.ceil(width * beta / factor) * factor
        rows, columns = down // self.patch, across // self.patch
        return Grid(down, across, rows, columns, rows * columns // self.merge**2)

    def _check_ratio(self, height: int, width: int) -> None:
        ratio = max(height, width) / min(height, width)
        if ratio > MOST_RATIO:
            raise ValueError(
                f"Qwen2VL takes pictures whose longer side is at most {MOST_RATIO} times the shorter. Found: "
                f"{height} x {width} pixels (height x width), {ratio:.1f} times. Leave it out, or crop it."
            )

    def _tokens(self, height: np.ndarray, width: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        ratio = np.maximum(height, width) / np.minimum(height, width)
        for row in np.flatnonzero(ratio > MOST_RATIO)[:1].tolist():
            self._check_ratio(int(height[row]), int(width[row]))
        factor = self.patch * self.merge
        down, across = counted.qwen2_vl(height, width, factor, self.min_pixels, self.max_pixels)
        tokens: np.ndarray = (down // factor) * (across // factor)
        return tokens


@dataclass(frozen=True, repr=False)
class SigLIP2(Rule):
    """SigLIP 2 NaFlex (``Siglip2ImageProcessor``): the largest size with at most so many patches.

    Args:
        patch: height and width of a patch in pixels.
        max_patches: of a picture; a batch has so many rows for each.
        filter, mean, std, rescale, dtype, first_max_pixels: as in :class:`Qwen2VL`.

    Raises:
        ValueError: a value of the wrong kind or out of range.
    """

    family: ClassVar[str] = "siglip2"

    patch: int = 16
    max_patches: int = 256
    filter: Filter = "bilinear"
    mean: Three = HALF
    std: Three = HALF
    rescale: float = 1 / 255
    dtype: Dtype = "float32"
    first_max_pixels: int | None = None

    def _grid(self, height: int, width: int, pictures: int) -> Grid:
        # get_image_size_for_max_num_patches: bisection over the scale.
        least, most = 1e-5 / 10, 100.0
        while most - least >= 1e-5:
            scale = (least + most) / 2
            if self._patches(height, scale) * self._patches(width, scale) <= self.max_patches:
                least = scale
            else:
                most = scale
        rows, columns = self._patches(height, least), self._patches(width, least)
        return Grid(rows * self.patch, columns * self.patch, rows, columns, rows * columns)

    def _patches(self, side: int, scale: float) -> int:
        return max(1, math.ceil(side * scale / self.patch))

    def _tokens(self, height: np.ndarray, width: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        return counted.siglip2(height, width, self.patch, self.max_patches)


# ---- Rules that cut tiles ---------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Idefics3(Rule):
    """Idefics3 and SmolVLM (``Idefics3ImageProcessor``, ``SmolVLMImageProcessor``): resized to a longest
    edge, then to whole tiles; the tiles row by row, and last the whole picture as one tile.

    Args:
        longest_edge: of the first resize, in pixels.
        tile: height and width of a tile in pixels (``max_image_size["longest_edge"]``).
        crop_to_patches: whether to cut tiles (``do_image_splitting``); if not, the first resize is followed
            by one to a single tile.
        filter, mean, std, rescale, dtype, first_max_pixels: as in :class:`Qwen2VL`.
        tile_tokens: image tokens of a tile (``image_seq_len`` of the processor).

    Raises:
        ValueError: a value of the wrong kind or out of range.
    """

    family: ClassVar[str] = "idefics3"

    longest_edge: int = 4 * 364
    tile: int = 364
    crop_to_patches: bool = True
    filter: Filter = "lanczos"
    mean: Three = HALF
    std: Three = HALF
    rescale: float = 1 / 255
    dtype: Dtype = "float32"
    first_max_pixels: int | None = None
    tile_tokens: int = 169

    def longest(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width after the resize to the longest edge."""
        ratio = width / height  # _resize_output_size_rescale_to_max_len
        if width >= height:
            width = self.longest_edge
            height = int(width / ratio)
            height += height % 2
        else:
            height = self.longest_edge
            width = int(height * ratio)
            width += width % 2
        height, width = max(height, 1), max(width, 1)
        ratio = width / height  # _resize_output_size_scale_below_upper_bound
        if width >= height and width > LONGEST_SIDE:
            width = LONGEST_SIDE
            height = int(width / ratio)
        elif height > width and height > LONGEST_SIDE:
            height = LONGEST_SIDE
            width = int(height * ratio)
        return max(height, 1), max(width, 1)

    def _grid(self, height: int, width: int, pictures: int) -> Grid:
        tile = self.tile
        if not self.crop_to_patches:
            return Grid(tile, tile, 0, 0, self.tile_tokens)
        height, width = self.longest(height, width)
        ratio = width / height  # resize_for_vision_encoder
        if width >= height:
            width = math.ceil(width / tile) * tile
            height = math.ceil(int(width / ratio) / tile) * tile
        else:
            height = math.ceil(height / tile) * tile
            width = math.ceil(int(height * ratio) / tile) * tile
        rows, columns = height // tile, width // tile
        if rows * columns == 1:
            rows = columns = 0
        return Grid(height, width, rows, columns, (rows * columns + 1) * self.tile_tokens)

    def _tokens(self, height: np.ndarray, width: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        if not self.crop_to_patches:
            return np.full(len(height), self.tile_tokens, np.int64)
        rows, columns = counted.idefics3(height, width, self.longest_edge, self.tile, LONGEST_SIDE)
        cut = rows * columns
        return (np.where(cut > 1, cut, 0) + 1) * self.tile_tokens


@dataclass(frozen=True, repr=False)
class LlavaOneVision(Rule):
    """LLaVA-OneVision (``LlavaOnevisionImageProcessor``): a sample's only picture is fitted into the best of
    several resolutions and cut into tiles, behind the whole picture as one tile; several are padded to
    squares, a tile each.

    Args:
        tile: height and width of a tile in pixels.
        pinpoints: the resolutions (height, width), multiples of ``tile`` (``image_grid_pinpoints``).
        filter, mean, std, rescale, dtype, first_max_pixels: as in :class:`Qwen2VL`. The squares' border has
            the colour int(255 * mean).
        tile_tokens: image tokens of a tile (``num_image_tokens`` of the processor).
        anyres_max: tiles that the features of all are scaled down to (the number in ``vision_aspect_ratio``).
        select: "full", or "default", which takes one token off (``vision_feature_select_strategy``).

    Raises:
        ValueError: a value of the wrong kind or out of range.
    """

    family: ClassVar[str] = "llava_onevision"
    _NOT_CORE: ClassVar[frozenset[str]] = Rule._NOT_CORE | {"anyres_max", "select"}

    tile: int = 384
    pinpoints: tuple[tuple[int, int], ...] = ONEVISION_PINPOINTS
    filter: Filter = "bicubic"
    mean: Three = CLIP_MEAN
    std: Three = CLIP_STD
    rescale: float = 1 / 255
    dtype: Dtype = "float32"
    first_max_pixels: int | None = None
    tile_tokens: int = 729
    anyres_max: int = 9
    select: Literal["full", "default"] = "full"

    def _check(self, name: str) -> None:
        _word(f"{name}.select", self.select, ("full", "default"))
        points = self.pinpoints
        if isinstance(points, Sequence) and all(isinstance(one, Sequence) for one in points):
            object.__setattr__(self, "pinpoints", tuple(map(tuple, points)))
        wrong = [one for one in self.pinpoints if not _is_multiple(one, self.tile)]
        if wrong or not self.pinpoints:
            raise ValueError(
                f"{name}.pinpoints must be pairs (height, width) of multiples of tile, {self.tile}. Found: "
                f"{wrong[0] if wrong else self.pinpoints!r}."
            )

    def best(self, height: int, width: int) -> tuple[int, int]:
        """Return the resolution (height, width) into which a sample's only picture is fitted."""
        found, most, least_waste = self.pinpoints[0], 0, math.inf  # select_best_resolution
        for down, across in self.pinpoints:
            scale = min(across / width, down / height)
            effective = min(int(width * scale) * int(height * scale), width * height)
            waste = down * across - effective
            if effective > most or (effective == most and waste < least_waste):
                found, most, least_waste = (down, across), effective, waste
        return found

    def core(self) -> tuple[str, dict[str, Any]]:
        family, numbers = super().core()
        return family, {**numbers, "pinpoints": list(self.pinpoints)}

    def _grid(self, height: int, width: int, pictures: int) -> Grid:
        if pictures > 1:
            return Grid(self.tile, self.tile, 0, 0, self.tile_tokens + 1 - (self.select == "default"))
        down, across = self.best(height, width)
        rows, columns = down // self.tile, across // self.tile
        return Grid(down, across, rows, columns, self._features(height, width, rows, columns))

    def _features(self, height: int, width: int, rows: int, columns: int) -> int:
        """The tokens of a picture's tiles without its borders, and of line ends (_get_unpadded_features)."""
        side = int(math.sqrt(self.tile_tokens))
        down, across = side * rows, side * columns
        if width / height > across / down:
            down -= (down - int(round(height * (across / width), 7))) // 2 * 2
        else:
            across -= (across - int(round(width * (down / height), 7))) // 2 * 2
        features, lines = down * across, down
        ratio = math.sqrt(down * across / (self.anyres_max * side**2))
        if ratio > 1.1:
            features = int(down // ratio) * int(across // ratio)
            lines = int(down // ratio)
        return features + lines + self.tile_tokens - (self.select == "default")

    def _tokens(self, height: np.ndarray, width: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        down, across = counted.best_resolution(height, width, self.pinpoints)
        alone = counted.llava_features(
            height, width, down // self.tile, across // self.tile, self.tile_tokens, self.anyres_max
        )
        return np.where(pictures > 1, self.tile_tokens + 1, alone) - (self.select == "default")


def _is_multiple(pair: Any, of: int) -> bool:
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(isinstance(side, int) and side >= of and side % of == 0 for side in pair)
    )


@dataclass(frozen=True, repr=False)
class InternVL(Rule):
    """InternVL (``GotOcr2ImageProcessor``): stretched to the grid of tiles whose shape is nearest, row by
    row, and the whole picture as one tile last where there are several.

    Args:
        tile: height and width of a tile in pixels.
        crop_to_patches: whether to cut tiles; if not, the picture is stretched to one.
        min_tiles, max_tiles: of a grid (``min_patches``, ``max_patches``).
        filter, mean, std, rescale, dtype, first_max_pixels: as in :class:`Qwen2VL`.
        tile_tokens: image tokens of a tile (``image_seq_length`` of the processor).

    Raises:
        ValueError: a value of the wrong kind or out of range.
    """

    family: ClassVar[str] = "internvl"

    tile: int = 384
    crop_to_patches: bool = False
    min_tiles: int = 1
    max_tiles: int = 12
    filter: Filter = "bicubic"
    mean: Three = CLIP_MEAN
    std: Three = CLIP_STD
    rescale: float = 1 / 255
    dtype: Dtype = "float32"
    first_max_pixels: int | None = None
    tile_tokens: int = 256

    def _check(self, name: str) -> None:
        if self.min_tiles > self.max_tiles:
            raise ValueError(
                f"{name}.min_tiles must be at most max_tiles, {self.max_tiles}. Found: {self.min_tiles}."
            )

    def tiles(self, rows: Any, columns: Any) -> Any:
        cut = rows * columns
        return cut + (cut != 1)

    def _grids(self) -> list[tuple[int, int]]:
        """(columns, rows), by their number of tiles (get_all_supported_aspect_ratios)."""
        sides = range(1, self.max_tiles + 1)
        grids = [(c, r) for c in sides for r in sides if self.min_tiles <= c * r <= self.max_tiles]
        return sorted(grids, key=lambda grid: grid[0] * grid[1])

    def _grid(self, height: int, width: int, pictures: int) -> Grid:
        columns, rows = 1, 1
        if self.crop_to_patches:
            ratio, area, least = width / height, width * height, math.inf  # get_optimal_tiled_canvas
            for c, r in self._grids():
                distance = abs(ratio - c / r)
                if distance < least:
                    least, columns, rows = distance, c, r
                elif distance == least and area > 0.5 * self.tile * self.tile * c * r:
                    columns, rows = c, r
        tokens = self.tiles(rows, columns) * self.tile_tokens
        return Grid(rows * self.tile, columns * self.tile, rows, columns, tokens)

    def _tokens(self, height: np.ndarray, width: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        if not self.crop_to_patches:
            return np.full(len(height), self.tile_tokens, np.int64)
        cut = counted.internvl(height, width, self._grids(), self.tile)
        return (cut + (cut > 1)) * self.tile_tokens


# ---- Rules of one size ------------------------------------------------------------------------------


def _check_size(name: str, rule: Gemma3 | PaliGemma) -> None:
    size = rule.size
    if isinstance(size, Sequence) and not isinstance(size, str):
        object.__setattr__(rule, "size", tuple(size))
    if not isinstance(rule.size, tuple) or len(rule.size) != 2:
        raise ValueError(f"{name}.size must be a pair (height, width) in pixels. Found: {size!r}.")
    for side in rule.size:
        _whole(f"{name}.size", side)


@dataclass(frozen=True, repr=False)
class Gemma3(Rule):
    """Gemma 3 (``Gemma3ImageProcessor``): stretched to one size; with pan and scan, crops of long pictures
    follow.

    Args:
        size: (height, width) in pixels.
        pan_and_scan: whether to cut crops.
        pan_min_crop: least side of a crop in pixels (``pan_and_scan_min_crop_size``).
        pan_max_crops: of a picture (``pan_and_scan_max_num_crops``).
        pan_min_ratio: of the longer to the shorter side, from which on there are crops
            (``pan_and_scan_min_ratio_to_activate``).
        filter, mean, std, rescale, dtype, first_max_pixels: as in :class:`Qwen2VL`.
        tile_tokens: image tokens of a picture or crop (``image_seq_length`` of the processor).

    Raises:
        ValueError: a value of the wrong kind or out of range.
    """

    family: ClassVar[str] = "gemma3"

    size: tuple[int, int] = (224, 224)
    pan_and_scan: bool = False
    pan_min_crop: int = 256
    pan_max_crops: int = 4
    pan_min_ratio: float = 1.2
    filter: Filter = "bilinear"
    mean: Three = HALF
    std: Three = HALF
    rescale: float = 1 / 255
    dtype: Dtype = "float32"
    first_max_pixels: int | None = None
    tile_tokens: int = 256

    def _check(self, name: str) -> None:
        _check_size(name, self)
        # Smaller ones could leave nothing for the last crop.
        _whole(f"{name}.pan_min_crop", self.pan_min_crop, self.pan_max_crops)
        _number(f"{name}.pan_min_ratio", self.pan_min_ratio)

    def crops(self, height: int, width: int) -> tuple[int, int]:
        """Return rows and columns of crops; 0, 0 where there are none."""
        longer, shorter = max(height, width), min(height, width)
        if not self.pan_and_scan or longer / shorter < self.pan_min_ratio:
            return 0, 0
        count = min(math.floor(longer / self.pan_min_crop), math.floor(longer / shorter + 0.5))
        count = min(self.pan_max_crops, max(2, count))
        if min(math.ceil(longer / count), shorter) < self.pan_min_crop:
            return 0, 0
        return (1, count) if width >= height else (count, 1)

    def _grid(self, height: int, width: int, pictures: int) -> Grid:
        rows, columns = self.crops(height, width)
        return Grid(*self.size, rows, columns, (rows * columns + 1) * self.tile_tokens)

    def _tokens(self, height: np.ndarray, width: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        if not self.pan_and_scan:
            return np.full(len(height), self.tile_tokens, np.int64)
        count = counted.gemma3(height, width, self.pan_min_crop, self.pan_max_crops, self.pan_min_ratio)
        return (count + 1) * self.tile_tokens


@dataclass(frozen=True, repr=False)
class PaliGemma(Rule):
    """PaliGemma (``SiglipImageProcessor``): stretched to one size.

    Args:
        size: (height, width) in pixels.
        filter, mean, std, rescale, dtype, first_max_pixels: as in :class:`Qwen2VL`.
        tile_tokens: image tokens of a picture (``image_seq_length`` of the image processor).

    Raises:
        ValueError: a value of the wrong kind or out of range.
    """

    family: ClassVar[str] = "paligemma"

    size: tuple[int, int] = (224, 224)
    filter: Filter = "bicubic"
    mean: Three = HALF
    std: Three = HALF
    rescale: float = 1 / 255
    dtype: Dtype = "float32"
    first_max_pixels: int | None = None
    tile_tokens: int = 256

    def _check(self, name: str) -> None:
        _check_size(name, self)

    def tiles(self, rows: Any, columns: Any) -> Any:
        return rows * 0 + 1

    def _grid(self, height: int, width: int, pictures: int) -> Grid:
        return Grid(*self.size, 0, 0, self.tile_tokens)

    def _tokens(self, height: np.ndarray, width: np.ndarray, pictures: np.ndarray) -> np.ndarray:
        return np.full(len(height), self.tile_tokens, np.int64)


#: Rules by their families, in the core's words.
FAMILIES: Mapping[str, type[Rule]] = {
    kind.family: kind for kind in (Qwen2VL, SigLIP2, Idefics3, LlavaOneVision, InternVL, Gemma3, PaliGemma)
}
