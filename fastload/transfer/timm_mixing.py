"""timm's ``Mixup``: drawn for the batch, each pair or each sample; partners are at its other end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.transfer.draws import BatchKeyed
from fastload.transforms.batch import TimmMixup

__all__ = ["mixed_as_timm", "pasted"]

Integer = Callable[[int, int], int]  # uniform in [low, high)
Box = tuple[Any, slice, slice]  # an index of a picture or a batch: ..., rows, columns


def mixed_as_timm(
    spec: TimmMixup, images: torch.Tensor, soft: torch.Tensor, keyed: BatchKeyed
) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch as timm mixes it, before its labels are smoothed.

    The modes ``pair`` and ``elem`` draw what timm draws, in its order, from NumPy's legacy generator, whose
    numbers are the same in every version; its seed is the batch's.

    Args:
        spec: of which mode.
        images: (n, channels, h, w).
        soft: (n, classes) float32.
        keyed: the batch's random numbers.

    Raises:
        ValueError: pictures of integers are to be blended, or are too small for ``cutmix_minmax``.
    """
    if spec.mode == "batch":
        return _whole(spec, images, soft, keyed)
    seed = keyed.seed()
    random = np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32])
    count = len(images) if spec.mode == "elem" else len(images) // 2
    lam, cuts = _drawn(spec, count, random)
    found = images.clone()
    for first in np.flatnonzero(lam != 1.0):
        own, other = int(first), len(images) - 1 - int(first)
        box = None
        if cuts[own]:
            box, lam[own] = _box(spec, images.shape[2:], float(lam[own]), random.randint)
        for to, partner in [(own, other)] + [(other, own)] * (spec.mode == "pair"):
            if box is not None:
                found[to][box] = images[partner][box]
            else:
                found[to] = _blended(images[to], images[partner], float(lam[own]))
    if spec.mode == "pair":  # the middle one of an odd batch has no partner
        lam = np.concatenate([lam, np.ones(len(images) % 2, np.float32), lam[::-1]])
    shares = torch.from_numpy(lam).to(soft.device).unsqueeze(1)
    return found, torch.lerp(soft.flip(0), soft, shares)


def _whole(
    spec: TimmMixup, images: torch.Tensor, soft: torch.Tensor, keyed: BatchKeyed
) -> tuple[torch.Tensor, torch.Tensor]:
    """timm's ``_mix_batch``."""
    if keyed.uniform() >= spec.prob:
        return images, soft
    cuts = spec.cutmix_alpha > 0.0
    if cuts and spec.mixup_alpha > 0.0:
        cuts = keyed.uniform() < spec.switch_prob
    lam = keyed.beta(spec.cutmix_alpha if cuts else spec.mixup_alpha)
    if cuts:
        box, lam = _box(spec, images.shape[2:], lam, lambda low, high: low + keyed.below(high - low))
        images = pasted(images, images.flip(0), box)
    else:
        images = _blended(images, images.flip(0), lam)
    return images, torch.lerp(soft.flip(0), soft, lam)


def _drawn(
    spec: TimmMixup, count: int, random: np.random.RandomState
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """timm's ``_params_per_elem``: each one's share, and whether it is cut."""
    cuts, alphas = np.zeros(count, bool), (spec.cutmix_alpha, spec.mixup_alpha)
    if min(alphas) > 0.0:
        cuts = random.rand(count) < spec.switch_prob
        lam = np.where(cuts, *(random.beta(alpha, alpha, size=count) for alpha in alphas))
    else:
        cuts[:] = spec.cutmix_alpha > 0.0
        lam = random.beta(max(alphas), max(alphas), size=count)
    return np.where(random.rand(count) < spec.prob, lam.astype(np.float32), np.float32(1.0)), cuts


def _box(spec: TimmMixup, size: Any, lam: float, integer: Integer) -> tuple[Box, float]:
    """Rows and columns of the rectangle, and the share that is left; timm's ``cutmix_bbox_and_lam``."""
    height, width = size
    if spec.cutmix_minmax is not None:
        rows, columns = (_sides(spec.cutmix_minmax, int(side)) for side in size)
        cut_h, cut_w = integer(*rows), integer(*columns)
        top, left = integer(0, height - cut_h + 1), integer(0, width - cut_w + 1)
        bottom, right = top + cut_h, left + cut_w
    else:
        ratio = math.sqrt(1.0 - lam)
        cut_h, cut_w = int(height * ratio), int(width * ratio)
        y, x = integer(0, height), integer(0, width)
        top, bottom = max(0, y - cut_h // 2), min(height, y + (cut_h + 1) // 2)
        left, right = max(0, x - cut_w // 2), min(width, x + (cut_w + 1) // 2)
    if spec.correct_lam or spec.cutmix_minmax is not None:
        lam = 1.0 - (bottom - top) * (right - left) / (height * width)
    return (..., slice(top, bottom), slice(left, right)), lam


def _sides(minmax: Sequence[float], side: int) -> tuple[int, int]:
    """From which length to below which one a rectangle's side may be drawn."""
    low, high = (int(side * part) for part in minmax)
    if low >= high:
        raise ValueError(
            f"TimmMixup.cutmix_minmax={minmax} leaves no length for a side of {side} pixels: from {low} to "
            f"below {high}. Take a wider range, or larger pictures."
        )
    return low, high


def pasted(images: torch.Tensor, others: torch.Tensor, box: Box) -> torch.Tensor:
    """The batch with a rectangle of others."""
    found = images.clone()
    found[box] = others[box]
    return found


def _blended(images: torch.Tensor, others: torch.Tensor, lam: float) -> torch.Tensor:
    if not images.is_floating_point():
        raise ValueError("TimmMixup needs float images: add ToDtype or Normalize to the transform.")
    return torch.lerp(others, images, lam)
