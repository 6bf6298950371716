"""The registry of operations: a row for each, in the core's order. A file is imported when one of its
operations is first used, so that a job only pays for what it uses.

A file in this folder has operations of one kind. Each has a spec (a frozen dataclass with torchvision's name,
arguments and defaults, checked on construction), its compilation, and the recognition of torchvision's
equivalent. Specs have no pixel code, which is in csrc/core/transform.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from fastload.transforms.operations.operation import Operation

# For each spec its file, and other names by which it is found: those of the torchvision classes that it
# recognises (timm's with their module).
ROWS: dict[str, tuple[str, ...]] = {
    "Mosaic": ("composed",),
    "MixUp": ("composed",),
    "RandomResizedCrop": ("crops", "timm.data.transforms.RandomResizedCropAndInterpolation"),
    "Resize": ("resizes",),
    "RandomZoomOut": ("crops",),
    "Pad": ("crops",),
    "PadIfSmaller": ("crops", "v2_extras.PadIfSmaller"),
    "RandomIoUCrop": ("crops",),
    "ScaleJitter": ("resizes",),
    "RandomShortestSize": ("resizes",),
    "RandomResize": ("resizes",),
    "ResizeToPatches": ("resizes",),
    "Letterbox": ("resizes",),
    "BucketCrop": ("crops",),
    "CenterCrop": ("crops",),
    "FixedSizeCrop": ("crops",),
    "RandomCrop": ("crops",),
    "RandomHorizontalFlip": ("motions",),
    "RandomVerticalFlip": ("motions",),
    "RandomQuarterTurn": ("motions",),
    "RandomRotation": ("motions",),
    "RandomAffine": ("motions",),
    "RandomPerspective": ("motions",),
    "Grayscale": ("colours",),
    "RandomGrayscale": ("colours",),
    "RandomInvert": ("colours",),
    "RandomSolarize": ("colours",),
    "RandomPosterize": ("colours",),
    "RandomAutocontrast": ("colours",),
    "RandomEqualize": ("colours",),
    "RandomAdjustSharpness": ("colours",),
    "RandomChannelPermutation": ("colours",),
    "RandomPhotometricDistort": ("colours",),
    "ColorJitter": ("colours",),
    "GaussianNoise": ("blurs",),
    "GaussianBlur": ("blurs",),
    "PillowGaussianBlur": ("blurs",),
    "RandomApply": ("groups",),
    "RandomChoice": ("groups",),
    "RandomOrder": ("groups",),
    "AutoAugment": ("policies",),
    "RandAugment": ("policies",),
    "TrivialAugmentWide": ("policies",),
    "AugMix": ("policies",),
    "TimmAugment": (
        "timm",
        "timm.data.auto_augment.AutoAugment",
        "timm.data.auto_augment.RandAugment",
        "timm.data.auto_augment.AugMixAugment",
    ),
    "ToDtype": ("output", "ToTensor", "ConvertImageDtype", "timm.data.transforms.MaybeToTensor"),
    "Normalize": ("output",),
    "ClampBoundingBoxes": ("objects",),
    "ConvertBoundingBoxFormat": ("objects",),
    "SanitizeBoundingBoxes": ("objects",),
    "DropCrowds": ("objects",),
    "RandomErasing": ("output", "timm.data.random_erasing.RandomErasing"),
}
_SPECS = {name: spec for spec, (_, *others) in ROWS.items() for name in (spec, *others)}


@cache
def _operations(file: str) -> dict[str, Operation]:
    """Return the operations of a file by their specs' names."""
    values = vars(import_module(f"{__package__}.{file}")).values()
    return {value.spec.__name__: value for value in values if isinstance(value, Operation)}


def operation_named(spec: str) -> Operation:
    """Return the operation of a spec's name, a key of ``ROWS``."""
    return _operations(ROWS[spec][0])[spec]


def operation_of(item: Any) -> Operation | None:
    """Return the operation whose spec ``item`` is; None for anything else."""
    kind = type(item)
    row = ROWS.get(kind.__name__)
    is_spec = row is not None and kind.__module__ == f"{__package__}.{row[0]}"
    return operation_named(kind.__name__) if is_spec else None


def operation_of_torchvision(name: str) -> Operation | None:
    """Return the operation that may equal torchvision's class of this name (timm's with its module)."""
    spec = _SPECS.get(name)
    return operation_named(spec) if spec else None
