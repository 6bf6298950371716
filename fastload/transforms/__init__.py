"""Transforms by torchvision's names: descriptions only; the C++ core does the work.

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std)])

Any other callable may follow; it gets the decoded ``(C, H, W)`` tensor.
"""

from __future__ import annotations

from fastload.transforms.plan import Plan, compile_plan
from fastload.transforms.specs import (
    CenterCrop,
    Compose,
    Normalize,
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
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "ToDtype",
    "compile_plan",
]
