"""The operations that policies are made of, by torchvision's names and with the signs of their magnitudes.

A policy becomes a tree of groups and operations (:class:`~fastload.transforms.plan.PixelUse`), from which the
core draws for each sample. Translations by a share of the picture need its size, so they stand behind a step
that fixes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Misplaced, set_field
from fastload.transforms.plan import Drawn, PixelUse

__all__ = [
    "Fill",
    "Number",
    "Warp",
    "among",
    "chain",
    "check_fields",
    "choice",
    "leaf",
    "linspace",
    "one_of",
    "posterize_bits",
    "random_depth",
    "size_before",
    "thresholds",
    "use_of",
    "version_of",
    "warp_of",
]

Number = float | Drawn
Fill = float | Sequence[float] | None


Warp = tuple[Number, ...]  # the last numbers of what moves pixels: filter, red, green, blue


def version_of(item: Any) -> int:
    """Whether an object is of ``torchvision.transforms`` (1) or of ``torchvision.transforms.v2`` (2)."""
    return 2 if type(item).__module__.startswith("torchvision.transforms.v2") else 1


def check_fields(spec: Any, **whole: tuple[int, int]) -> None:
    """Checks ``interpolation``, ``fill`` and ``version`` of a policy's spec, during its construction.

    Args:
        spec: the spec.
        whole: of its whole numbers, by name: least and greatest.

    Raises:
        TypeError, ValueError: a field is something else.
    """
    where = type(spec).__name__
    for name, (least, most) in whole.items():
        set_field(spec, name, arguments.whole(f"{where}.{name}", getattr(spec, name), least, most))
    if spec.version not in (1, 2):
        raise ValueError(f"{where}.version must be 1 or 2. Found: {spec.version!r}.")
    set_field(spec, "interpolation", arguments.filter_name(f"{where}.interpolation", spec.interpolation))
    set_field(spec, "fill", arguments.colour(f"{where}.fill", spec.fill))


def warp_of(spec: Any) -> Warp:
    """Of a spec that has gone through :func:`check_fields`."""
    return arguments.filter_and_fill(spec.interpolation, spec.fill)


def among(values: Iterable[float]) -> Number:
    """One of these numbers, each as likely as the others; a number alone is itself."""
    numbers = tuple(values)
    return numbers[0] if len(set(numbers)) == 1 else Drawn("among", numbers)


def chain(parts: Sequence[PixelUse], probability: float = 1.0) -> PixelUse:
    """Parts one after the other."""
    return PixelUse("all", probability, (), tuple(parts))


def choice(parts: Sequence[PixelUse], probability: float = 1.0) -> PixelUse:
    """One of the parts, each as likely as the others."""
    return PixelUse("choice", probability, (1.0,) * len(parts), tuple(parts))


def one_of(space: Mapping[str, Sequence[float]], warp: Warp) -> PixelUse:
    """One of torchvision's operations, each as likely as the others, at one of its magnitudes."""
    return choice([leaf(name, values, warp) for name, values in space.items()])


def linspace(start: float, end: float, bins: int) -> list[float]:
    """The numbers of ``torch.linspace``, which are float32."""
    import torch  # not at the top: the command line does without torch

    return [float(value) for value in torch.linspace(start, end, bins)]


def posterize_bits(most: int, steps: int, bins: int) -> list[float]:
    """torchvision's table of bits to keep: from ``most`` down by ``steps``, rounded to even at halves."""
    import torch

    return [float(bits) for bits in most - (torch.arange(bins) / ((bins - 1) / steps)).round().int()]


def thresholds(bins: int, version: int) -> list[float]:
    """torchvision's thresholds of Solarize: float32 from 255 to 0, and in ``transforms.v2`` from 1 to 0,
    times 255."""
    if version == 1:
        return linspace(255.0, 0.0, bins)
    return [255.0 * value for value in linspace(1.0, 0.0, bins)]


def random_depth(one: PixelUse) -> PixelUse:
    """``one`` once, twice or three times, each as likely as the others."""
    return chain([one, chain([one, chain([one], 1 / 2)], 2 / 3)])


# Of each of torchvision's operations: the core's name, whether magnitudes have a sign, and the core's number
# of a magnitude (None: it has no strength).
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
# What follows the number of those that filter, before filter and fill: a shear is by an angle, as torchvision
# has it; a shift is in pixels, no share of the size, and already whole; a rotation has no centre of its own.
_MORE = {
    "shear_x": (1.0,),
    "shear_y": (1.0,),
    "translate_x": (0.0, 0.0),
    "translate_y": (0.0, 0.0),
    "rotate": (0.0, 0.0, 0.0),
}


def use_of(row: str, number: Number, warp: Warp, probability: float = 1.0) -> PixelUse:
    """One of the core's operations with one number, which shears, shifts and rotates as torchvision's."""
    if row not in _MORE:
        return PixelUse(row, probability, (number,))
    return PixelUse(row, probability, (number, *_MORE[row], *warp))


def leaf(name: str, magnitudes: Sequence[float], warp: Warp, probability: float = 1.0) -> PixelUse:
    """One of torchvision's operations, at one of the magnitudes, which are equally likely; with either sign
    where it has one."""
    row, signed, number_of = _ROWS[name]
    if number_of is None:
        return PixelUse(row, probability)
    signs = (1.0, -1.0) if signed else (1.0,)
    number = among(float(number_of(sign * value)) for value in magnitudes for sign in signs)
    return use_of(row, number, warp, probability)


def size_before(draft: Draft, spec: Any, what: str) -> tuple[int, int]:
    """(height, width) of the picture where a policy stands; raises :class:`Misplaced` where it varies."""
    size = draft.plan.output_size
    if size is None:
        raise Misplaced(
            f"{type(spec).__name__} {what} by a share of the picture's size, which differs from picture to "
            f"picture here. Put it behind RandomResizedCrop, CenterCrop or another step to a size."
        )
    return size
