"""timm's policies, by its configuration strings or from its objects, as groups of operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, set_field, use_of_pixels
from fastload.transforms.operations.policies import (
    IMAGENET_V0,
    SUB_POLICIES,
    Number,
    SubPolicy,
    Warp,
    among,
    chain,
    choice,
    random_depth,
    use_of,
)
from fastload.transforms.plan import Drawn, PixelUse

# ---- timm's policies as groups of operations (timm/data/auto_augment.py) ----------------------------


def rand(ops: Sequence[PixelUse], layers: int, weights: Sequence[float] | None) -> PixelUse:
    """timm's RandAugment: ``layers`` of the operations; with weights, none of them twice."""
    if weights is None:
        return chain([choice(ops)] * layers)
    return PixelUse("some", 1.0, (float(layers), *map(float, weights)), tuple(ops))


def auto(policies: Sequence[Sequence[PixelUse]]) -> PixelUse:
    """timm's AutoAugment: one of the sub-policies."""
    return choice([chain(ops) for ops in policies])


def mixed(ops: Sequence[PixelUse], alpha: float, width: int, depth: int, blended: bool) -> PixelUse:
    """timm's AugMixAugment: chains of ``depth`` operations (one to three where it is not above 0)."""
    one = choice(ops)
    branch = chain([one] * depth) if depth > 0 else random_depth(one)
    return PixelUse("blend_in_turn" if blended else "mix_and_blend", 1.0, (float(alpha),), (branch,) * width)


# ---- timm's operations ------------------------------------------------------------------------------
# How strong each is at a magnitude, by timm's names (timm/data/auto_augment.py).

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


# ---- timm strings -----------------------------------------------------------------------------------
# timm's configuration strings, as timm 1.0's ``timm.data.auto_augment`` reads them; but what timm overlooks
# in a string is refused here.

_ENHANCED = ("Color", "Contrast", "Brightness", "Sharpness")
_MOVED = ("ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
_RAND = ("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd")
_INCREASING = {name: f"{name}Increasing" for name in ("Posterize", "Solarize", *_ENHANCED)}
_THREE = ("SolarizeIncreasing", "Desaturate", "GaussianBlur")
_WEIGHTS: dict[str, dict[str, float]] = {
    "weights": {
        "Rotate": 3,
        "ShearX": 2,
        "ShearY": 2,
        "TranslateXRel": 1,
        "TranslateYRel": 1,
        **dict.fromkeys(("ColorIncreasing", "SharpnessIncreasing", "AutoContrast"), 0.25),
        **dict.fromkeys(("SolarizeIncreasing", "SolarizeAdd", "ContrastIncreasing"), 0.05),
        **dict.fromkeys(("BrightnessIncreasing", "Equalize", "PosterizeIncreasing", "Invert"), 0.05),
    },
    "3aw": {
        **dict.fromkeys(_THREE, 6),
        "Rotate": 3,
        "ShearX": 2,
        "ShearY": 2,
        **dict.fromkeys(("PosterizeIncreasing", "AutoContrast", "ColorIncreasing", "SharpnessIncreasing"), 1),
        **dict.fromkeys(("ContrastIncreasing", "BrightnessIncreasing", "Equalize", "Invert"), 1),
    },
}
_MIXED = ("AutoContrast", *(f"{name}Increasing" for name in _ENHANCED), "Equalize", "Rotate")
_MIXED += ("PosterizeIncreasing", "SolarizeIncreasing", *_MOVED)


def use_of_string(config: str, settings: Settings) -> PixelUse:
    """What the core does for a string, with what it does not say in ``settings``.

    Raises:
        TypeError, ValueError: no string, another policy or section, or what cannot be said to the core.
    """
    if not isinstance(config, str):
        raise TypeError(f"config must be a string of timm's, as 'rand-m9-mstd0.5-inc1'. Found: {config!r}.")
    policy, *sections = config.split("-")
    if policy not in (*_POLICIES, "rand", "augmix"):
        raise ValueError(
            f"{config!r} must begin with rand, augmix, {', '.join(_POLICIES)}. Found: {policy!r}."
        )
    read = _read_rand if policy == "rand" else _read_augmix if policy == "augmix" else _read_auto
    try:
        return read(policy, sections, settings)
    except ValueError as error:
        raise ValueError(f"{config!r}: {error}") from None


def _read_rand(policy: str, given: Sequence[str], settings: Settings) -> PixelUse:
    said: dict[str, str] = dict(_sections(given, ("m", "n", "p", "mstd", "mmax", "inc", "t")))
    increasing = bool(int(said.get("inc", "0")))
    if "mstd" in said:
        std = float(said["mstd"])
        settings = replace(settings, magnitude_std=inf if std > 100 else std)
    if "mmax" in said:
        settings = replace(settings, magnitude_max=int(said["mmax"]))
    chosen = _chosen(said.get("t"), increasing)
    weights = list(chosen.values()) if isinstance(chosen, Mapping) else None
    p, magnitude = float(said.get("p", "0.5")), int(said.get("m", "10"))
    ops = [operation(name, min(p, 1.0), magnitude, settings) for name in chosen]
    return rand(ops, _count("n", said, 2), weights)


def _read_auto(policy: str, given: Sequence[str], settings: Settings) -> PixelUse:
    said = dict(_sections(given, ("mstd",)))
    settings = replace(settings, magnitude_std=float(said.get("mstd", "0")))
    return auto([[operation(*op, settings) for op in pair] for pair in _POLICIES[policy]])


def _read_augmix(policy: str, given: Sequence[str], settings: Settings) -> PixelUse:
    said = dict(_sections(given, ("m", "w", "d", "a", "b", "mstd")))
    std = float(said["mstd"]) if "mstd" in said else inf
    settings = replace(settings, magnitude_std=std, translate_pct=0.3)
    ops = [operation(name, 1.0, int(said.get("m", "3")), settings) for name in _MIXED]
    width, depth = _count("w", said, 3), _count("d", said, 0)
    alpha = float(said.get("a", "1"))
    if not 0.05 <= alpha <= 1000:
        raise ValueError(f"a must be in [0.05, 1000]. Found: {said['a']!r}.")
    return mixed(ops, alpha, width, depth, bool(int(said.get("b", "0"))))


def _count(key: str, said: Mapping[str, str], default: int) -> int:
    number = int(said.get(key, default))
    if not (key == "d" or number >= 1) or number > 16:
        raise ValueError(f"{key} must be in [1, 16]. Found: {number}.")
    return number


def _sections(given: Sequence[str], keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The sections of a string behind the first, as (key, value)."""
    for section in given:
        key, value = re.fullmatch(r"(t|\D*)(.*)", section).groups()  # type: ignore[union-attr]
        check: Callable[[str], object] = {"t": str, "p": float, "mstd": float, "a": float}.get(key, int)
        try:
            if key not in keys or not value:
                raise ValueError
            check(value)
        except ValueError:
            raise ValueError(
                f"it may have {', '.join(keys)}, each with its value. Found: {section!r}."
            ) from None
        yield key, value


def _chosen(name: str | None, increasing: bool) -> Sequence[str] | Mapping[str, float]:
    if name == "3a":
        return _THREE
    if name is not None and name in _WEIGHTS:
        return _WEIGHTS[name]
    if name is not None:
        raise ValueError(f"t must be one of {', '.join((*_WEIGHTS, '3a'))}. Found: {name!r}.")
    names = (*_RAND, *_ENHANCED, *_MOVED)
    return [_INCREASING.get(one, one) for one in names] if increasing else names


def _renamed(policies: tuple[SubPolicy, ...], name: str) -> tuple[SubPolicy, ...]:
    """With another kind of Posterize."""
    return tuple(
        tuple((name if op == "Posterize" else op, chance, level) for op, chance, level in pair)
        for pair in policies
    )


_ORIGINAL = SUB_POLICIES["imagenet"]
_POLICIES: dict[str, tuple[SubPolicy, ...]] = {
    "v0": IMAGENET_V0,
    "v0r": _renamed(IMAGENET_V0, "PosterizeIncreasing"),
    "original": _renamed(_ORIGINAL, "PosterizeOriginal"),
    "originalr": _renamed(_ORIGINAL, "PosterizeIncreasing"),
    "3a": ((("Solarize", 1.0, 5),), (("Desaturate", 1.0, 10),), (("GaussianBlurRand", 1.0, 10),)),
}


# ---- timm augment -----------------------------------------------------------------------------------

_MODULE = "timm.data.auto_augment"


@dataclass(frozen=True)
class TimmAugment:
    """Augment as timm does, by timm's strings, as ``timm.data.create_transform(auto_augment=...)`` makes it,
    with Pillow's pixels.

    Pillow 13 refuses to posterize to 0 bits, which the increasing policies come to at magnitude 10, so timm
    raises there. Here Pillow's formula goes on: that picture is black.

    Args:
        config: one of timm's strings. ``rand`` and any of ``m`` (magnitude, 10), ``n`` (operations a
            picture, 2), ``p`` (probability of each, 0.5), ``mstd`` (standard deviation of the magnitude, 0;
            above 100: uniform from 0), ``mmax`` (greatest magnitude, 10), ``inc`` (1: strength always grows
            with the magnitude), ``t`` (operations: ``weights``, ``3a`` or ``3aw``), as
            ``"rand-m9-mstd0.5-inc1"``. Or ``v0``, ``v0r``, ``original``, ``originalr`` or ``3a``, and
            perhaps ``mstd``. Or ``augmix`` and any of ``m`` (3), ``w`` (chains, 3), ``d`` (operations of a
            chain, else one to three), ``a`` (alpha of the weights, 1), ``b`` (1: blended chain by chain),
            ``mstd`` (else uniform from 0).
        mean: of the channels, in [0, 1], as Normalize has it: the colour of what comes from outside the
            picture; None: gray, 128.
        interpolation: ``"bilinear"``, ``"bicubic"``, or ``"random"``: one of them, drawn for each operation.

    Raises:
        TypeError, ValueError: an argument outside its range, or a string that timm does not know.
    """

    config: str
    mean: Sequence[float] | None = None
    interpolation: Any = "random"
    use: PixelUse = field(init=False, repr=False)

    def __post_init__(self) -> None:
        settings = Settings()
        if self.mean is not None:
            mean = arguments.floats("TimmAugment.mean", self.mean, 3)
            if not all(0 <= value <= 1 for value in mean):
                raise ValueError(f"TimmAugment.mean must be in [0, 1]. Found: {self.mean!r}.")
            set_field(self, "mean", mean)
            settings = replace(settings, img_mean=[min(255, round(255 * value)) for value in mean])
        if self.interpolation != "random":
            settings = replace(settings, interpolation=self.interpolation)
        set_field(self, "use", use_of_string(self.config, settings))

    @classmethod
    def of(cls, name: str, use: PixelUse) -> TimmAugment:
        """The spec of an object of timm's."""
        found = object.__new__(cls)
        for key, value in {"config": name, "mean": None, "interpolation": None, "use": use}.items():
            set_field(found, key, value)
        return found


def _operation(op: Any) -> PixelUse:
    """Of an ``AugmentOp`` whose functions are timm's own."""
    for function in (op.aug_fn, op.level_fn):
        if function is not None and getattr(function, "func", function).__module__ != _MODULE:
            raise ValueError(f"{op.name} has a function that is not timm's")
    settings = Settings(
        translate_const=op.hparams.get("translate_const", 250),
        translate_pct=op.hparams.get("translate_pct", 0.45),
        img_mean=op.kwargs["fillcolor"],
        interpolation=op.kwargs["resample"],
        magnitude_std=op.magnitude_std,
        magnitude_max=op.magnitude_max,
    )
    return operation(op.name, min(max(float(op.prob), 0.0), 1.0), op.magnitude, settings)


def _from_rand(item: Any) -> tuple[TimmAugment]:
    ops = [_operation(op) for op in item.ops]
    weights = None if item.choice_weights is None else [float(weight) for weight in item.choice_weights]
    return (TimmAugment.of("timm's RandAugment", rand(ops, item.num_layers, weights)),)


def _from_auto(item: Any) -> tuple[TimmAugment]:
    return (
        TimmAugment.of("timm's AutoAugment", auto([[_operation(op) for op in ops] for ops in item.policy])),
    )


def _from_mixed(item: Any) -> tuple[TimmAugment]:
    ops = [_operation(op) for op in item.ops]
    if not 0 < item.alpha < inf:
        raise ValueError(f"alpha is {item.alpha}")
    use = mixed(ops, item.alpha, item.width, item.depth, item.blended)
    return (TimmAugment.of("timm's AugMixAugment", use),)


def _add_timm_augment(draft: Draft, spec: TimmAugment, strict: bool) -> Draft:
    return use_of_pixels(draft, spec, spec.use)


TIMM_AUGMENT = Operation(
    TimmAugment,
    _add_timm_augment,
    {
        f"{_MODULE}.RandAugment": _from_rand,
        f"{_MODULE}.AutoAugment": _from_auto,
        f"{_MODULE}.AugMixAugment": _from_mixed,
    },
    pictures_only=True,
)
