"""timm's operations: how strong each is at a magnitude, by timm's names (timm/data/auto_augment.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.policy import Number, Warp, among, use_of
from fastload.transforms.plan import Drawn, PixelUse

__all__ = ["RULES", "Settings", "operation"]

_PER = 10.0  # magnitudes are tenths of the strongest


@dataclass(frozen=True)
class Settings:
    """timm's ``hparams``, with what they are where nothing is said."""

    translate_const: float = 250.0
    translate_pct: float = 0.45
    img_mean: Sequence[float] = (128, 128, 128)
    interpolation: Any = (2, 3)  # Pillow's, or several, one of which is drawn for each operation
    magnitude_std: float = 0.0  # inf: uniform between 0 and the magnitude
    magnitude_max: float | None = None

    def warp(self) -> Warp:
        """Raises TypeError or ValueError for another filter, or a fill that is no colour."""
        given = self.interpolation
        several = given if isinstance(given, (tuple, list)) else (given,)
        fill = self.img_mean
        if not isinstance(fill, (tuple, list)) or len(fill) != 3:
            raise ValueError(f"img_mean must be three numbers in [0, 255]. Found: {fill!r}.")
        colour = arguments.colour("img_mean", fill)
        names = [arguments.filter_name("interpolation", one) for one in several]
        filters = [arguments.filter_and_fill(name, colour)[0] for name in names]
        return among(filters), *map(float, colour)


@dataclass(frozen=True)
class Rule:
    """An operation of the core, and its number at a magnitude m: m / 10 * scale, cut to a whole number if
    ``whole``, negated in half of all cases if ``signed``, plus ``offset``, within ``low`` and ``high``."""

    row: str
    scale: float = 0.0
    whole: bool = False
    signed: bool = False
    offset: float = 0.0
    low: float = -inf
    high: float = inf

    def number(self, magnitude: float, settings: Settings) -> Number:
        std, top = settings.magnitude_std, settings.magnitude_max or _PER
        how = (top, _PER, self.scale, float(self.whole), float(self.signed), self.offset, self.low, self.high)
        if std > 0:
            return Drawn("level", (float(magnitude), float(std), *map(float, how)))
        value = max(0.0, min(float(magnitude), top)) / _PER * self.scale
        value = float(int(value)) if self.whole else value
        values = (value, -value) if self.signed else (value,)
        return among(min(max(one + self.offset, self.low), self.high) for one in values)


def _enhanced(row: str) -> Rule:
    return Rule(row, 1.8, offset=0.1)


def _increasing(row: str) -> Rule:
    return Rule(row, 0.9, signed=True, offset=1.0, low=0.1)


# "Rel": by a share of the size. The blur's radius has rules of its own, see operation().
RULES: dict[str, Rule] = {
    "AutoContrast": Rule("autocontrast"),
    "Equalize": Rule("equalize"),
    "Invert": Rule("invert"),
    "Rotate": Rule("rotate", 30.0, signed=True),
    "Posterize": Rule("posterize", 4.0, whole=True),
    "PosterizeIncreasing": Rule("posterize", -4.0, whole=True, offset=4.0),
    "PosterizeOriginal": Rule("posterize", 4.0, whole=True, offset=4.0),
    "Solarize": Rule("solarize", 256.0, whole=True, high=256.0),
    "SolarizeIncreasing": Rule("solarize", -256.0, whole=True, offset=256.0, low=0.0),
    "SolarizeAdd": Rule("solarize_add", 110.0, whole=True, high=128.0),
    "Color": _enhanced("saturation"),
    "ColorIncreasing": _increasing("saturation"),
    "Contrast": _enhanced("contrast"),
    "ContrastIncreasing": _increasing("contrast"),
    "Brightness": _enhanced("brightness"),
    "BrightnessIncreasing": _increasing("brightness"),
    "Sharpness": _enhanced("sharpness"),
    "SharpnessIncreasing": _increasing("sharpness"),
    "ShearX": Rule("shear_x", 0.3, signed=True),
    "ShearY": Rule("shear_y", 0.3, signed=True),
    "TranslateX": Rule("translate_x", signed=True),
    "TranslateY": Rule("translate_y", signed=True),
    "TranslateXRel": Rule("translate_x", signed=True),
    "TranslateYRel": Rule("translate_y", signed=True),
    "Desaturate": Rule("saturation", -0.5, offset=0.5, low=0.0, high=0.5),
    "GaussianBlur": Rule("gaussian_blur_pillow", 1.9, offset=0.1, low=0.1, high=2.0),
    "GaussianBlurRand": Rule("gaussian_blur_pillow"),
}
_BARE = ("AutoContrast", "Equalize", "Invert")  # no strength


def operation(name: str, probability: float, magnitude: float, settings: Settings) -> PixelUse:
    """One of timm's operations as the core takes it.

    Raises:
        ValueError: an operation or settings that the core cannot say.
    """
    rule, warp = RULES.get(name), settings.warp()
    if rule is None:
        raise ValueError(f"the core has no {name}")
    if name in _BARE:
        return PixelUse(rule.row, probability)
    if name == "GaussianBlurRand":
        return PixelUse(rule.row, probability, (_blur_radius(magnitude, settings),))
    if name.startswith("Translate"):
        return _translate(name, probability, magnitude, settings)
    number = rule.number(magnitude, settings)
    if name == "SolarizeAdd":
        return PixelUse(rule.row, probability, (number, 128.0))
    if rule.row.startswith("shear"):
        return PixelUse(rule.row, probability, (number, 0.0, *warp))
    return use_of(rule.row, number, warp, probability)


def _blur_radius(magnitude: float, settings: Settings) -> Number:
    if settings.magnitude_std > 0:
        raise ValueError("GaussianBlurRand draws a radius below one that mstd draws, which the core cannot")
    strongest = max(0.0, min(float(magnitude), settings.magnitude_max or _PER)) / _PER
    return Drawn("uniform", (0.1, 2.0 * min(strongest, 1.0)))


def _translate(name: str, probability: float, magnitude: float, settings: Settings) -> PixelUse:
    """To either side, so that it does not matter that timm's matrix moves the other way."""
    relative, warp = name.endswith("Rel"), settings.warp()
    scale = settings.translate_pct if relative else float(settings.translate_const)
    number = Rule("", scale, signed=True).number(magnitude, settings)
    where = (0.0, number) if relative else (number, 0.0)
    return PixelUse(RULES[name].row, probability, (*where, 0.0, *warp))
