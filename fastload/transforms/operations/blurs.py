"""Blurs, torchvision's and Pillow's, and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, as_torch_draws, pixels, set_field
from fastload.transforms.plan import Drawn

# ---- torchvision's blur -----------------------------------------------------------------------------

_MOST_GAUSSIAN_BLUR = 511


@dataclass(frozen=True)
class GaussianBlur:
    """Blur the picture as torchvision's GaussianBlur does, with a Gaussian sampled at whole pixels and the
    picture reflected at its edges. ``RandomApply([GaussianBlur(23)], p=0.5)`` blurs half of the pictures.

    Pixels equal torchvision 0.28's (v1 and v2; torch's convolution with AVX2 or AVX-512), except that the
    exp of the weights is rounded differently for one sigma in ten: at most one level, in fewer than 40 of a
    million values. Pictures smaller than half the kernel, which torchvision refuses, are reflected
    repeatedly.

    Args:
        kernel_size: an odd number of pixels, at most 511; or ``(across, down)``.
        sigma: the standard deviation in pixels, above 0; or ``(least, greatest)``, drawn uniformly for each
            sample.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        where = "GaussianBlur.kernel_size"
        sizes = arguments.pair(where, self.kernel_size)
        if not all(size % 2 == 1 and size <= _MOST_GAUSSIAN_BLUR for size in sizes):
            raise ValueError(
                f"{where} must be odd, at most {_MOST_GAUSSIAN_BLUR}. Found: {self.kernel_size!r}."
            )
        set_field(self, "kernel_size", sizes)
        set_field(self, "sigma", positive_range("GaussianBlur.sigma", self.sigma))


def positive_range(where: str, value: Any) -> tuple[float, float]:
    """Return a number above 0, or the ends of a range of them, as a range."""
    ends = value if isinstance(value, Sequence) else (value, value)
    low, high = arguments.floats(where, ends, 2)
    if not 0.0 < low <= high:
        raise ValueError(f"{where} must be above 0, or (least, greatest) above 0. Found: {value!r}.")
    return low, high


def drawn_between(ends: Any) -> float | Drawn:
    """Return a number of an operation that is uniform in this range."""
    low, high = ends
    return low if low == high else Drawn("uniform", (low, high))


def _add_gaussian_blur(draft: Draft, spec: GaussianBlur, strict: bool) -> Draft:
    across, down = spec.kernel_size  # type: ignore[misc]
    return pixels(draft, spec, "gaussian_blur", 1.0, across, down, drawn_between(spec.sigma))


GAUSSIAN_BLUR = Operation(
    GaussianBlur,
    _add_gaussian_blur,
    {
        "GaussianBlur": lambda item: (
            GaussianBlur(tuple(item.kernel_size), as_torch_draws(tuple(item.sigma))),
        )
    },
)


# ---- Pillow's blur ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PillowGaussianBlur:
    """Blur as ``PIL.ImageFilter.GaussianBlur`` does, bit for bit: three box blurs in each direction. DINO,
    MoCo v3 and BYOL use ``RandomApply([PillowGaussianBlur((0.1, 2.0))], p=0.5)``.

    Args:
        radius: the standard deviation in pixels, above 0; or ``(least, greatest)``, drawn uniformly for each
            sample.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    radius: float | Sequence[float] = 2.0

    def __post_init__(self) -> None:
        set_field(self, "radius", positive_range("PillowGaussianBlur.radius", self.radius))


def _add_pillow_gaussian_blur(draft: Draft, spec: PillowGaussianBlur, strict: bool) -> Draft:
    return pixels(draft, spec, "gaussian_blur_pillow", 1.0, drawn_between(spec.radius))


PILLOW_GAUSSIAN_BLUR = Operation(PillowGaussianBlur, _add_pillow_gaussian_blur, {})


# ---- Noise ------------------------------------------------------------------------------------------

_MOST_GAUSSIAN_NOISE = 16.0  # torchvision's noise of uint8 is int16, which holds 128 times white


@dataclass(frozen=True)
class GaussianNoise:
    """Add a normally distributed number to each value, in units of white (255), and truncate the sum, as
    torchvision does to uint8 tensors. The distribution is torchvision's, the random numbers are not.

    Args:
        mean: in [-16, 16].
        sigma: the standard deviation, in [0, 16].
        clip: clamp sums to [0, 255]; False: take them modulo 256.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True

    def __post_init__(self) -> None:
        for name, least in (("mean", -_MOST_GAUSSIAN_NOISE), ("sigma", 0.0)):
            (value,) = arguments.floats(f"GaussianNoise.{name}", (getattr(self, name),), 1)
            if not least <= value <= _MOST_GAUSSIAN_NOISE:
                raise ValueError(
                    f"GaussianNoise.{name} must be in [{least:g}, {_MOST_GAUSSIAN_NOISE:g}]. Found: {value}."
                )
            set_field(self, name, value)
        set_field(self, "clip", bool(self.clip))


def _add_gaussian_noise(draft: Draft, spec: GaussianNoise, strict: bool) -> Draft:
    return pixels(draft, spec, "gaussian_noise", 1.0, spec.mean, spec.sigma, float(spec.clip))


GAUSSIAN_NOISE = Operation(
    GaussianNoise,
    _add_gaussian_noise,
    {"GaussianNoise": lambda item: (GaussianNoise(item.mean, item.sigma, item.clip),)},
)
