"""Operations on colours: brightness, contrast, saturation, hue, gray, and values of single channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_torch_draws,
    colour_name,
    drawn_between,
    pixels,
    set_field,
    use_of_pixels,
)
from fastload.transforms.plan import Drawn, PixelUse

# ---- Jitter -----------------------------------------------------------------------------------------

Spread = float | Sequence[float] | None


@dataclass(frozen=True)
class ColorJitter:
    """Change brightness, contrast, saturation and hue by factors that are drawn for each sample, in an order
    that is also drawn. Changes that are off are left out.

    Equal to Pillow's ImageEnhance and torchvision's ``adjust_hue`` of a PIL picture, bit for bit.

    Args:
        brightness, contrast, saturation: the factor is uniform in [max(0, 1 - x), 1 + x], or in (least,
            greatest); at least 0.
        hue: the shift, in turns of the colour circle, is uniform in [-x, x], or in (least, greatest); within
            [-0.5, 0.5].

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    brightness: Spread = 0.0
    contrast: Spread = 0.0
    saturation: Spread = 0.0
    hue: Spread = 0.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            value = arguments.spread(f"ColorJitter.{name}", getattr(self, name) or 0.0, 1.0, 0.0, math.inf)
            set_field(self, name, value)
        set_field(self, "hue", arguments.spread("ColorJitter.hue", self.hue or 0.0, 0.0, -0.5, 0.5))


def _add_color_jitter(draft: Draft, spec: ColorJitter, strict: bool) -> Draft:
    neutral = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
    parts = tuple(
        PixelUse(colour_name(draft, name), 1.0, (drawn_between(*getattr(spec, name)),))
        for name, value in neutral.items()
        if getattr(spec, name) != (value, value)
    )
    return use_of_pixels(draft, spec, PixelUse("order", 1.0, (), parts)) if parts else draft


def _color_jitter_of_torchvision(item: Any) -> tuple[ColorJitter]:
    spreads = item.brightness, item.contrast, item.saturation, item.hue
    return (ColorJitter(*map(as_torch_draws, spreads)),)


COLOR_JITTER = Operation(
    ColorJitter,
    _add_color_jitter,
    {"ColorJitter": _color_jitter_of_torchvision},
    pictures_only=True,
    knows_tensors=True,
)


# ---- Grayscale --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grayscale:
    """Put the picture's luma into all three channels: Pillow's ``convert("L")``, bit for bit.

    Args:
        num_output_channels: only 3, as batches of pictures have; torchvision's default is 1.

    Raises:
        ValueError: the number of channels is not 3.
    """

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        if self.num_output_channels != 3:
            raise ValueError(
                f"Grayscale.num_output_channels must be 3. Found: {self.num_output_channels!r}. For one "
                "channel take images[:, :1] of the batch."
            )
        set_field(self, "num_output_channels", 3)


def _add_grayscale(draft: Draft, spec: Grayscale, strict: bool) -> Draft:
    return pixels(draft, spec, colour_name(draft, "grayscale"), 1.0)


GRAYSCALE = Operation(
    Grayscale,
    _add_grayscale,
    {"Grayscale": lambda item: (Grayscale(item.num_output_channels),)},
    pictures_only=True,
    knows_tensors=True,
)


# ---- Random grayscale -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomGrayscale:
    """Put the luma into all channels, as :class:`Grayscale` does, with probability ``p``, in [0, 1].

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.1

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomGrayscale.p", self.p))


def _add_random_grayscale(draft: Draft, spec: RandomGrayscale, strict: bool) -> Draft:
    return pixels(draft, spec, colour_name(draft, "grayscale"), spec.p)


RANDOM_GRAYSCALE = Operation(
    RandomGrayscale,
    _add_random_grayscale,
    {"RandomGrayscale": lambda item: (RandomGrayscale(item.p),)},
    pictures_only=True,
    knows_tensors=True,
)


# ---- Inversion --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomInvert:
    """Invert the picture, 255 - value, with probability ``p``, in [0, 1].

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomInvert.p", self.p))


def _add_random_invert(draft: Draft, spec: RandomInvert, strict: bool) -> Draft:
    return pixels(draft, spec, "invert", spec.p)


RANDOM_INVERT = Operation(
    RandomInvert, _add_random_invert, {"RandomInvert": lambda item: (RandomInvert(item.p),)}
)


# ---- Posterizing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomPosterize:
    """Keep only the upper ``bits``, in [1, 8], of each value, with probability ``p``, in [0, 1]: Pillow's
    ``ImageOps.posterize``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int):
            raise TypeError(f"RandomPosterize.bits must be an int in [1, 8]. Found: {self.bits!r}.")
        if not 1 <= self.bits <= 8:
            raise ValueError(f"RandomPosterize.bits must be in [1, 8]. Found: {self.bits}.")
        set_field(self, "p", arguments.probability("RandomPosterize.p", self.p))


def _add_random_posterize(draft: Draft, spec: RandomPosterize, strict: bool) -> Draft:
    return pixels(draft, spec, "posterize", spec.p, float(spec.bits))


RANDOM_POSTERIZE = Operation(
    RandomPosterize,
    _add_random_posterize,
    {"RandomPosterize": lambda item: (RandomPosterize(item.bits, item.p),)},
)


# ---- Solarizing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomSolarize:
    """Invert values of at least ``threshold``, to 255 - value, with probability ``p``, in [0, 1].

    Raises:
        TypeError, ValueError: ``threshold`` is not a finite number, or ``p`` is outside its range.
    """

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        (threshold,) = arguments.floats("RandomSolarize.threshold", (self.threshold,), 1)
        set_field(self, "threshold", threshold)
        set_field(self, "p", arguments.probability("RandomSolarize.p", self.p))


def _add_random_solarize(draft: Draft, spec: RandomSolarize, strict: bool) -> Draft:
    return pixels(draft, spec, "solarize", spec.p, spec.threshold)


RANDOM_SOLARIZE = Operation(
    RandomSolarize,
    _add_random_solarize,
    {"RandomSolarize": lambda item: (RandomSolarize(item.threshold, item.p),)},
)


# ---- Equalizing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomEqualize:
    """Flatten the histogram of each channel, with probability ``p``, in [0, 1]: Pillow's
    ``ImageOps.equalize``, bit for bit.

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomEqualize.p", self.p))


def _add_random_equalize(draft: Draft, spec: RandomEqualize, strict: bool) -> Draft:
    return pixels(draft, spec, "equalize", spec.p)


RANDOM_EQUALIZE = Operation(
    RandomEqualize,
    _add_random_equalize,
    {"RandomEqualize": lambda item: (RandomEqualize(item.p),)},
    pictures_only=True,
)


# ---- Contrast ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomAutocontrast:
    """Stretch each channel's values to [0, 255], with probability ``p``, in [0, 1]: Pillow's
    ``ImageOps.autocontrast``, bit for bit.

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomAutocontrast.p", self.p))


def _add_random_autocontrast(draft: Draft, spec: RandomAutocontrast, strict: bool) -> Draft:
    return pixels(draft, spec, "autocontrast", spec.p)


RANDOM_AUTOCONTRAST = Operation(
    RandomAutocontrast,
    _add_random_autocontrast,
    {"RandomAutocontrast": lambda item: (RandomAutocontrast(item.p),)},
    pictures_only=True,
)


# ---- Sharpness --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomAdjustSharpness:
    """Sharpen or smooth with Pillow's ``ImageEnhance.Sharpness``, with probability ``p``, in [0, 1]. The
    factor is at least 0: 0 smooths, 1 changes nothing, 2 sharpens.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        where = "RandomAdjustSharpness"
        (factor,) = arguments.floats(f"{where}.sharpness_factor", (self.sharpness_factor,), 1)
        if factor < 0:
            raise ValueError(
                f"{where}.sharpness_factor must be at least 0. Found: {self.sharpness_factor!r}."
            )
        set_field(self, "sharpness_factor", factor)
        set_field(self, "p", arguments.probability(f"{where}.p", self.p))


def _add_random_adjust_sharpness(draft: Draft, spec: RandomAdjustSharpness, strict: bool) -> Draft:
    return pixels(draft, spec, "sharpness", spec.p, spec.sharpness_factor)


RANDOM_ADJUST_SHARPNESS = Operation(
    RandomAdjustSharpness,
    _add_random_adjust_sharpness,
    {"RandomAdjustSharpness": lambda item: (RandomAdjustSharpness(item.sharpness_factor, item.p),)},
    pictures_only=True,
)


# ---- Order of channels ------------------------------------------------------------------------------

#: The number of one of the six orders in csrc/core/transform/pixels/channel_permutation.cpp.
PERMUTED = Drawn("among", tuple(map(float, range(6))))


@dataclass(frozen=True)
class RandomChannelPermutation:
    """Permute red, green and blue: one of the six orders is drawn uniformly for each sample."""


def _add_random_channel_permutation(draft: Draft, spec: RandomChannelPermutation, strict: bool) -> Draft:
    return pixels(draft, spec, "channel_permutation", 1.0, PERMUTED)


RANDOM_CHANNEL_PERMUTATION = Operation(
    RandomChannelPermutation,
    _add_random_channel_permutation,
    {"RandomChannelPermutation": lambda item: (RandomChannelPermutation(),)},
)


# ---- Photometric distortion of SSD ------------------------------------------------------------------


@dataclass(frozen=True)
class RandomPhotometricDistort:
    """Change brightness, contrast, saturation and hue by random factors, and permute the channels, each with
    probability ``p``. Contrast comes second or after the hue, equally likely.

    Args:
        brightness, contrast, saturation: (least, greatest) factor; at least 0.
        hue: (least, greatest) shift in turns of the colour circle; within [-0.5, 0.5].
        p: in [0, 1].

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    brightness: Sequence[float] = (0.875, 1.125)
    contrast: Sequence[float] = (0.5, 1.5)
    saturation: Sequence[float] = (0.5, 1.5)
    hue: Sequence[float] = (-0.05, 0.05)
    p: float = 0.5

    def __post_init__(self) -> None:
        where = "RandomPhotometricDistort"
        for name in ("brightness", "contrast", "saturation", "hue"):
            value = arguments.floats(f"{where}.{name}", getattr(self, name), 2)
            low, high = (-0.5, 0.5) if name == "hue" else (0.0, math.inf)
            set_field(self, name, arguments.spread(f"{where}.{name}", value, 0.0, low, high))
        set_field(self, "p", arguments.probability(f"{where}.p", self.p))


def _add_random_photometric_distort(draft: Draft, spec: RandomPhotometricDistort, strict: bool) -> Draft:
    def changed(name: str) -> PixelUse:
        return PixelUse(colour_name(draft, name), spec.p, (drawn_between(*getattr(spec, name)),))

    colours = (changed("saturation"), changed("hue"))
    before = PixelUse("all", 1.0, (), (changed("contrast"), *colours))
    behind = PixelUse("all", 1.0, (), (*colours, changed("contrast")))
    permuted = PixelUse("channel_permutation", spec.p, (PERMUTED,))
    parts = (changed("brightness"), PixelUse("choice", 1.0, (1.0, 1.0), (before, behind)), permuted)
    return use_of_pixels(draft, spec, PixelUse("all", 1.0, (), parts))


RANDOM_PHOTOMETRIC_DISTORT = Operation(
    RandomPhotometricDistort,
    _add_random_photometric_distort,
    {
        "RandomPhotometricDistort": lambda item: (
            RandomPhotometricDistort(item.brightness, item.contrast, item.saturation, item.hue, item.p),
        )
    },
    pictures_only=True,
    knows_tensors=True,
)
