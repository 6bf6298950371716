"""Noise added to pictures."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "GaussianNoise"]

_MOST = 16.0  # torchvision's noise of uint8 is int16, which holds 128 times white


@dataclass(frozen=True)
class GaussianNoise:
    """Add a normally distributed number to each value, in units of white (255), as torchvision does to uint8
    tensors, which truncates the sum. The distribution is torchvision's, the random numbers are not.

    Args:
        mean: in [-16, 16].
        sigma: the standard deviation, in [0, 16].
        clip: sums end at 0 and 255; False: they are taken modulo 256.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True

    def __post_init__(self) -> None:
        for name, least in (("mean", -_MOST), ("sigma", 0.0)):
            (value,) = arguments.floats(f"GaussianNoise.{name}", (getattr(self, name),), 1)
            if not least <= value <= _MOST:
                raise ValueError(f"GaussianNoise.{name} must be in [{least:g}, {_MOST:g}]. Found: {value}.")
            set_field(self, name, value)
        set_field(self, "clip", bool(self.clip))


def _add(draft: Draft, spec: GaussianNoise, strict: bool) -> Draft:
    return pixels(draft, spec, "gaussian_noise", 1.0, spec.mean, spec.sigma, float(spec.clip))


OPERATION = Operation(
    GaussianNoise,
    _add,
    {"GaussianNoise": lambda item: (GaussianNoise(item.mean, item.sigma, item.clip),)},
)
