"""One operation of any strength: TrivialAugment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms.operations.operation import Draft, Operation, use_of_pixels
from fastload.transforms.operations.policy import Fill, check_fields, one_of, version_of, warp_of
from fastload.transforms.operations.space import trivial_space

__all__ = ["OPERATION", "TrivialAugmentWide"]


@dataclass(frozen=True)
class TrivialAugmentWide:
    """Apply one operation, drawn from fourteen, with a strength that is also drawn, with Pillow's pixels.

    Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation" (arXiv
    2103.10158), with torchvision's operations and magnitudes.

    Args:
        num_magnitude_bins: how many strengths there are, in [2, 2048].
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, of what shears, shifts and rotates.
        fill: colour of what comes from outside the picture, in [0, 255]; None: black.
        version: 1 for ``torchvision.transforms``, 2 for ``torchvision.transforms.v2``, whose thresholds of
            Solarize differ in their last bits.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: Fill = None
    version: int = 1

    def __post_init__(self) -> None:
        check_fields(self, num_magnitude_bins=(2, 2048))


def _add(draft: Draft, spec: TrivialAugmentWide, strict: bool) -> Draft:
    space = trivial_space(spec.num_magnitude_bins, spec.version)
    return use_of_pixels(draft, spec, one_of(space, warp_of(spec)))


def _from_torchvision(item: Any) -> tuple[TrivialAugmentWide]:
    given = (item.num_magnitude_bins, item.interpolation, item.fill)
    return (TrivialAugmentWide(*given, version_of(item)),)


OPERATION = Operation(TrivialAugmentWide, _add, {"TrivialAugmentWide": _from_torchvision}, pictures_only=True)
