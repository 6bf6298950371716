"""Scenes whose steps are torchvision v2's own functions, for tests in its environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import torch
from geometry_v2_reference import Scene
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

__all__ = ["Functional", "Objects"]


class Functional(Scene):
    """A scene whose steps are torchvision's functions."""

    def done(self, function: Any, *arguments: Any, **options: Any) -> None:
        width, height = self.size
        boxes = tv_tensors.BoundingBoxes(
            torch.from_numpy(self.boxes.copy()).reshape(-1, 4), format="XYXY", canvas_size=(height, width)
        )
        fill = options.pop("fill", None)
        own = {} if fill is None else {"fill": list(fill[0])}
        image = function(Image.fromarray(np.ascontiguousarray(self.pixels)), *arguments, **options, **own)
        mask = tv_tensors.Mask(torch.from_numpy(np.ascontiguousarray(self.mask)))
        nearest = {"interpolation": InterpolationMode.NEAREST_EXACT} if "interpolation" in options else {}
        own = {} if fill is None else {"fill": fill[1]}
        self.mask = function(mask, *arguments, **{**options, **own, **nearest}).numpy()
        moved = function(boxes, *arguments, **options)
        assert moved.canvas_size == (image.height, image.width)
        self.pixels, self.boxes = np.asarray(image), moved.as_subclass(torch.Tensor).numpy()

    def crop(self, x: int, y: int, width: int, height: int) -> None:
        self.done(F.crop, y, x, height, width)

    def pad(self, sides: Any, fill: Any, ignore: int) -> None:
        self.done(F.pad, list(sides), fill=(fill, ignore))

    def resize(self, width: int, height: int, filter: str) -> None:
        self.done(F.resize, [height, width], interpolation=InterpolationMode(filter))

    def mirror(self) -> None:
        self.mirrored = not self.mirrored
        self.done(F.horizontal_flip)


@dataclass
class Objects(Functional):
    """A scene with all that a sample may have: boxes of any format, points of the objects, a mask of each.

    Masks are Pillow's pictures, moved by the nearest pixel. The middle of torchvision's first pixel is at 0
    for points that it flips, and at 0.5 for those that it moves otherwise; ours is at 0.5 always.
    """

    form: str = "XYXY"
    rows: Any = None  # boxes as the format has them; ``boxes`` are always the corners
    points: Any = None  # (n, K, 2) float64
    shapes: Any = None  # (n, height, width) uint8
    # 0: there a middle falls between two pixels of a mirrored mask; its left one is taken, which is another.
    sure: Any = field(default=None)

    def __post_init__(self) -> None:
        self.sure = np.ones(self.mask.shape, np.uint8)
        corners = torch.from_numpy(self.boxes.copy()).reshape(-1, 4)
        self.rows = F.convert_bounding_box_format(corners, "XYXY", self.form)

    def done(self, function: Any, *arguments: Any, **options: Any) -> None:
        height, width = self.mask.shape
        at = 0.5 if function in (F.horizontal_flip, F.vertical_flip) else 0.0
        fill = options.pop("fill", ((0, 0, 0), 0))
        filled = "fill" if function in (F.pad, F.affine, F.rotate, F.perspective) else None
        boxes = tv_tensors.BoundingBoxes(self.rows, format=self.form, canvas_size=(height, width))
        points = tv_tensors.KeyPoints(torch.from_numpy(self.points - at), canvas_size=(height, width))
        still = (
            {**options, "interpolation": InterpolationMode.NEAREST} if "interpolation" in options else options
        )

        def moved(pixels: Any, colour: Any, how: Any) -> Any:
            own = {filled: colour} if filled else {}
            return np.asarray(
                function(Image.fromarray(np.ascontiguousarray(pixels)), *arguments, **how, **own)
            )

        self.pixels = moved(self.pixels, list(fill[0]), options)
        self.mask, self.sure = moved(self.mask, fill[1], still), moved(self.sure, 1, still)
        shapes = [moved(one, 0, still) for one in self.shapes]
        self.shapes = np.stack(shapes) if shapes else np.zeros((0, *self.mask.shape), np.uint8)
        self.rows = function(boxes, *arguments, **still).as_subclass(torch.Tensor)
        self.points = function(points, *arguments, **still).as_subclass(torch.Tensor).numpy() + at
        self.boxes = F.convert_bounding_box_format(self.rows, self.form, "XYXY").numpy()

    def resize(self, width: int, height: int, filter: str) -> None:
        columns = self.size[0]
        super().resize(width, height, filter)
        if self.mirrored:
            self.sure = self.sure & ((2 * np.arange(width) + 1) * columns % (2 * width) != 0)

    def upside_down(self) -> None:
        self.mirrored = not self.mirrored
        self.done(F.vertical_flip)

    def kept(self, stays: Any) -> None:
        """Only those objects."""
        self.rows, self.points, self.shapes = (
            self.rows[stays],
            self.points[stays.numpy()],
            self.shapes[stays.numpy()],
        )
