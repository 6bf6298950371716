"""What a view with operations on the whole picture shows, slowly and obviously, by Pillow."""

from __future__ import annotations

import io
from typing import Any

import motion_reference
import numpy as np
import pillow_points
from PIL import Image
from pixel_reference import Step, drawn_around
from policy_reference import RUN
from transform_reference import Draws

from fastload._native import _C
from fastload.transforms.plan import Plan

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def after(picture: Image.Image, steps: list[Step], draws: Draws) -> Image.Image:
    """The picture after these operations."""
    for name, numbers in steps:
        if name == "perspective":
            picture = motion_reference.perspective(picture, numbers, draws)
        elif name in motion_reference.MOVING:
            picture = motion_reference.MOVING[name][0](picture, numbers)
        elif name == "grayscale":
            picture = picture.convert("L").convert("RGB")
        elif name in pillow_points.BY_NUMBERS:
            picture = pillow_points.BY_NUMBERS[name](*numbers)(picture)
        else:
            picture = RUN[name](picture, *numbers)
    return picture


def shown(blob: bytes, plan: Plan, draws: Draws, side: int | None = None) -> Any:
    """(height, width, 3) uint8: the file decoded whole, scaled to a longest side if it is given, operations,
    crop and resize, operations."""
    image = Image.open(io.BytesIO(blob)).convert("RGB")
    if side is not None and max(image.size) > side:
        scale = side / max(image.size)
        image = image.resize(tuple(max(1, round(s * scale)) for s in image.size), FILTERS["bilinear"])  # type: ignore[arg-type]
    source, cut = drawn_around(plan, draws)
    image = after(image, source, draws)
    key = (*image.size, draws.seed, draws.epoch, draws.sample, draws.draw, draws.view)
    (x, y, width, height), resized, (left, top, w, h), flip = _C.draw_view(plan.geometry_spec(), *key)
    image = image.crop((x, y, x + width, y + height)).resize(resized, FILTERS[plan.filter])
    image = image.crop((left, top, left + w, top + h))
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(after(image, cut, draws))
