"""Pictures blurred as Pillow does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastload.transforms.operations.gaussian_blur import drawn_between, positive_range
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "PillowGaussianBlur"]


@dataclass(frozen=True)
class PillowGaussianBlur:
    """Blur as ``PIL.ImageFilter.GaussianBlur``, which DINO, MoCo v3 and BYOL use: three box blurs each way,
    bit for bit. ``RandomApply([PillowGaussianBlur((0.1, 2.0))], p=0.5)`` is their ``GaussianBlur(p=0.5)``.

    Args:
        radius: the standard deviation in pixels, above 0; or ``(least, greatest)``, uniform between them for
            each sample.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    radius: float | Sequence[float] = 2.0

    def __post_init__(self) -> None:
        set_field(self, "radius", positive_range("PillowGaussianBlur.radius", self.radius))


def _add(draft: Draft, spec: PillowGaussianBlur, strict: bool) -> Draft:
    return pixels(draft, spec, "gaussian_blur_pillow", 1.0, drawn_between(spec.radius))


OPERATION = Operation(PillowGaussianBlur, _add, {})
