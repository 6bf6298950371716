"""Makes torchvision importable beside a torch that its compiled operators do not fit.

torchvision's wheels are built for one build of torch. Where the library does not load, ``import torchvision``
fails at the first operator that it describes further; so these are declared here, and the two that detection
models call in training (nms and roi_align) are done in Python. Import this before it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

_DECLARED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width,"
    " int sampling_ratio, bool aligned) -> Tensor",
)


def _loads() -> bool:
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return True  # nothing to help
    for library in Path(found.origin).parent.glob("_C*.so"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(library))
            return True
    return False


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Which boxes stay, best first: none that a better one covers too much."""
    corners, order = boxes.numpy(), scores.argsort(descending=True).numpy()
    areas = (corners[:, 2:] - corners[:, :2]).prod(1)
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        sides = np.minimum(corners[best, 2:], corners[order, 2:])
        sides = (sides - np.maximum(corners[best, :2], corners[order, :2])).clip(0)
        shared = sides.prod(1)
        order = order[shared <= iou_threshold * (areas[best] + areas[order] - shared)]
    return torch.tensor(kept, dtype=torch.int64)


def _roi_align(
    features: torch.Tensor,
    rois: torch.Tensor,
    scale: float,
    high: int,
    wide: int,
    samples: int,
    aligned: bool,
) -> torch.Tensor:
    """The mean of samples x samples bilinear points in each of high x wide parts of each box."""
    samples = samples if samples > 0 else 2
    corners = rois[:, 1:] * scale - (0.5 if aligned else 0.0)
    sides = corners[:, 2:] - corners[:, :2]
    sides = sides if aligned else sides.clamp(min=1)
    steps = [(torch.arange(n * samples) + 0.5) / (n * samples) for n in (wide, high)]
    x = (corners[:, :1] + sides[:, :1] * steps[0])[:, None, :].expand(-1, high * samples, -1)
    y = (corners[:, 1:2] + sides[:, 1:] * steps[1])[:, :, None].expand(-1, -1, wide * samples)
    most = torch.tensor([features.shape[3] - 1, features.shape[2] - 1]).clamp(min=1)
    grid = torch.stack([x, y], dim=-1) / most * 2 - 1
    pooled = features.new_zeros(len(rois), features.shape[1], high, wide)
    for number in range(len(features)):
        own = (rois[:, 0] == number).nonzero()[:, 0]
        if len(own):
            rows = grid[own].reshape(1, -1, wide * samples, 2)
            found = functional.grid_sample(
                features[number : number + 1], rows, padding_mode="border", align_corners=True
            )
            points = found[0].reshape(features.shape[1], len(own), high, samples, wide, samples)
            pooled = pooled.index_put((own,), points.mean((3, 5)).transpose(0, 1))
    return pooled


if not _loads():
    _library = torch.library.Library("torchvision", "DEF")
    for schema in _DECLARED:
        _library.define(schema)
    _library.impl("nms", _nms, "CPU")
    _library.impl("roi_align", _roi_align, "CompositeImplicitAutograd")
    import torchvision.ops  # noqa: F401

    for _module in ("torchvision.extension", "torchvision.ops.roi_align"):
        sys.modules[_module]._has_ops = lambda: True  # type: ignore[attr-defined]
