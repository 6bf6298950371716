"""Transforms by torchvision's names: descriptions only; the C++ core does the work.

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(mean, std)])

Any other callable may follow; it gets what torchvision's chain would give it: a PIL picture, or a ``(C, H,
W)`` tensor behind a transform that makes tensors (:class:`ToDtype`, :class:`Normalize`).
"""

from __future__ import annotations

from fastload.transforms.compiler import compile_plan
from fastload.transforms.compose import ByEpoch, Compose, ImageOnly, Views
from fastload.transforms.operations.registry import ROWS, operation_in
from fastload.transforms.plan import Plan

TYPE_CHECKING = False  # as in fastload: each spec is imported when it is first used
if TYPE_CHECKING:
    from fastload.transforms.operations.aug_mix import AugMix
    from fastload.transforms.operations.auto_augment import AutoAugment
    from fastload.transforms.operations.bucket_crop import BucketCrop
    from fastload.transforms.operations.center_crop import CenterCrop
    from fastload.transforms.operations.clamp_bounding_boxes import ClampBoundingBoxes
    from fastload.transforms.operations.color_jitter import ColorJitter
    from fastload.transforms.operations.convert_bounding_box_format import ConvertBoundingBoxFormat
    from fastload.transforms.operations.drop_crowds import DropCrowds
    from fastload.transforms.operations.fixed_size_crop import FixedSizeCrop
    from fastload.transforms.operations.gaussian_blur import GaussianBlur
    from fastload.transforms.operations.gaussian_noise import GaussianNoise
    from fastload.transforms.operations.grayscale import Grayscale
    from fastload.transforms.operations.letterbox import Letterbox
    from fastload.transforms.operations.mix_up import MixUp
    from fastload.transforms.operations.mosaic import Mosaic
    from fastload.transforms.operations.normalize import Normalize
    from fastload.transforms.operations.pad import Pad
    from fastload.transforms.operations.pad_if_smaller import PadIfSmaller
    from fastload.transforms.operations.pillow_gaussian_blur import PillowGaussianBlur
    from fastload.transforms.operations.rand_augment import RandAugment
    from fastload.transforms.operations.random_adjust_sharpness import RandomAdjustSharpness
    from fastload.transforms.operations.random_affine import RandomAffine
    from fastload.transforms.operations.random_apply import RandomApply
    from fastload.transforms.operations.random_autocontrast import RandomAutocontrast
    from fastload.transforms.operations.random_channel_permutation import RandomChannelPermutation
    from fastload.transforms.operations.random_choice import RandomChoice
    from fastload.transforms.operations.random_crop import RandomCrop
    from fastload.transforms.operations.random_equalize import RandomEqualize
    from fastload.transforms.operations.random_erasing import RandomErasing
    from fastload.transforms.operations.random_grayscale import RandomGrayscale
    from fastload.transforms.operations.random_horizontal_flip import RandomHorizontalFlip
    from fastload.transforms.operations.random_invert import RandomInvert
    from fastload.transforms.operations.random_iou_crop import RandomIoUCrop
    from fastload.transforms.operations.random_order import RandomOrder
    from fastload.transforms.operations.random_perspective import RandomPerspective
    from fastload.transforms.operations.random_photometric_distort import RandomPhotometricDistort
    from fastload.transforms.operations.random_posterize import RandomPosterize
    from fastload.transforms.operations.random_quarter_turn import RandomQuarterTurn
    from fastload.transforms.operations.random_resize import RandomResize
    from fastload.transforms.operations.random_resized_crop import RandomResizedCrop
    from fastload.transforms.operations.random_rotation import RandomRotation
    from fastload.transforms.operations.random_shortest_size import RandomShortestSize
    from fastload.transforms.operations.random_solarize import RandomSolarize
    from fastload.transforms.operations.random_vertical_flip import RandomVerticalFlip
    from fastload.transforms.operations.random_zoom_out import RandomZoomOut
    from fastload.transforms.operations.resize import Resize
    from fastload.transforms.operations.resize_to_patches import ResizeToPatches
    from fastload.transforms.operations.sanitize_bounding_boxes import SanitizeBoundingBoxes
    from fastload.transforms.operations.scale_jitter import ScaleJitter
    from fastload.transforms.operations.timm_augment import TimmAugment
    from fastload.transforms.operations.to_dtype import ToDtype
    from fastload.transforms.operations.trivial_augment_wide import TrivialAugmentWide

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
    _SPECS = {names[0]: file for file, names in ROWS.items()}

    def __getattr__(name: str) -> object:
        """The spec of this name, imported now."""
        if name not in _SPECS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = operation_in(_SPECS[name]).spec
        return found

    def __dir__() -> list[str]:
        """What the package has, the specs that nobody has used yet among it."""
        return sorted({*globals(), *_SPECS})
