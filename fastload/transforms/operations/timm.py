"""timm's policies as groups of operations, from its configuration strings or its objects."""

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

# ---- Policies ---------------------------------------------------------------------------------------


def rand(ops: Sequence[PixelUse], layers: int, weights: Sequence[float] | None) -> PixelUse:
    """Do as timm's RandAugment: ``layers`` of the operations; with weights, none of them twice."""
    if weights is None:
        return chain([choice(ops)] * layers)
    return PixelUse("some", 1.0, (float(layers), *map(float, weights)), tuple(ops))


def auto(policies: Sequence[Sequence[PixelUse]]) -> PixelUse:
    """Do as timm's AutoAugment: one of the sub-policies."""
    return choice([chain(ops) for ops in policies])


def mixed(ops: Sequence[PixelUse], alpha: float, width: int, depth: int, blended: bool) -> PixelUse:
    """Do as timm's AugMixAugment: chains of ``depth`` operations (one to three if it is not above 0)."""
    step = choice(ops)
    branch = chain([step] * depth) if depth > 0 else random_depth(step)
    return PixelUse("blend_in_turn" if blended else "mix_and_blend", 1.0, (float(alpha),), (branch,) * width)


# ---- Operations -------------------------------------------------------------------------------------
# The strength of each at a magnitude, by timm's names (timm/data/auto_augment.py).

_PER = 10.0  # magnitudes are tenths of the strongest


@dataclass(frozen=True)
class Settings:
    """timm's ``hparams``, with its defaults."""

    translate_const: float = 250.0
    translate_pct: float = 0.45
    img_mean: Sequence[float] = (128, 128, 128)
    interpolation: Any = (2, 3)  # Pillow's number, or several, one of which is drawn for each operation
    magnitude_std: float = 0.0  # inf: uniform between 0 and the magnitude
    magnitude_max: float | None = None

    def warp(self) -> Warp:
        """Return filter and colour; raise TypeError or ValueError if one is not legal."""
        filter = self.interpolation
        several = filter if isinstance(filter, (tuple, list)) else (filter,)
        fill = self.img_mean
        if not isinstance(fill, (tuple, list)) or len(fill) != 3:
            raise ValueError(f"img_mean must be three numbers in [0, 255]. Found: {fill!r}.")
        colour = arguments.colour("img_mean", fill)
        names = [arguments.filter_name("interpolation", name) for name in several]
        filters = [arguments.filter_and_fill(name, colour)[0] for name in names]
        return among(filters), *map(float, colour)


@dataclass(frozen=True)
class Rule:
    """An operation of the core, and its number at a magnitude m: m / 10 * scale, truncated to an integer if
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
        return among(min(max(value + self.offset, self.low), self.high) for value in values)


def _enhanced(row: str) -> Rule:
    return Rule(row, 1.8, offset=0.1)


def _increasing(row: str) -> Rule:
    return Rule(row, 0.9, signed=True, offset=1.0, low=0.1)


# "Rel": by a share of the size. operation() has the rules of the blur's radius.
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
    """Return one of timm's operations as the core takes it.

    Raises:
        ValueError: the core does not have the operation, or these settings of it.
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
    """Shift to either side, so that it does not matter that timm's matrix moves the other way."""
    relative, warp = name.endswith("Rel"), settings.warp()
    scale = settings.translate_pct if relative else float(settings.translate_const)
    number = Rule("", scale, signed=True).number(magnitude, settings)
    where = (0.0, number) if relative else (number, 0.0)
    return PixelUse(RULES[name].row, probability, (*where, 0.0, *warp))


# ---- Configuration strings --------------------------------------------------------------------------
# They are read as by timm 1.0's ``timm.data.auto_augment``, except that sections which timm silently ignores
# are refused here.

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
    """Return the operations that a string stands for; ``settings`` has what the string leaves out.

    Raises:
        TypeError, ValueError: not a string, an unknown policy or section, or one that the core cannot do.
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


def _read_rand(policy: str, sections: Sequence[str], settings: Settings) -> PixelUse:
    values: dict[str, str] = dict(_sections(sections, ("m", "n", "p", "mstd", "mmax", "inc", "t")))
    increasing = bool(int(values.get("inc", "0")))
    if "mstd" in values:
        std = float(values["mstd"])
        settings = replace(settings, magnitude_std=inf if std > 100 else std)
    if "mmax" in values:
        settings = replace(settings, magnitude_max=int(values["mmax"]))
    chosen = _chosen(values.get("t"), increasing)
    weights = list(chosen.values()) if isinstance(chosen, Mapping) else None
    p, magnitude = float(values.get("p", "0.5")), int(values.get("m", "10"))
    ops = [operation(name, min(p, 1.0), magnitude, settings) for name in chosen]
    return rand(ops, _count("n", values, 2), weights)


def _read_auto(policy: str, sections: Sequence[str], settings: Settings) -> PixelUse:
    values = dict(_sections(sections, ("mstd",)))
    settings = replace(settings, magnitude_std=float(values.get("mstd", "0")))
    return auto([[operation(*op, settings) for op in pair] for pair in _POLICIES[policy]])


def _read_augmix(policy: str, sections: Sequence[str], settings: Settings) -> PixelUse:
    values = dict(_sections(sections, ("m", "w", "d", "a", "b", "mstd")))
    std = float(values["mstd"]) if "mstd" in values else inf
    settings = replace(settings, magnitude_std=std, translate_pct=0.3)
    ops = [operation(name, 1.0, int(values.get("m", "3")), settings) for name in _MIXED]
    width, depth = _count("w", values, 3), _count("d", values, 0)
    alpha = float(values.get("a", "1"))
    if not 0.05 <= alpha <= 1000:
        raise ValueError(f"a must be in [0.05, 1000]. Found: {values['a']!r}.")
    return mixed(ops, alpha, width, depth, bool(int(values.get("b", "0"))))


def _count(key: str, values: Mapping[str, str], default: int) -> int:
    number = int(values.get(key, default))
    if not (key == "d" or number >= 1) or number > 16:
        raise ValueError(f"{key} must be in [1, 16]. Found: {number}.")
    return number


def _sections(sections: Sequence[str], keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (key, value) for each section of a string after the first."""
    for section in sections:
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
    return [_INCREASING.get(op, op) for op in names] if increasing else names


def _renamed(policies: tuple[SubPolicy, ...], name: str) -> tuple[SubPolicy, ...]:
    """Return the policies with another kind of Posterize."""
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


# ---- TimmAugment ------------------------------------------------------------------------------------

_MODULE = "timm.data.auto_augment"


@dataclass(frozen=True)
class TimmAugment:
    """Augment as a string of timm's says, like ``timm.data.create_transform(auto_augment=...)``, with
    Pillow's pixels.

    Increasing policies posterize to 0 bits at magnitude 10. Pillow 13 refuses that, and so timm raises; here
    such a picture becomes black, as in Pillow's formula.

    Args:
        config: one of timm's strings. ``rand`` with any of ``m`` (magnitude, 10), ``n`` (operations per
            picture, 2), ``p`` (probability of each, 0.5), ``mstd`` (standard deviation of the magnitude, 0;
            above 100: uniform from 0), ``mmax`` (greatest magnitude, 10), ``inc`` (1: strength always grows
            with the magnitude), ``t`` (operations: ``weights``, ``3a`` or ``3aw``), such as
            ``"rand-m9-mstd0.5-inc1"``. Or ``v0``, ``v0r``, ``original``, ``originalr`` or ``3a``, with or
            without ``mstd``. Or ``augmix`` with any of ``m`` (3), ``w`` (chains, 3), ``d`` (operations per
            chain, by default one to three), ``a`` (alpha of the weights, 1), ``b`` (1: blended chain by
            chain), ``mstd`` (by default uniform from 0).
        mean: Normalize's mean of the channels, in [0, 1]: the colour around the picture; None: gray, 128.
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
        """Return the spec of an object of timm's."""
        spec = object.__new__(cls)
        for key, value in {"config": name, "mean": None, "interpolation": None, "use": use}.items():
            set_field(spec, key, value)
        return spec


def _operation(op: Any) -> PixelUse:
    """Return the operation of an ``AugmentOp`` whose functions are timm's."""
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
