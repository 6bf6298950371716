"""Transforms by torchvision's names: descriptions only; the C++ core does the work.

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std)])

Any other callable may follow; it gets what torchvision's chain would give it: a PIL picture, or a ``(C, H,
W)`` tensor behind a transform that makes tensors (:class:`ToDtype`, :class:`Normalize`).
"""

from __future__ import annotations

from fastload.transforms.plan import Plan, compile_plan
from fastload.transforms.specs import (
    CenterCrop,
    Compose,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToDtype,
)

__all__ = [
    "CenterCrop",
    "Compose",
    "Normalize",
    "Plan",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToDtype",
    "compile_plan",
]
