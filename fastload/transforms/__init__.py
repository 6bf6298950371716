"""Transforms by torchvision's names: descriptions only; the C++ core does the work.

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std)])

Any other callable may follow; it gets what torchvision's chain would give it: a PIL picture, or a ``(C, H,
W)`` tensor behind a transform that makes tensors (:class:`ToDtype`, :class:`Normalize`).
"""

from __future__ import annotations

from fastload.transforms.compiler import compile_plan
from fastload.transforms.compose import Compose
from fastload.transforms.operations.center_crop import CenterCrop
from fastload.transforms.operations.normalize import Normalize
from fastload.transforms.operations.random_crop import RandomCrop
from fastload.transforms.operations.random_horizontal_flip import RandomHorizontalFlip
from fastload.transforms.operations.random_resized_crop import RandomResizedCrop
from fastload.transforms.operations.resize import Resize
from fastload.transforms.operations.to_dtype import ToDtype
from fastload.transforms.plan import Plan

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
