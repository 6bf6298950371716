"""Ways to collate a set of objects, and whether two batches of them are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from fastload import Detection, Fields, Pad, Ragged
from fastload import transforms as T

__all__ = ["COLLATED", "parts", "same"]

ONE_SIZE = T.Compose([T.Resize((24, 32)), T.ToDtype("float32", scale=True)])
COLLATED: dict[str, dict[str, Any]] = {
    "list": {"collate": "list", "fields": Fields(masks="dense")},
    "list of floats": {"collate": "list", "transform": T.ToDtype("float32", scale=True)},
    "detr": {"collate": "detr", "fields": Fields(masks="dense")},
    "detr of one size": {"collate": Pad(64, 96, then=Detection("detr"))},
    "yolo": {"collate": "yolo", "transform": T.Resize((24, 32)), "fields": Fields(masks="dense")},
    "yolo of floats": {"collate": "yolo", "transform": ONE_SIZE},
    "stack": {"collate": "stack", "transform": ONE_SIZE},
    "pad": {"collate": "pad", "fields": Fields(masks="dense")},
    "callable": {"collate": lambda batch: batch["boxes"].to_list(), "transform": ONE_SIZE},
    "Python": {"collate": "list", "transform": T.Compose([T.Resize((9, 8)), lambda sample: dict(sample)])},
}


def parts(value: Any) -> Iterator[Any]:
    """The tensors of a batch, and everything else in it, in order."""
    if isinstance(value, Ragged):
        yield from (value.values, value.offsets)
    elif isinstance(value, dict):
        yield list(value)
        for one in value.values():
            yield from parts(one)
    elif isinstance(value, (list, tuple)):
        yield len(value)
        for one in value:
            yield from parts(one)
    else:
        yield value


def same(found: Any, wanted: Any) -> bool:
    return all(equal(one, other) for one, other in zip(parts(found), parts(wanted), strict=True))


def equal(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, torch.Tensor):
        return bool(np.array_equal(found, wanted))
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    return not wanted.numel() or float((found.double() - wanted.double()).abs().max()) <= 2.0**-21
