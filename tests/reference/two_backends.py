"""The same loader with each back end, and how far apart their pixels may be."""

from __future__ import annotations

from typing import Any

import torch
from epochs import Batch

from fastload import DataLoader
from fastload import transforms as T

__all__ = ["TRAIN", "apart", "same_but_for_rounding", "with_dali"]

TRAIN = T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip()])
MEAN_APART = 0.6  # of 255
EDGE = 4  # pixels from the border: what a resize of at most 4:1 computes from the crop's edge
EDGE_APART = 64  # DALI repeats the crop's edge where Pillow, and so fastload, leaves out what is not there
WITHIN_APART = 2  # elsewhere: Pillow rounds between the two passes of the resize


def with_dali(dataset: Any, **options: Any) -> DataLoader:
    """A loader with backend="dali"."""
    settings = {"batch_size": 8, "num_workers": 2, "transform": TRAIN, "backend": "dali", "seed": 0}
    return DataLoader(dataset, **{**settings, **options})


def apart(found: torch.Tensor, wanted: torch.Tensor) -> tuple[float, float, float]:
    """(greatest difference away from the border, anywhere, mean) of uint8 images or such in float."""
    difference = (found.double() - wanted.double()).abs()
    inner = difference[..., EDGE:-EDGE, EDGE:-EDGE]
    return float(inner.max()), float(difference.max()), float(difference.mean())


def same_but_for_rounding(found: list[Batch], wanted: list[Batch], unit: float = 1.0) -> bool:
    """Equal labels, shapes, dtypes and strides; pixels within the bounds, in units of ``unit``."""
    assert len(found) == len(wanted)
    for (images, labels), (pixels, same) in zip(found, wanted, strict=True):
        assert torch.equal(labels, same)
        assert (images.shape, images.dtype, images.stride()) == (pixels.shape, pixels.dtype, pixels.stride())
        inner, anywhere, mean = apart(images, pixels)
        assert inner <= WITHIN_APART * unit, (inner, anywhere, mean)
        assert anywhere <= EDGE_APART * unit, (inner, anywhere, mean)
        assert mean <= MEAN_APART * unit, (inner, anywhere, mean)
    return True
