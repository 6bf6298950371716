"""Mixing of a batch's pictures and labels by torch operations: MixUp, CutMix and timm's ``Mixup``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.transfer.draws import BatchKeyed
from fastload.transforms.batch import CutMix, LabelSmoothing, MixUp, RandomChoice, TimmMixup

# ---- timm's ``Mixup``, drawn per batch, pair or sample; the partner is at the batch's other end ----

Integer = Callable[[int, int], int]  # uniform in [low, high)
Box = tuple[Any, slice, slice]  # an index of a picture or a batch: ..., rows, columns


def mixed_as_timm(
    spec: TimmMixup, images: torch.Tensor, soft: torch.Tensor, keyed: BatchKeyed
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mix the batch as timm does, before its labels are smoothed.

    The modes ``pair`` and ``elem`` draw what timm draws, in its order, from NumPy's legacy generator, whose
    numbers are the same in every version; its seed is the batch's.

    Args:
        spec: determines the mode.
        images: (n, channels, h, w).
        soft: (n, classes) float32.
        keyed: the batch's random numbers.

    Raises:
        ValueError: integer pictures cannot be blended, or pictures are too small for ``cutmix_minmax``.
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
                found[to] = _timm_blended(images[to], images[partner], float(lam[own]))
    if spec.mode == "pair":  # the middle one of an odd batch has no partner
        lam = np.concatenate([lam, np.ones(len(images) % 2, np.float32), lam[::-1]])
    shares = torch.from_numpy(lam).to(soft.device).unsqueeze(1)
    return found, torch.lerp(soft.flip(0), soft, shares)


def _whole(
    spec: TimmMixup, images: torch.Tensor, soft: torch.Tensor, keyed: BatchKeyed
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mix in one go, as timm's ``_mix_batch``."""
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
        images = _timm_blended(images, images.flip(0), lam)
    return images, torch.lerp(soft.flip(0), soft, lam)


def _drawn(
    spec: TimmMixup, count: int, random: np.random.RandomState
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Draw each sample's share, and whether it is cut, as timm's ``_params_per_elem``."""
    cuts, alphas = np.zeros(count, bool), (spec.cutmix_alpha, spec.mixup_alpha)
    if min(alphas) > 0.0:
        cuts = random.rand(count) < spec.switch_prob
        lam = np.where(cuts, *(random.beta(alpha, alpha, size=count) for alpha in alphas))
    else:
        cuts[:] = spec.cutmix_alpha > 0.0
        lam = random.beta(max(alphas), max(alphas), size=count)
    return np.where(random.rand(count) < spec.prob, lam.astype(np.float32), np.float32(1.0)), cuts


def _box(spec: TimmMixup, size: Any, lam: float, integer: Integer) -> tuple[Box, float]:
    """Draw the rectangle's rows and columns, and the remaining share, as timm's ``cutmix_bbox_and_lam``."""
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
    """Return the range, inclusive and exclusive, of a rectangle's side."""
    low, high = (int(side * part) for part in minmax)
    if low >= high:
        raise ValueError(
            f"TimmMixup.cutmix_minmax={minmax} leaves no length for a side of {side} pixels: from {low} to "
            f"below {high}. Take a wider range, or larger pictures."
        )
    return low, high


def pasted(images: torch.Tensor, others: torch.Tensor, box: Box) -> torch.Tensor:
    """Return the batch with a rectangle of others."""
    found = images.clone()
    found[box] = others[box]
    return found


def _timm_blended(images: torch.Tensor, others: torch.Tensor, lam: float) -> torch.Tensor:
    if not images.is_floating_point():
        raise ValueError("TimmMixup needs float images: add ToDtype or Normalize to the transform.")
    return torch.lerp(others, images, lam)


# ---- The mixing transforms ----

MIXES = (MixUp, CutMix, LabelSmoothing, RandomChoice, TimmMixup)

Mix = MixUp | CutMix | LabelSmoothing | RandomChoice | TimmMixup
Pair = tuple[torch.Tensor, torch.Tensor]


def known(part: Any) -> Any:
    """Return the current meaning of a part of ``batch_transform=``: timm's ``Mixup`` object as
    :class:`TimmMixup` (training scripts switch it off by an attribute), anything else unchanged."""
    kind = type(part)
    if (kind.__module__, kind.__qualname__) != ("timm.data.mixup", "Mixup"):
        return part
    return TimmMixup(
        mixup_alpha=part.mixup_alpha,
        cutmix_alpha=part.cutmix_alpha,
        cutmix_minmax=part.cutmix_minmax,
        prob=part.mix_prob if part.mixup_enabled else 0.0,
        switch_prob=part.switch_prob,
        mode=part.mode if part.mode in ("pair", "elem") else "batch",
        correct_lam=part.correct_lam,
        label_smoothing=part.label_smoothing,
        num_classes=part.num_classes,
        multi_label=getattr(part, "multi_label", False),  # timm 1.0.31 has it
    )


def mixed(spec: Mix, images: torch.Tensor, labels: torch.Tensor, keyed: BatchKeyed) -> Pair:
    """Mix the batch according to ``spec``; ``keyed``: its random numbers."""
    if isinstance(spec, RandomChoice):
        return mixed(spec.transforms[keyed.below(len(spec.transforms))], images, labels, keyed)
    if isinstance(spec, LabelSmoothing):
        return images, _smoothed(_soft(labels, spec.num_classes), spec.smoothing)
    if isinstance(spec, TimmMixup):
        return _as_timm(spec, images, labels, keyed)
    lam, soft = keyed.beta(spec.alpha), _soft(labels, spec.num_classes)
    if isinstance(spec, MixUp):
        images = _blended(images, images.roll(1, 0), lam)
    else:
        images, lam = _cut(images, lam, keyed)
    return images, _smoothed(torch.lerp(soft.roll(1, 0), soft, lam), spec.label_smoothing)


def _as_timm(spec: TimmMixup, images: torch.Tensor, labels: torch.Tensor, keyed: BatchKeyed) -> Pair:
    if not spec.multi_label:
        images, labels = mixed_as_timm(spec, images, _soft(labels, spec.num_classes), keyed)
        return images, _smoothed(labels, spec.label_smoothing)
    if labels.dim() != 2 or labels.shape[1] != spec.num_classes:
        raise ValueError(
            f"TimmMixup(multi_label=True) needs labels of shape (n, {spec.num_classes}). Found: "
            f"{tuple(labels.shape)}."
        )
    images, labels = mixed_as_timm(spec, images, labels.float(), keyed)
    return images, labels * (1.0 - spec.label_smoothing) + 0.5 * spec.label_smoothing


def _blended(images: torch.Tensor, others: torch.Tensor, lam: float) -> torch.Tensor:
    if not images.is_floating_point():
        raise ValueError("MixUp needs float images: add ToDtype or Normalize to the transform.")
    return torch.lerp(others, images, lam)


def _cut(images: torch.Tensor, lam: float, keyed: BatchKeyed) -> tuple[torch.Tensor, float]:
    """Return the batch with a rectangle of its neighbours, and the share of a picture that is its own."""
    height, width = images.shape[2:]
    x, y = keyed.below(width), keyed.below(height)
    half = 0.5 * math.sqrt(1.0 - lam)
    half_h, half_w = int(half * height), int(half * width)
    top, bottom = max(0, y - half_h), min(height, y + half_h)
    left, right = max(0, x - half_w), min(width, x + half_w)
    found = pasted(images, images.roll(1, 0), (..., slice(top, bottom), slice(left, right)))
    return found, 1.0 - (right - left) * (bottom - top) / (width * height)


def _soft(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Return one-hot labels, (n, num_classes) float32; zeros for labels out of range."""
    if labels.dim() != 1:
        return labels
    classes = torch.arange(num_classes, device=labels.device)
    return (labels.unsqueeze(1) == classes).to(torch.float32)


def _smoothed(soft: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Spread a part of each row's weight over all classes; rows of zeros stay."""
    if smoothing == 0.0:
        return soft
    return soft * (1.0 - smoothing) + soft.sum(1, keepdim=True) * (smoothing / soft.shape[1])
