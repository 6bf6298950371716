"""Batches whose pictures and labels are mixed with each other, by torch operations."""

from __future__ import annotations

import math
from typing import Any

import torch

from fastload.transfer.draws import BatchKeyed
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
    if part.mode != "batch" or part.cutmix_minmax is not None:
        return part
    return TimmMixup(
        mixup_alpha=part.mixup_alpha,
        cutmix_alpha=part.cutmix_alpha,
        prob=part.mix_prob if part.mixup_enabled else 0.0,
        switch_prob=part.switch_prob,
        correct_lam=part.correct_lam,
        label_smoothing=part.label_smoothing,
        num_classes=part.num_classes,
    )


def mixed(spec: Mix, images: torch.Tensor, labels: torch.Tensor, keyed: BatchKeyed) -> Pair:
    """The batch as ``spec`` says; ``keyed``: its random numbers."""
    if isinstance(spec, RandomChoice):
        return mixed(spec.transforms[keyed.below(len(spec.transforms))], images, labels, keyed)
    if isinstance(spec, LabelSmoothing):
        return images, _smoothed(_soft(labels, spec.num_classes), spec.smoothing)
    if isinstance(spec, TimmMixup):
        images, labels = _as_timm(spec, images, _soft(labels, spec.num_classes), keyed)
        return images, _smoothed(labels, spec.label_smoothing)
    lam, soft = keyed.beta(spec.alpha), _soft(labels, spec.num_classes)
    if isinstance(spec, MixUp):
        images = _blended(images, images.roll(1, 0), lam)
    else:
        images, lam = _cut(images, lam, keyed)
    return images, _smoothed(torch.lerp(soft.roll(1, 0), soft, lam), spec.label_smoothing)


def _as_timm(spec: TimmMixup, images: torch.Tensor, soft: torch.Tensor, keyed: BatchKeyed) -> Pair:
    """timm's ``Mixup._mix_batch``: partners from the other end of the batch."""
    if keyed.uniform() >= spec.prob:
        return images, soft
    cuts = spec.cutmix_alpha > 0.0
    if cuts and spec.mixup_alpha > 0.0:
        cuts = keyed.uniform() < spec.switch_prob
    lam = keyed.beta(spec.cutmix_alpha if cuts else spec.mixup_alpha)
    if cuts:
        height, width = images.shape[2:]
        ratio = math.sqrt(1.0 - lam)
        y, x = keyed.below(height), keyed.below(width)
        own = _pasted(images, images.flip(0), (y, x), (int(height * ratio) // 2, int(width * ratio) // 2))
        images, lam = own[0], own[1] if spec.correct_lam else lam
    else:
        images = _blended(images, images.flip(0), lam)
    return images, torch.lerp(soft.flip(0), soft, lam)


def _blended(images: torch.Tensor, others: torch.Tensor, lam: float) -> torch.Tensor:
    if not images.is_floating_point():
        raise ValueError("MixUp needs float images: add ToDtype or Normalize to the transform.")
    return torch.lerp(others, images, lam)


def _cut(images: torch.Tensor, lam: float, keyed: BatchKeyed) -> tuple[torch.Tensor, float]:
    """The batch with a rectangle of its neighbours, and the share of a picture that is its own."""
    height, width = images.shape[2:]
    x, y = keyed.below(width), keyed.below(height)
    half = 0.5 * math.sqrt(1.0 - lam)
    return _pasted(images, images.roll(1, 0), (y, x), (int(half * height), int(half * width)))


def _pasted(
    images: torch.Tensor, others: torch.Tensor, center: tuple[int, int], half: tuple[int, int]
) -> tuple[torch.Tensor, float]:
    """A rectangle of others around a centre, ``half`` its height and width."""
    height, width = images.shape[2:]
    top, bottom = max(0, center[0] - half[0]), min(height, center[0] + half[0])
    left, right = max(0, center[1] - half[1]), min(width, center[1] + half[1])
    found = images.clone()
    found[..., top:bottom, left:right] = others[..., top:bottom, left:right]
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
