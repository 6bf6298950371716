"""Batches whose pictures and labels are mixed with each other, by torch operations."""

from __future__ import annotations

import math
from typing import Any

import torch

from fastload.transfer.draws import BatchKeyed
from fastload.transfer.timm_mixing import mixed_as_timm, pasted
from fastload.transforms.batch import CutMix, LabelSmoothing, MixUp, RandomChoice, TimmMixup

__all__ = ["MIXES", "known", "mixed"]

MIXES = (MixUp, CutMix, LabelSmoothing, RandomChoice, TimmMixup)

Mix = MixUp | CutMix | LabelSmoothing | RandomChoice | TimmMixup
Pair = tuple[torch.Tensor, torch.Tensor]


def known(part: Any) -> Any:
    """What a part of ``batch_transform=`` means, now: timm's ``Mixup`` object as :class:`TimmMixup` (training
    scripts switch it off by an attribute), anything else as it is."""
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
    """The batch as ``spec`` says; ``keyed``: its random numbers."""
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
    """The batch with a rectangle of its neighbours, and the share of a picture that is its own."""
    height, width = images.shape[2:]
    x, y = keyed.below(width), keyed.below(height)
    half = 0.5 * math.sqrt(1.0 - lam)
    half_h, half_w = int(half * height), int(half * width)
    top, bottom = max(0, y - half_h), min(height, y + half_h)
    left, right = max(0, x - half_w), min(width, x + half_w)
    found = pasted(images, images.roll(1, 0), (..., slice(top, bottom), slice(left, right)))
    return found, 1.0 - (right - left) * (bottom - top) / (width * height)


def _soft(labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """(n, num_classes) float32. Labels out of range give zeros."""
    if labels.dim() != 1:
        return labels
    classes = torch.arange(num_classes, device=labels.device)
    return (labels.unsqueeze(1) == classes).to(torch.float32)


def _smoothed(soft: torch.Tensor, smoothing: float) -> torch.Tensor:
    """A part of each row's weight spread over all classes; rows of zeros stay."""
    if smoothing == 0.0:
        return soft
    return soft * (1.0 - smoothing) + soft.sum(1, keepdim=True) * (smoothing / soft.shape[1])
