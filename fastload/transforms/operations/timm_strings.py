"""timm's configuration strings, as timm 1.0's ``timm.data.auto_augment`` reads them; but what timm overlooks
in a string is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from fastload.transforms.operations.sub_policies import IMAGENET_V0, SUB_POLICIES, SubPolicy
from fastload.transforms.operations.timm_groups import auto, mixed, rand
from fastload.transforms.operations.timm_levels import Settings, operation
from fastload.transforms.plan import PixelUse

__all__ = ["use_of_string"]

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
