"""The registry of operations: a row for each, in the order of the core. An operation's file is imported when
something of it is first used, so that a job pays for what it uses, however many there are.

A file here has an operation's spec (a frozen dataclass with torchvision's name, arguments and defaults,
checked when made), how it is compiled, and how torchvision's object of that meaning is recognised. Specs
hold no pixel code: the core's side of it is in csrc/core/transform.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastload.transforms.operations.operation import Operation

__all__ = ["ROWS", "operation_in", "operation_of", "operation_of_torchvision"]

# Each file's spec, and the other names by which the file is found: torchvision's classes that it recognises
# (timm's with their module).
ROWS: dict[str, tuple[str, ...]] = {
    "mosaic": ("Mosaic",),
    "mix_up": ("MixUp",),
    "random_resized_crop": (
        "RandomResizedCrop",
        "timm.data.transforms.RandomResizedCropAndInterpolation",
    ),
    "resize": ("Resize",),
    "random_zoom_out": ("RandomZoomOut",),
    "pad": ("Pad",),
    "pad_if_smaller": ("PadIfSmaller", "v2_extras.PadIfSmaller"),
    "random_iou_crop": ("RandomIoUCrop",),
    "scale_jitter": ("ScaleJitter",),
    "random_shortest_size": ("RandomShortestSize",),
    "random_resize": ("RandomResize",),
    "resize_to_patches": ("ResizeToPatches",),
    "letterbox": ("Letterbox",),
    "bucket_crop": ("BucketCrop",),
    "center_crop": ("CenterCrop",),
    "fixed_size_crop": ("FixedSizeCrop",),
    "random_crop": ("RandomCrop",),
    "random_horizontal_flip": ("RandomHorizontalFlip",),
    "random_vertical_flip": ("RandomVerticalFlip",),
    "random_quarter_turn": ("RandomQuarterTurn",),
    "random_rotation": ("RandomRotation",),
    "random_affine": ("RandomAffine",),
    "random_perspective": ("RandomPerspective",),
    "grayscale": ("Grayscale",),
    "random_grayscale": ("RandomGrayscale",),
    "random_invert": ("RandomInvert",),
    "random_solarize": ("RandomSolarize",),
    "random_posterize": ("RandomPosterize",),
    "random_autocontrast": ("RandomAutocontrast",),
    "random_equalize": ("RandomEqualize",),
    "random_adjust_sharpness": ("RandomAdjustSharpness",),
    "random_channel_permutation": ("RandomChannelPermutation",),
    "random_photometric_distort": ("RandomPhotometricDistort",),
    "color_jitter": ("ColorJitter",),
    "gaussian_noise": ("GaussianNoise",),
    "gaussian_blur": ("GaussianBlur",),
    "pillow_gaussian_blur": ("PillowGaussianBlur",),
    "random_apply": ("RandomApply",),
    "random_choice": ("RandomChoice",),
    "random_order": ("RandomOrder",),
    "auto_augment": ("AutoAugment",),
    "rand_augment": ("RandAugment",),
    "trivial_augment_wide": ("TrivialAugmentWide",),
    "aug_mix": ("AugMix",),
    "timm_augment": (
        "TimmAugment",
        "timm.data.auto_augment.AutoAugment",
        "timm.data.auto_augment.RandAugment",
        "timm.data.auto_augment.AugMixAugment",
    ),
    "to_dtype": ("ToDtype", "ToTensor", "ConvertImageDtype", "timm.data.transforms.MaybeToTensor"),
    "normalize": ("Normalize",),
    "clamp_bounding_boxes": ("ClampBoundingBoxes",),
    "convert_bounding_box_format": ("ConvertBoundingBoxFormat",),
    "sanitize_bounding_boxes": ("SanitizeBoundingBoxes",),
    "drop_crowds": ("DropCrowds",),
    "random_erasing": ("RandomErasing", "timm.data.random_erasing.RandomErasing"),
}
_FILES = {name: file for file, names in ROWS.items() for name in names}


def operation_in(file: str) -> Operation:
    """The operation in ``file``, a key of ``ROWS``."""
    found: Operation = import_module(f"{__package__}.{file}").OPERATION
    return found


def operation_of(item: Any) -> Operation | None:
    """The operation that ``item`` is a spec of; None for anything else."""
    kind = type(item)
    file = _FILES.get(kind.__name__)
    return operation_in(file) if file and kind.__module__ == f"{__package__}.{file}" else None


def operation_of_torchvision(name: str) -> Operation | None:
    """The operation that may mean what torchvision's class of this name does (timm's with its module)."""
    file = _FILES.get(name)
    return operation_in(file) if file else None
