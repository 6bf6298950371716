"""Transforms by torchvision's names: descriptions only; the C++ core does the work.

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std)])

Any other callable may follow; it gets what torchvision's chain would give it: a PIL picture, or a ``(C, H,
W)`` tensor behind a transform that makes tensors (:class:`ToDtype`, :class:`Normalize`).
"""

from __future__ import annotations

from fastload.transforms.compiler import compile_plan
from fastload.transforms.compose import Compose
from fastload.transforms.operations.center_crop import CenterCrop
from fastload.transforms.operations.grayscale import Grayscale
from fastload.transforms.operations.normalize import Normalize
from fastload.transforms.operations.random_crop import RandomCrop
from fastload.transforms.operations.random_grayscale import RandomGrayscale
from fastload.transforms.operations.random_horizontal_flip import RandomHorizontalFlip
from fastload.transforms.operations.random_invert import RandomInvert
from fastload.transforms.operations.random_resized_crop import RandomResizedCrop
from fastload.transforms.operations.random_solarize import RandomSolarize
from fastload.transforms.operations.resize import Resize
from fastload.transforms.operations.to_dtype import ToDtype
from fastload.transforms.plan import Plan

__all__ = [
    "CenterCrop",
    "Compose",
    "Grayscale",
    "Normalize",
    "Plan",
    "RandomCrop",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomResizedCrop",
    "RandomSolarize",
    "Resize",
    "ToDtype",
    "compile_plan",
]
