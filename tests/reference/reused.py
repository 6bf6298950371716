"""Loaders over sets of ``field_sets.RICH`` whose batches have one size, and batches in reused memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from field_sets import rich_samples, write_field_set
from pictures import encoded
from PIL import Image as PilImage

from fastload import Pad
from fastload import transforms as T
from fastload.sample.fields import Image
from fastload.sample.schema import Schema

__all__ = ["EQUAL", "FLOATS", "NORMALIZED", "REUSED", "impossible", "places", "tensors", "write_deep_set"]

NORMALIZED = (T.ToDtype("float32", scale=True), T.Normalize([0.4] * 3, [0.25] * 3))
FLOATS = T.Compose([T.RandomResizedCrop(16), *NORMALIZED])
VIEWS = T.Views(
    large=T.RandomResizedCrop(16),
    small=T.Compose([T.CenterCrop(8), *NORMALIZED[1:], T.ToDtype(None, masks="int64")]),
)
EQUAL: dict[str, Any] = {
    "fields": ["image", "label", "mask", "second", "weight", "pose"],
    "transform": FLOATS,
}
#: Loaders whose batches have one size; what the last but one has of text stays on the host.
REUSED: dict[str, dict[str, Any]] = {
    "equal": EQUAL,
    "padded to a size": {
        "fields": ["mask", "image", "label"],
        "collate": Pad(24, 20),
        "transform": T.Compose([T.Resize(14), *NORMALIZED]),
    },
    "views": {**EQUAL, "transform": VIEWS},
    "text": {**EQUAL, "fields": ["caption", "image", "kept", "notes", "weight"]},
    "image and label": {"fields": ["image", "label"], "transform": FLOATS},
}


def write_deep_set(folder: Path) -> Path:
    """A set of eight samples, with a picture of 8 bits and one of 16 bits."""
    pixels = [np.arange(480, dtype=np.uint16).reshape(20, 24) * 99 + number for number in range(8)]
    samples = [
        {"image": one["image"], "deep": encoded(PilImage.fromarray(deep), "PNG")}
        for one, deep in zip(rich_samples(8), pixels, strict=True)
    ]
    return write_field_set(folder, Schema.of({"image": Image(), "deep": Image(1, 16)}), samples)


def tensors(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The values that are tensors."""
    return {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}


def places(batch: dict[str, Any]) -> tuple[int, ...]:
    """Where the tensors of a batch begin."""
    return tuple(value.data_ptr() for value in tensors(batch).values())


def impossible(value: torch.Tensor) -> bool:
    """Whether a tensor has only what no batch of these sets has, as ``Device(memory="poison")`` leaves it."""
    if value.is_floating_point():
        return bool(value.isnan().all())
    if value.dtype is torch.bool:
        return not value.any()
    limits = torch.iinfo(value.dtype)
    if limits.min == 0:
        return bool((value.double() == limits.max).all())
    return bool((value < limits.min // 3).all())
