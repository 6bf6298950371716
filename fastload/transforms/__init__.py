"""Transforms with torchvision's names: only descriptions; the C++ core does the work.

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std)])

Any other callable may follow; it gets what torchvision's chain would give it: a PIL picture, or a ``(C, H,
W)`` tensor after a transform that makes tensors (:class:`ToDtype`, :class:`Normalize`).
"""

from __future__ import annotations

from fastload.transforms.compiler import compile_plan
from fastload.transforms.compose import ByEpoch, Compose, DrawEach, ImageOnly, Views
from fastload.transforms.operations.registry import ROWS, operation_named
from fastload.transforms.plan import Plan

TYPE_CHECKING = False  # as in fastload: each spec is imported when it is first used
if TYPE_CHECKING:
    from fastload.transforms.operations.blurs import GaussianBlur, GaussianNoise, PillowGaussianBlur
    from fastload.transforms.operations.colours import (
        ColorJitter,
        Grayscale,
        RandomAdjustSharpness,
        RandomAutocontrast,
        RandomChannelPermutation,
        RandomEqualize,
        RandomGrayscale,
        RandomInvert,
        RandomPhotometricDistort,
        RandomPosterize,
        RandomSolarize,
    )
    from fastload.transforms.operations.composed import MixUp, Mosaic
    from fastload.transforms.operations.crops import (
        BucketCrop,
        CenterCrop,
        FixedSizeCrop,
        Pad,
        PadIfSmaller,
        RandomCrop,
        RandomIoUCrop,
        RandomResizedCrop,
        RandomZoomOut,
    )
    from fastload.transforms.operations.groups import RandomApply, RandomChoice, RandomOrder
    from fastload.transforms.operations.motions import (
        RandomAffine,
        RandomHorizontalFlip,
        RandomPerspective,
        RandomQuarterTurn,
        RandomRotation,
        RandomVerticalFlip,
    )
    from fastload.transforms.operations.objects import (
        ClampBoundingBoxes,
        ConvertBoundingBoxFormat,
        DropCrowds,
        SanitizeBoundingBoxes,
    )
    from fastload.transforms.operations.output import Normalize, RandomErasing, ToDtype
    from fastload.transforms.operations.policies import AugMix, AutoAugment, RandAugment, TrivialAugmentWide
    from fastload.transforms.operations.resizes import (
        Letterbox,
        RandomResize,
        RandomShortestSize,
        Resize,
        ResizeToPatches,
        ScaleJitter,
    )
    from fastload.transforms.operations.timm import TimmAugment

__all__ = [
    "AugMix",
    "AutoAugment",
    "BucketCrop",
    "ByEpoch",
    "CenterCrop",
    "ClampBoundingBoxes",
    "ColorJitter",
    "Compose",
    "ConvertBoundingBoxFormat",
    "DrawEach",
    "DropCrowds",
    "FixedSizeCrop",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "ImageOnly",
    "Letterbox",
    "MixUp",
    "Mosaic",
    "Normalize",
    "Pad",
    "PadIfSmaller",
    "PillowGaussianBlur",
    "Plan",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomQuarterTurn",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "ResizeToPatches",
    "SanitizeBoundingBoxes",
    "ScaleJitter",
    "TimmAugment",
    "ToDtype",
    "TrivialAugmentWide",
    "Views",
    "compile_plan",
]

if not TYPE_CHECKING:  # or type checkers would believe that every name exists

    def __getattr__(name: str) -> object:
        """Return the spec of this name, and import its file."""
        if name not in ROWS:
            more = ""
            if name in ("ToTensor", "PILToTensor", "ToImage"):
                more = (
                    ': batches are tensors without it. ToDtype("float32", scale=True) makes floats in [0, 1]'
                )
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{more}")
        spec = globals()[name] = operation_named(name).spec
        return spec

    def __dir__() -> list[str]:
        """Return the package's names, including specs that nobody has used yet."""
        return sorted({*globals(), *ROWS})
