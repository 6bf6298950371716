"""What becomes of every uint8 value in every channel, by the core's Store: device code is judged by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms.plan import Plan

__all__ = ["IMAGENET", "ODD", "all_values", "by_the_core", "normalized_to"]

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
ODD = ((0.0, -1.0, 2.0), (-0.5, 1e-3, 40.0))


def normalized_to(dtype: str, numbers: Any = IMAGENET) -> T.Compose:
    """Scale, normalise, and round to ``dtype``."""
    return T.Compose([T.ToDtype("float32", scale=True), T.Normalize(*numbers), T.ToDtype(dtype)])


def all_values() -> torch.Tensor:
    """(2, 3, 16, 16) uint8, channels_last: every value in every channel."""
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    pixels = np.stack([ramp, ramp[::-1], 255 - ramp], axis=2)
    return torch.from_numpy(np.stack([pixels, pixels[:, ::-1]]).copy()).permute(0, 3, 1, 2)


def by_the_core(pixels: torch.Tensor, plan: Plan) -> torch.Tensor:
    """The same through Store."""
    stored = [_C.store(image.permute(1, 2, 0).contiguous().numpy(), plan.store_spec()) for image in pixels]
    dtype = getattr(torch, plan.dtype)
    flat = torch.stack([torch.from_numpy(raw).view(-1).view(dtype) for raw in stored])
    return flat.view(len(pixels), *pixels.shape[2:], 3).permute(0, 3, 1, 2)
