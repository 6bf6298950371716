"""Augmentation policies as trees of operations: AutoAugment, RandAugment, TrivialAugment, AugMix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Misplaced, Operation, set_field, use_of_pixels
from fastload.transforms.plan import Drawn, PixelUse

# ---- Parts of policies ------------------------------------------------------------------------------
# A policy becomes a tree of groups and operations (:class:`~fastload.transforms.plan.PixelUse`), from which
# the core draws for each sample. Translations by a share of the picture need its size, so they must follow
# a step that fixes it.

Number = float | Drawn
Fill = float | Sequence[float] | None
Warp = tuple[Number, ...]  # the last numbers of operations that move pixels: filter, red, green, blue


def version_of(item: Any) -> int:
    """Return 1 for an object of ``torchvision.transforms``, 2 for one of ``torchvision.transforms.v2``."""
    return 2 if type(item).__module__.startswith("torchvision.transforms.v2") else 1


def check_fields(spec: Any, **integers: tuple[int, int]) -> None:
    """Check ``interpolation``, ``fill`` and ``version`` of a policy's spec, during its construction.

    Args:
        spec: the spec.
        integers: least and greatest value of its integer fields, by name.

    Raises:
        TypeError, ValueError: a field is something else.
    """
    where = type(spec).__name__
    for name, (least, most) in integers.items():
        set_field(spec, name, arguments.whole(f"{where}.{name}", getattr(spec, name), least, most))
    if spec.version not in (1, 2):
        raise ValueError(f"{where}.version must be 1 or 2. Found: {spec.version!r}.")
    set_field(spec, "interpolation", arguments.filter_name(f"{where}.interpolation", spec.interpolation))
    set_field(spec, "fill", arguments.colour(f"{where}.fill", spec.fill))


def warp_of(spec: Any) -> Warp:
    """Return the warp of a spec that has gone through :func:`check_fields`."""
    return arguments.filter_and_fill(spec.interpolation, spec.fill)


def among(values: Iterable[float]) -> Number:
    """Draw one of these numbers, equally likely; if there is only one, return it."""
    numbers = tuple(values)
    return numbers[0] if len(set(numbers)) == 1 else Drawn("among", numbers)


def chain(parts: Sequence[PixelUse], probability: float = 1.0) -> PixelUse:
    """Apply the parts one after the other."""
    return PixelUse("all", probability, (), tuple(parts))


def choice(parts: Sequence[PixelUse], probability: float = 1.0) -> PixelUse:
    """Apply one of the parts, equally likely."""
    return PixelUse("choice", probability, (1.0,) * len(parts), tuple(parts))


def one_of(space: Mapping[str, Sequence[float]], warp: Warp) -> PixelUse:
    """Apply one of torchvision's operations, equally likely, at one of its magnitudes."""
    return choice([leaf(name, values, warp) for name, values in space.items()])


def linspace(start: float, end: float, bins: int) -> list[float]:
    """Return the numbers of ``torch.linspace``, which are float32."""
    import torch  # not at the top: the command line works without torch

    return [float(value) for value in torch.linspace(start, end, bins)]


def posterize_bits(most: int, steps: int, bins: int) -> list[float]:
    """Return torchvision's table of bits to keep: from ``most`` down by ``steps``, halves rounded to even."""
    import torch

    return [float(bits) for bits in most - (torch.arange(bins) / ((bins - 1) / steps)).round().int()]


def thresholds(bins: int, version: int) -> list[float]:
    """Return torchvision's thresholds of Solarize: float32 from 255 to 0; in ``transforms.v2`` from 1 to 0,
    times 255."""
    if version == 1:
        return linspace(255.0, 0.0, bins)
    return [255.0 * value for value in linspace(1.0, 0.0, bins)]


def random_depth(part: PixelUse) -> PixelUse:
    """Apply a part once, twice or three times, equally likely."""
    return chain([part, chain([part, chain([part], 1 / 2)], 2 / 3)])


# For each of torchvision's operations: the core's name, whether magnitudes have a sign, and the function from
# a magnitude to the core's number (None: it has no strength).
_ROWS: dict[str, tuple[str, bool, Callable[[float], float] | None]] = {
    "Identity": ("all", False, None),
    "ShearX": ("shear_x", True, float),
    "ShearY": ("shear_y", True, float),
    "TranslateX": ("translate_x", True, int),
    "TranslateY": ("translate_y", True, int),
    "Rotate": ("rotate", True, float),
    "Brightness": ("brightness", True, lambda magnitude: 1.0 + magnitude),
    "Color": ("saturation", True, lambda magnitude: 1.0 + magnitude),
    "Contrast": ("contrast", True, lambda magnitude: 1.0 + magnitude),
    "Sharpness": ("sharpness", True, lambda magnitude: 1.0 + magnitude),
    "Posterize": ("posterize", False, float),
    "Solarize": ("solarize", False, float),
    "AutoContrast": ("autocontrast", False, None),
    "Equalize": ("equalize", False, None),
    "Invert": ("invert", False, None),
}
# Numbers between an operation's own and its filter and fill: a shear is by an angle, as in torchvision; a
# shift is a whole number of pixels, not a share of the size; a rotation is about the picture's middle.
_MORE = {
    "shear_x": (1.0,),
    "shear_y": (1.0,),
    "translate_x": (0.0, 0.0),
    "translate_y": (0.0, 0.0),
    "rotate": (0.0, 0.0, 0.0),
}


def use_of(row: str, number: Number, warp: Warp, probability: float = 1.0) -> PixelUse:
    """Return a use of a core operation with one number, which shears, shifts and rotates as torchvision."""
    if row not in _MORE:
        return PixelUse(row, probability, (number,))
    return PixelUse(row, probability, (number, *_MORE[row], *warp))


def leaf(name: str, magnitudes: Sequence[float], warp: Warp, probability: float = 1.0) -> PixelUse:
    """Return a use of one of torchvision's operations, at one of the equally likely magnitudes; with either
    sign, if it has one."""
    row, signed, number_of = _ROWS[name]
    if number_of is None:
        return PixelUse(row, probability)
    signs = (1.0, -1.0) if signed else (1.0,)
    number = among(float(number_of(sign * value)) for value in magnitudes for sign in signs)
    return use_of(row, number, warp, probability)


def size_before(draft: Draft, spec: Any, what: str) -> tuple[int, int]:
    """Return (height, width) of the picture before a policy; raise :class:`Misplaced` if it varies."""
    size = draft.plan.output_size
    if size is None:
        raise Misplaced(
            f"{type(spec).__name__} {what} by a share of the picture's size, which differs from picture to "
            f"picture here. Put it after RandomResizedCrop, CenterCrop or another step to a fixed size."
        )
    return size


# ---- torchvision's magnitudes -----------------------------------------------------------------------

Space = dict[str, list[float]]  # operations and their magnitudes; [] for those without strength

_ENHANCED = ("Brightness", "Color", "Contrast", "Sharpness")


def auto_augment_space(size: tuple[int, int], bins: int, version: int) -> Space:
    """Return AutoAugment's space, without ``Invert`` also RandAugment's; ``size`` is (height, width)."""
    height, width = size
    return {
        "Identity": [],
        "ShearX": linspace(0.0, 0.3, bins),
        "ShearY": linspace(0.0, 0.3, bins),
        "TranslateX": linspace(0.0, 150.0 / 331.0 * width, bins),
        "TranslateY": linspace(0.0, 150.0 / 331.0 * height, bins),
        "Rotate": linspace(0.0, 30.0, bins),
        **{name: linspace(0.0, 0.9, bins) for name in _ENHANCED},
        "Posterize": posterize_bits(8, 4, bins),
        "Solarize": thresholds(bins, version),
        "AutoContrast": [],
        "Equalize": [],
        "Invert": [],
    }


def trivial_space(bins: int, version: int) -> Space:
    """Return TrivialAugmentWide's space, which shifts by pixels, whatever the picture's size is."""
    return {
        "Identity": [],
        "ShearX": linspace(0.0, 0.99, bins),
        "ShearY": linspace(0.0, 0.99, bins),
        "TranslateX": linspace(0.0, 32.0, bins),
        "TranslateY": linspace(0.0, 32.0, bins),
        "Rotate": linspace(0.0, 135.0, bins),
        **{name: linspace(0.0, 0.99, bins) for name in _ENHANCED},
        "Posterize": posterize_bits(8, 6, bins),
        "Solarize": thresholds(bins, version),
        "AutoContrast": [],
        "Equalize": [],
    }


def augmix_space(size: tuple[int, int], all_ops: bool, version: int) -> Space:
    """Return AugMix's space, in ten bins; ``size`` is (height, width)."""
    height, width = size
    return {
        "ShearX": linspace(0.0, 0.3, 10),
        "ShearY": linspace(0.0, 0.3, 10),
        "TranslateX": linspace(0.0, width / 3.0, 10),
        "TranslateY": linspace(0.0, height / 3.0, 10),
        "Rotate": linspace(0.0, 30.0, 10),
        "Posterize": posterize_bits(4, 4, 10),
        "Solarize": thresholds(10, version),
        "AutoContrast": [],
        "Equalize": [],
        **({name: linspace(0.0, 0.9, 10) for name in _ENHANCED} if all_ops else {}),
    }


# ---- AutoAugment's sub-policies ---------------------------------------------------------------------
# Pairs of operations, each with its probability and its magnitude (0 to 10). Cubuk et al., "AutoAugment:
# Learning Augmentation Policies from Data" (arXiv 1805.09501), tables 7 to 9; the names are torchvision's.

SubPolicy = tuple[tuple[str, float, int], ...]


def _read(table: str) -> tuple[SubPolicy, ...]:
    """Read a table with a line for each sub-policy; magnitudes that are left out become 0."""
    policies = []
    for line in table.strip().splitlines():
        words = [part.split() for part in line.split(",")]
        policies.append(tuple((name, float(p), int(*level)) for name, p, *level in words))
    return tuple(policies)


SUB_POLICIES = {
    "imagenet": _read("""
        Posterize .4 8, Rotate .6 9
        Solarize .6 5, AutoContrast .6
        Equalize .8, Equalize .6
        Posterize .6 7, Posterize .6 6
        Equalize .4, Solarize .2 4
        Equalize .4, Rotate .8 8
        Solarize .6 3, Equalize .6
        Posterize .8 5, Equalize 1
        Rotate .2 3, Solarize .6 8
        Equalize .6, Posterize .4 6
        Rotate .8 8, Color .4 0
        Rotate .4 9, Equalize .6
        Equalize 0, Equalize .8
        Invert .6, Equalize 1
        Color .6 4, Contrast 1 8
        Rotate .8 8, Color 1 2
        Color .8 8, Solarize .8 7
        Sharpness .4 7, Invert .6
        ShearX .6 5, Equalize 1
        Color .4 0, Equalize .6
        Equalize .4, Solarize .2 4
        Solarize .6 5, AutoContrast .6
        Invert .6, Equalize 1
        Color .6 4, Contrast 1 8
        Equalize .8, Equalize .6
    """),
    "cifar10": _read("""
        Invert .1, Contrast .2 6
        Rotate .7 2, TranslateX .3 9
        Sharpness .8 1, Sharpness .9 3
        ShearY .5 8, TranslateY .7 9
        AutoContrast .5, Equalize .9
        ShearY .2 7, Posterize .3 7
        Color .4 3, Brightness .6 7
        Sharpness .3 9, Brightness .7 9
        Equalize .6, Equalize .5
        Contrast .6 7, Sharpness .6 5
        Color .7 7, TranslateX .5 8
        Equalize .3, AutoContrast .4
        TranslateY .4 3, Sharpness .2 6
        Brightness .9 6, Color .2 8
        Solarize .5 2, Invert 0
        Equalize .2, AutoContrast .6
        Equalize .2, Equalize .6
        Color .9 9, Equalize .6
        AutoContrast .8, Solarize .2 8
        Brightness .1 3, Color .7 0
        Solarize .4 5, AutoContrast .9
        TranslateY .9 9, TranslateY .7 9
        AutoContrast .9, Solarize .8 3
        Equalize .8, Invert .1
        TranslateY .7 9, AutoContrast .9
    """),
    "svhn": _read("""
        ShearX .9 4, Invert .2
        ShearY .9 8, Invert .7
        Equalize .6, Solarize .6 6
        Invert .9, Equalize .6
        Equalize .6, Rotate .9 3
        ShearX .9 4, AutoContrast .8
        ShearY .9 8, Invert .4
        ShearY .9 5, Solarize .2 6
        Invert .9, AutoContrast .8
        Equalize .6, Rotate .9 3
        ShearX .9 4, Solarize .3 3
        ShearY .8 8, Invert .7
        Equalize .9, TranslateY .6 6
        Invert .9, Equalize .6
        Contrast .3 3, Rotate .8 4
        Invert .8, TranslateY 0 2
        ShearY .7 6, Solarize .4 8
        Invert .6, Rotate .8 4
        ShearY .3 7, TranslateX .9 3
        ShearX .1 6, Invert .6
        Solarize .7 2, TranslateY .6 7
        ShearY .8 4, Invert .8
        ShearX .7 9, TranslateY .8 3
        ShearY .8 5, AutoContrast .7
        ShearX .7 2, Invert .1
    """),
}

# The sub-policies of EfficientNet's TPU implementation; timm's "v0".
IMAGENET_V0 = _read("""
    Equalize .8, ShearY .8 4
    Color .4 9, Equalize .6
    Color .4 1, Rotate .6 8
    Solarize .8 3, Equalize .4
    Solarize .4 2, Solarize .6 2
    Color .2 0, Equalize .8
    Equalize .4, SolarizeAdd .8 3
    ShearX .2 9, Rotate .6 8
    Color .6 1, Equalize 1
    Invert .4, Rotate .6 0
    Equalize 1, ShearY .6 3
    Color .4 7, Equalize .6
    Posterize .4 6, AutoContrast .4
    Solarize .6 8, Color .6 9
    Solarize .2 4, Rotate .8 9
    Rotate 1 7, TranslateYRel .8 9
    ShearX 0 0, Solarize .8 4
    ShearY .8 0, Color .6 4
    Color 1 0, Rotate .6 2
    Equalize .8, Equalize 0
    Equalize 1, AutoContrast .6
    ShearY .4 7, SolarizeAdd .6 7
    Posterize .8 2, Solarize .6 10
    Solarize .6 8, Equalize .6
    Color .8 6, Rotate .4 5
""")


# ---- AutoAugment ------------------------------------------------------------------------------------

_BINS = 10


@dataclass(frozen=True)
class AutoAugment:
    """Apply one of 25 pairs of operations, each operation with its own probability, with Pillow's pixels.

    Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data" (arXiv 1805.09501), with
    torchvision's operations and magnitudes.

    Args:
        policy: ``"imagenet"``, ``"cifar10"`` or ``"svhn"`` (or torchvision's ``AutoAugmentPolicy``).
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, of what shears, shifts and rotates.
        fill: colour of what comes from outside the picture, in [0, 255]; None: black.
        version: 1 for ``torchvision.transforms``, 2 for ``torchvision.transforms.v2``, whose thresholds of
            Solarize differ in their last bits.

    Raises:
        ValueError: an argument outside its range.
    """

    policy: Any = "imagenet"
    interpolation: Any = "nearest"
    fill: Fill = None
    version: int = 1

    def __post_init__(self) -> None:
        name = getattr(self.policy, "value", self.policy)
        if name not in SUB_POLICIES:
            names = ", ".join(SUB_POLICIES)
            raise ValueError(f"AutoAugment.policy must be one of {names}. Found: {self.policy!r}.")
        set_field(self, "policy", name)
        check_fields(self)


def _add_auto_augment(draft: Draft, spec: AutoAugment, strict: bool) -> Draft:
    size = size_before(draft, spec, "shifts")
    space, warp = auto_augment_space(size, _BINS, spec.version), warp_of(spec)
    pairs = [
        chain([leaf(name, space[name][level : level + 1], warp, chance) for name, chance, level in pair])
        for pair in SUB_POLICIES[spec.policy]
    ]
    return use_of_pixels(draft, spec, choice(pairs))


def _auto_augment_from_torchvision(item: Any) -> tuple[AutoAugment]:
    version = version_of(item)
    policies = tuple(
        tuple((name, chance, level or 0) for name, chance, level in pair)
        for pair in (item.policies if version == 1 else item._policies)
    )
    spec = AutoAugment(item.policy, item.interpolation, item.fill, version)
    if policies != SUB_POLICIES[spec.policy]:
        raise ValueError("its sub-policies are not those of its policy")
    return (spec,)


AUTO_AUGMENT = Operation(
    AutoAugment, _add_auto_augment, {"AutoAugment": _auto_augment_from_torchvision}, pictures_only=True
)


# ---- RandAugment ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandAugment:
    """Apply ``num_ops`` operations one after the other, each drawn from fourteen, with Pillow's pixels.

    Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space"
    (arXiv 1909.13719), with torchvision's operations and magnitudes.

    Args:
        num_ops: how many, in [0, 64].
        magnitude: their strength, in [0, ``num_magnitude_bins``).
        num_magnitude_bins: the number of strengths, at least 2.
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
        check_fields(self, num_ops=(0, 64), num_magnitude_bins=(2, 4096))
        check_fields(self, magnitude=(0, self.num_magnitude_bins - 1))


def _add_rand_augment(draft: Draft, spec: RandAugment, strict: bool) -> Draft:
    size = size_before(draft, spec, "shifts")
    space = auto_augment_space(size, spec.num_magnitude_bins, spec.version)
    del space["Invert"]
    strengths = {name: values[spec.magnitude : spec.magnitude + 1] for name, values in space.items()}
    return use_of_pixels(draft, spec, chain([one_of(strengths, warp_of(spec))] * spec.num_ops))


def _rand_augment_from_torchvision(item: Any) -> tuple[RandAugment]:
    settings = (item.num_ops, item.magnitude, item.num_magnitude_bins, item.interpolation, item.fill)
    return (RandAugment(*settings, version_of(item)),)


RAND_AUGMENT = Operation(
    RandAugment, _add_rand_augment, {"RandAugment": _rand_augment_from_torchvision}, pictures_only=True
)


# ---- TrivialAugment ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrivialAugmentWide:
    """Apply one operation, drawn from fourteen, with a strength that is also drawn, with Pillow's pixels.

    Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation" (arXiv
    2103.10158), with torchvision's operations and magnitudes.

    Args:
        num_magnitude_bins: the number of strengths, in [2, 2048].
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


def _add_trivial_augment_wide(draft: Draft, spec: TrivialAugmentWide, strict: bool) -> Draft:
    space = trivial_space(spec.num_magnitude_bins, spec.version)
    return use_of_pixels(draft, spec, one_of(space, warp_of(spec)))


def _trivial_augment_wide_from_torchvision(item: Any) -> tuple[TrivialAugmentWide]:
    settings = (item.num_magnitude_bins, item.interpolation, item.fill)
    return (TrivialAugmentWide(*settings, version_of(item)),)


TRIVIAL_AUGMENT_WIDE = Operation(
    TrivialAugmentWide,
    _add_trivial_augment_wide,
    {"TrivialAugmentWide": _trivial_augment_wide_from_torchvision},
    pictures_only=True,
)


# ---- AugMix -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AugMix:
    """Mix the picture with the results of ``mixture_width`` chains of operations, with Pillow's pixels.

    Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty" (arXiv
    1912.02781), with torchvision's operations, magnitudes and weights: the picture's share is drawn from
    Beta(alpha, alpha), the rest is divided among the chains by Dirichlet(alpha), added in float32 and
    truncated. torchvision's class converts pictures to tensors and so makes other pixels.

    Args:
        severity: greatest strength, in [1, 10].
        mixture_width: number of chains, in [1, 16].
        chain_depth: operations per chain, in [1, 16]; -1: one to three, drawn for each chain.
        alpha: parameter of the two distributions, in [0.05, 1000].
        all_ops: include brightness, colour, contrast and sharpness.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, of what shears, shifts and rotates.
        fill: colour of what comes from outside the picture, in [0, 255]; None: black.
        version: 1 for ``torchvision.transforms``, 2 for ``torchvision.transforms.v2``, whose thresholds of
            Solarize differ in their last bits.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Any = "bilinear"
    fill: Fill = None
    version: int = 1

    def __post_init__(self) -> None:
        depth = {} if self.chain_depth == -1 else {"chain_depth": (1, 16)}
        check_fields(self, severity=(1, 10), mixture_width=(1, 16), **depth)
        (alpha,) = arguments.floats("AugMix.alpha", (self.alpha,), 1)
        if not 0.05 <= alpha <= 1000:
            raise ValueError(f"AugMix.alpha must be in [0.05, 1000]. Found: {self.alpha!r}.")
        set_field(self, "alpha", alpha)


def _add_aug_mix(draft: Draft, spec: AugMix, strict: bool) -> Draft:
    size = size_before(draft, spec, "shifts")
    space, warp = augmix_space(size, spec.all_ops, spec.version), warp_of(spec)
    step = one_of({name: values[: spec.severity] for name, values in space.items()}, warp)
    branch = random_depth(step) if spec.chain_depth < 0 else chain([step] * spec.chain_depth)
    branches = (branch,) * spec.mixture_width
    return use_of_pixels(draft, spec, PixelUse("augmix", 1.0, (spec.alpha,), branches))


def _aug_mix_from_torchvision(item: Any) -> tuple[AugMix]:
    raise ValueError("it converts pictures to tensors, and its pixels differ from Pillow's")


AUG_MIX = Operation(
    AugMix,
    _add_aug_mix,
    {"AugMix": _aug_mix_from_torchvision},
    pictures_only=True,
    advice={"AugMix": "fastload.transforms.AugMix, the same policy with Pillow's pixels"},
)
