"""Some operations of a fixed strength: RandAugment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, set_field, use_of_pixels
from fastload.transforms.operations.policy import (
    Fill,
    chain,
    check_fields,
    choice,
    leaf,
    size_before,
    version_of,
    warp_of,
)
from fastload.transforms.operations.space import auto_augment_space

__all__ = ["OPERATION", "RandAugment"]


@dataclass(frozen=True)
class RandAugment:
    """``num_ops`` operations one after the other, each drawn from fourteen, with Pillow's pixels.

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
        where = "RandAugment"
        set_field(self, "num_ops", arguments.whole(f"{where}.num_ops", self.num_ops, 0, 64))
        bins = arguments.whole(f"{where}.num_magnitude_bins", self.num_magnitude_bins, 2, 4096)
        set_field(self, "num_magnitude_bins", bins)
        set_field(self, "magnitude", arguments.whole(f"{where}.magnitude", self.magnitude, 0, bins - 1))
        check_fields(self)


def _add(draft: Draft, spec: RandAugment, strict: bool) -> Draft:
    size = size_before(draft, spec, "shifts")
    space = auto_augment_space(size, spec.num_magnitude_bins, spec.version)
    del space["Invert"]
    warp = warp_of(spec)
    strengths = {name: values[spec.magnitude : spec.magnitude + 1] for name, values in space.items()}
    one = choice([leaf(name, values, warp) for name, values in strengths.items()])
    return use_of_pixels(draft, spec, chain([one] * spec.num_ops))


def _from_torchvision(item: Any) -> tuple[RandAugment]:
    given = (item.num_ops, item.magnitude, item.num_magnitude_bins, item.interpolation, item.fill)
    return (RandAugment(*given, version_of(item)),)


OPERATION = Operation(RandAugment, _add, {"RandAugment": _from_torchvision}, pictures_only=True)
