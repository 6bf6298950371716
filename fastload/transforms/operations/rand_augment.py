"""Some operations of a fixed strength: RandAugment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms.operations.operation import Draft, Operation, use_of_pixels
from fastload.transforms.operations.policy import (
    Fill,
    chain,
    check_fields,
    one_of,
    size_before,
    version_of,
    warp_of,
)
from fastload.transforms.operations.space import auto_augment_space

__all__ = ["OPERATION", "RandAugment"]


@dataclass(frozen=True)
class RandAugment:
    """Apply ``num_ops`` operations one after the other, each drawn from fourteen, with Pillow's pixels.

    Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space"
    (arXiv 1909.13719), with torchvision's operations and magnitudes.

    Args:
        num_ops: how many, in [0, 64].
        magnitude: their strength, in [0, ``num_magnitude_bins``).
        num_magnitude_bins: how many strengths there are, at least 2.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, of what shears, shifts and rotates.
        fill: colour of what comes from outside the picture, in [0, 255]; None: black.
        version: 1 for ``torchvision.transforms``, 2 for ``torchvision.transforms.v2``, whose thresholds of
            Solarize differ in their last bits.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: Fill = None
    version: int = 1

    def __post_init__(self) -> None:
        check_fields(self, num_ops=(0, 64), num_magnitude_bins=(2, 4096))
        check_fields(self, magnitude=(0, self.num_magnitude_bins - 1))


def _add(draft: Draft, spec: RandAugment, strict: bool) -> Draft:
    size = size_before(draft, spec, "shifts")
    space = auto_augment_space(size, spec.num_magnitude_bins, spec.version)
    del space["Invert"]
    strengths = {name: values[spec.magnitude : spec.magnitude + 1] for name, values in space.items()}
    return use_of_pixels(draft, spec, chain([one_of(strengths, warp_of(spec))] * spec.num_ops))


def _from_torchvision(item: Any) -> tuple[RandAugment]:
    given = (item.num_ops, item.magnitude, item.num_magnitude_bins, item.interpolation, item.fill)
    return (RandAugment(*given, version_of(item)),)


OPERATION = Operation(RandAugment, _add, {"RandAugment": _from_torchvision}, pictures_only=True)
