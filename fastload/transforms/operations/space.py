"""torchvision's tables of magnitudes: which operations a policy chooses from, and how strong they are."""

from __future__ import annotations

from fastload.transforms.operations.policy import linspace, posterize_bits, thresholds

__all__ = ["Space", "augmix_space", "auto_augment_space", "trivial_space"]

Space = dict[str, list[float]]  # operations and their magnitudes; none where they have no strength

_ENHANCED = ("Brightness", "Color", "Contrast", "Sharpness")


def auto_augment_space(size: tuple[int, int], bins: int, version: int) -> Space:
    """Of AutoAugment, and without ``Invert`` of RandAugment; ``size`` is (height, width)."""
    height, width = size
    return {
        "Identity": [],
        "ShearX": linspace(0.0, 0.3, bins),
        "ShearY": linspace(0.0, 0.3, bins),
        "TranslateX": linspace(0.0, 150.0 / 331.0 * width, bins),
        "TranslateY": linspace(0.0, 150.0 / 331.0 * height, bins),
        "Rotate": linspace(0.0, 30.0, bins),
        **{name: linspace(0.0, 0.9, bins) for name in _ENHANCED},
        "Posterize": posterize_bits(8, 4, bins),
        "Solarize": thresholds(bins, version),
        "AutoContrast": [],
        "Equalize": [],
        "Invert": [],
    }


def trivial_space(bins: int, version: int) -> Space:
    """Of TrivialAugmentWide, which shifts by pixels, whatever the picture's size is."""
    return {
        "Identity": [],
        "ShearX": linspace(0.0, 0.99, bins),
        "ShearY": linspace(0.0, 0.99, bins),
        "TranslateX": linspace(0.0, 32.0, bins),
        "TranslateY": linspace(0.0, 32.0, bins),
        "Rotate": linspace(0.0, 135.0, bins),
        **{name: linspace(0.0, 0.99, bins) for name in _ENHANCED},
        "Posterize": posterize_bits(8, 6, bins),
        "Solarize": thresholds(bins, version),
        "AutoContrast": [],
        "Equalize": [],
    }


def augmix_space(size: tuple[int, int], all_ops: bool, version: int) -> Space:
    """Of AugMix, in ten bins; ``size`` is (height, width)."""
    height, width = size
    return {
        "ShearX": linspace(0.0, 0.3, 10),
        "ShearY": linspace(0.0, 0.3, 10),
        "TranslateX": linspace(0.0, width / 3.0, 10),
        "TranslateY": linspace(0.0, height / 3.0, 10),
        "Rotate": linspace(0.0, 30.0, 10),
        "Posterize": posterize_bits(4, 4, 10),
        "Solarize": thresholds(10, version),
        "AutoContrast": [],
        "Equalize": [],
        **({name: linspace(0.0, 0.9, 10) for name in _ENHANCED} if all_ops else {}),
    }
