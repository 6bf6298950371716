"""torchvision v2's steps for detection, one after the other: pixels by Pillow and NumPy, boxes in float64.

Each takes what the one before it left, as torchvision's do; what is drawn comes from a :class:`Draws`.
Sources: torchvision 0.28, transforms/v2/_geometry.py (make_params of RandomZoomOut, RandomIoUCrop,
ScaleJitter, RandomShortestSize, RandomResize and RandomCrop), functional/_geometry.py (crop and pad clamp
boxes to their new canvas), and references/detection/transforms.py (FixedSizeCrop).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from transform_reference import (
    CROP,
    FLIP,
    Draws,
    below,
    center_window,
    flipped,
    random_crop,
    resized_shorter,
    uniform,
)

from fastload import transforms as T

__all__ = [
    "IOU",
    "RESIZE_TO",
    "ZOOM",
    "Scene",
    "after",
    "between",
    "drawn_crop",
    "fill_number",
    "letterboxed",
    "times",
    "zoom_padding",
]

ZOOM, IOU, RESIZE_TO, TURN = 10, 11, 12, 13  # DrawOp in csrc/core/base/philox.h
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
Boxes = npt.NDArray[np.float64]  # (n, 4): left, top, right, bottom
Sides = tuple[int, int, int, int]


@dataclass
class Scene:
    """A picture (height, width, 3), its mask (height, width) of ids, the boxes of its objects, and which of
    these are still there."""

    pixels: npt.NDArray[np.uint8]
    mask: npt.NDArray[Any]
    boxes: Boxes
    stays: npt.NDArray[np.bool_]
    mirrored: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def clamped(self) -> None:
        self.boxes = np.clip(self.boxes, 0, np.array([*self.size, *self.size], np.float64))

    def crop(self, x: int, y: int, width: int, height: int) -> None:
        self.pixels, self.mask = (one[y : y + height, x : x + width] for one in (self.pixels, self.mask))
        self.boxes = self.boxes - [x, y, x, y]
        self.clamped()

    def pad(self, sides: Sides, fill: tuple[int, int, int], ignore: int) -> None:
        left, top, right, bottom = sides
        width, height = self.size
        pixels = np.empty((height + top + bottom, width + left + right, 3), np.uint8)
        pixels[:] = fill
        mask = np.full(pixels.shape[:2], ignore, self.mask.dtype)
        pixels[top : top + height, left : left + width] = self.pixels
        mask[top : top + height, left : left + width] = self.mask
        self.pixels, self.mask = pixels, mask
        self.boxes = self.boxes + np.array([left, top, left, top])
        self.clamped()

    def resize(self, width: int, height: int, filter: str) -> None:
        x, y = width / self.size[0], height / self.size[1]
        self.pixels = np.asarray(
            Image.fromarray(np.ascontiguousarray(self.pixels)).resize((width, height), FILTERS[filter])
        )
        # The core mirrors last: where a middle falls between two pixels, the picture's left one is taken.
        mask = Image.fromarray(np.ascontiguousarray(self.mask[:, ::-1] if self.mirrored else self.mask))
        found = np.asarray(mask.resize((width, height), Image.Resampling.NEAREST))
        self.mask = found[:, ::-1] if self.mirrored else found
        self.boxes = self.boxes * [x, y, x, y]

    def turn(self, quarters: int) -> None:
        """Counter-clockwise, as numpy.rot90 does."""
        width, height = self.size
        self.pixels, self.mask = np.rot90(self.pixels, quarters), np.rot90(self.mask, quarters)
        left, top, right, bottom = self.boxes.T
        self.boxes = np.stack(
            {
                0: (left, top, right, bottom),
                1: (top, width - right, bottom, width - left),
                2: (width - right, height - bottom, width - left, height - top),
                3: (height - bottom, left, height - top, right),
            }[quarters],
            1,
        )

    def mirror(self) -> None:
        self.mirrored = not self.mirrored
        self.pixels, self.mask = self.pixels[:, ::-1], self.mask[:, ::-1]
        width = self.size[0]
        left, top, right, bottom = self.boxes.T
        self.boxes = np.stack([width - right, top, width - left, bottom], 1)

    def upside_down(self) -> None:
        self.mirror()
        self.turn(2)


def between(words: Any, low: float, high: float) -> np.float32:
    """A factor that torchvision draws by torch.rand(), in float32 as all that it computes with it."""
    return np.float32(low) + np.float32(uniform(words[0], words[1])) * np.float32(high - low)


def times(side: int, factor: np.float32) -> int:
    return int(np.float32(side) * factor)


def zoom_padding(width: int, height: int, spec: T.RandomZoomOut, draws: Draws) -> Sides | None:
    """Left, top, right, bottom; None: nothing happens."""
    low, high = spec.side_range
    a, b = draws.words(ZOOM, 0), draws.words(ZOOM, 1)
    if uniform(a[0], a[1]) >= spec.p:
        return None
    r = between(a[2:], low, high)
    canvas_width, canvas_height = times(width, r), times(height, r)
    left = times(canvas_width - width, between(b[:2], 0, 1))
    top = times(canvas_height - height, between(b[2:], 0, 1))
    return left, top, canvas_width - (left + width), canvas_height - (top + height)


def overlaps(boxes: Boxes, crop: tuple[int, int, int, int]) -> npt.NDArray[np.float64]:
    """torchvision's box_iou with one crop (left, top, right, bottom)."""
    area = (crop[2] - crop[0]) * (crop[3] - crop[1])
    own = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    width = np.clip(np.minimum(boxes[:, 2], crop[2]) - np.maximum(boxes[:, 0], crop[0]), 0, None)
    height = np.clip(np.minimum(boxes[:, 3], crop[3]) - np.maximum(boxes[:, 1], crop[1]), 0, None)
    both = width * height
    return both / (own + area - both)


def drawn_crop(
    width: int, height: int, boxes: Boxes, spec: T.RandomIoUCrop, draws: Draws
) -> tuple[tuple[int, int, int, int], npt.NDArray[np.bool_]] | None:
    """RandomIoUCrop's part (x, y, width, height) and whose centres are in it; None: the picture as it is."""
    if len(boxes) == 0:
        return None
    options = list(spec.sampler_options or ())
    for round in range(min(800, 65_536 // (1 + 2 * spec.trials))):
        first = round * (1 + 2 * spec.trials)
        words = draws.words(IOU, first)
        option = options[below(words[0], words[1], len(options))]
        if option >= 1.0:
            return None
        for trial in range(spec.trials):
            a, b = (draws.words(IOU, first + 1 + 2 * trial + i) for i in range(2))
            scales = [between(a[i : i + 2], spec.min_scale, spec.max_scale) for i in (0, 2)]
            new_w, new_h = times(width, scales[0]), times(height, scales[1])
            if new_w == 0 or new_h == 0:  # torchvision divides by them
                continue
            if not spec.min_aspect_ratio <= new_w / new_h <= spec.max_aspect_ratio:
                continue
            left = times(width - new_w, between(b[:2], 0, 1))
            top = times(height - new_h, between(b[2:], 0, 1))
            right, bottom = left + new_w, top + new_h
            x, y = 0.5 * (boxes[:, 0] + boxes[:, 2]), 0.5 * (boxes[:, 1] + boxes[:, 3])
            within = (left < x) & (x < right) & (top < y) & (y < bottom)
            if not within.any():
                continue
            if overlaps(boxes[within], (left, top, right, bottom)).max() < option:
                continue
            return (left, top, new_w, new_h), within
    return None


def jittered(width: int, height: int, spec: T.ScaleJitter, draws: Draws) -> tuple[int, int]:
    low, high = spec.scale_range
    a = draws.words(RESIZE_TO, 0)
    scale = between(a[:2], low, high)
    r = np.float32(min(spec.target_size[1] / height, spec.target_size[0] / width)) * scale
    return max(times(width, r), 1), max(times(height, r), 1)


def shortest(width: int, height: int, spec: T.RandomShortestSize, draws: Draws) -> tuple[int, int]:
    a = draws.words(RESIZE_TO, 0)
    r = spec.min_size[below(a[0], a[1], len(spec.min_size))] / min(height, width)
    if spec.max_size is not None:
        r = min(r, spec.max_size / max(height, width))
    return max(int(width * r), 1), max(int(height * r), 1)


def patched(width: int, height: int, spec: T.ResizeToPatches) -> tuple[int, int]:
    """timm's get_image_size_for_seq: (width, height)."""

    def target(ratio: float) -> tuple[int, int]:
        w, h = (spec.patch * math.ceil(side * ratio / spec.patch) for side in (width, height))
        return max(w, spec.patch), max(h, spec.patch)

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        middle = (low + high) / 2
        w, h = target(middle)
        fits = (w // spec.patch) * (h // spec.patch) <= spec.most
        low, high = (middle, high) if fits else (low, middle)
    return target(low if spec.max_ratio is None else min(low, spec.max_ratio))


def letterboxed(width: int, height: int, spec: T.Letterbox) -> tuple[tuple[int, int], Sides]:
    """Ultralytics' rules: the size that the picture is resized to, and what is added on each side.

    Its data set's (data/base.py, load_image) resizes as it reads, by the longer side, and its LetterBox
    (data/augment.py) has only to pad what comes."""
    rows, columns = spec.size
    if spec.rule == "dataset":
        r = rows / max(width, height)
        width, height = min(math.ceil(width * r), rows), min(math.ceil(height * r), rows)
    r = min(rows / height, columns / width)
    if not spec.scaleup:
        r = min(r, 1.0)
    resized = max(round(width * r), 1), max(round(height * r), 1)
    across, down = float(columns - resized[0]), float(rows - resized[1])
    if not spec.center:
        return resized, (0, 0, round(across + 0.1), round(down + 0.1))
    across, down = across / 2, down / 2
    return resized, (round(across - 0.1), round(down - 0.1), round(across + 0.1), round(down + 0.1))


def bucket_cut(
    width: int, height: int, spec: T.BucketCrop, draws: Draws
) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """The size that the picture is resized to, and what of that is shown."""
    apart = [abs(math.log(width / height) - math.log(w / h)) for h, w in spec.sizes]
    rows, columns = spec.sizes[apart.index(min(apart))]
    if columns / width >= rows / height:
        resized = columns, max(round(height * columns / width), rows)
    else:
        resized = max(round(width * rows / height), columns), rows
    free_x, free_y = resized[0] - columns, resized[1] - rows
    words = draws.words(CROP, 22)
    y, x = below(words[0], words[1], free_y + 1), below(words[2], words[3], free_x + 1)
    if not spec.anywhere:
        x, y = round(free_x / 2), round(free_y / 2)
    return resized, (x, y, columns, rows)


def fixed_crop(
    width: int, height: int, spec: T.FixedSizeCrop, draws: Draws
) -> tuple[int, int, int, int] | None:
    new_height, new_width = min(height, spec.size[0]), min(width, spec.size[1])
    if (new_height, new_width) == (height, width):
        return None
    a = draws.words(CROP, 21)
    r = uniform(a[0], a[1])
    return int((width - new_width) * r), int((height - new_height) * r), new_width, new_height


def fill_number(spec: Any) -> tuple[tuple[int, int, int], int | None]:
    """Of pictures and of masks."""
    fill = spec.fill if isinstance(spec.fill, dict) else {"image": spec.fill}
    image = fill.get("image", 0)
    colour = tuple(image) if isinstance(image, (tuple, list)) else (image,) * 3
    return colour, fill.get("mask")


def after(scene: Scene, chain: list[Any], draws: Draws, ignore: int, filter: str = "bilinear") -> Scene:
    """What a chain of specs makes of a scene, in place."""
    for step in chain:
        width, height = scene.size
        if isinstance(step, T.RandomHorizontalFlip):
            if flipped(step.p, draws):
                scene.mirror()
        elif isinstance(step, T.RandomVerticalFlip):  # as a step of the geometry, before a turn
            words = draws.words(FLIP, 1)
            if uniform(words[0], words[1]) < step.p:
                scene.upside_down()
        elif isinstance(step, T.RandomQuarterTurn):
            words = draws.words(TURN, 0)
            scene.turn(step.turns[below(words[0], words[1], len(step.turns))])
        elif isinstance(step, T.RandomIoUCrop):
            found = drawn_crop(width, height, scene.boxes, step, draws)
            if found is not None:
                scene.crop(*found[0])
                scene.stays &= found[1]
        elif isinstance(step, T.RandomResizedCrop):
            scene.crop(*random_crop(width, height, step.scale, step.ratio, draws))
            scene.resize(step.size[1], step.size[0], filter)
        elif isinstance(step, T.BucketCrop):
            resized, part = bucket_cut(width, height, step, draws)
            scene.resize(*resized, filter)
            scene.crop(*part)
        elif isinstance(step, T.Letterbox):
            resized, sides = letterboxed(width, height, step)
            scene.resize(*resized, filter)
            colour, mask = fill_number(step)
            if any(sides):  # without fill nothing is clipped
                scene.pad(sides, colour, ignore if mask is None else mask)
        elif isinstance(step, (T.RandomZoomOut, T.Pad, T.RandomCrop, T.FixedSizeCrop, T.CenterCrop)):
            _with_fill(scene, step, draws, ignore)
        else:
            scene.resize(*_size(width, height, step, draws), filter)
    return scene


def _size(width: int, height: int, step: Any, draws: Draws) -> tuple[int, int]:
    if isinstance(step, T.ScaleJitter):
        return jittered(width, height, step, draws)
    if isinstance(step, T.RandomShortestSize):
        return shortest(width, height, step, draws)
    if isinstance(step, T.RandomResize):
        a = draws.words(RESIZE_TO, 0)
        size = step.min_size + below(a[0], a[1], step.max_size - step.min_size)
        return resized_shorter(width, height, size, None)
    if isinstance(step, T.ResizeToPatches):
        return patched(width, height, step)
    assert isinstance(step, T.Resize)
    if isinstance(step.size, int):
        return resized_shorter(width, height, step.size, step.max_size)
    return step.size[1], step.size[0]


def _with_fill(scene: Scene, step: Any, draws: Draws, ignore: int) -> None:
    width, height = scene.size
    if isinstance(step, T.CenterCrop):
        x, y, w, h = center_window(width, height, step.size)
        missing = max(-x, 0), max(-y, 0), max(x + w - width, 0), max(y + h - height, 0)
        scene.pad(missing, (0, 0, 0), ignore)
        return scene.crop(max(x, 0), max(y, 0), w, h)
    colour, mask = fill_number(step)
    mask = ignore if mask is None else mask
    if isinstance(step, T.RandomZoomOut):
        sides = zoom_padding(width, height, step, draws)
        return None if sides is None else scene.pad(sides, colour, mask)
    if isinstance(step, T.Pad):
        return scene.pad(step.padding, colour, mask)
    if isinstance(step, T.FixedSizeCrop):
        crop = fixed_crop(width, height, step, draws)
        if crop is not None:
            scene.crop(*crop)
        right, bottom = step.size[1] - scene.size[0], step.size[0] - scene.size[1]
        return scene.pad((0, 0, right, bottom), colour, mask) if right or bottom else None
    if step.padding is not None:
        scene.pad(step.padding, colour, mask)
    rows, columns = step.size
    if step.pad_if_needed:
        across, down = max(columns - scene.size[0], 0), max(rows - scene.size[1], 0)
        scene.pad((across, down, across, down), colour, mask)
    words = draws.words(CROP, 20)
    y = below(words[0], words[1], scene.size[1] - rows + 1)
    return scene.crop(below(words[2], words[3], scene.size[0] - columns + 1), y, columns, rows)
