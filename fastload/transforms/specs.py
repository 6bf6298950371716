"""The transforms: frozen dataclasses with torchvision's names, arguments and defaults, checked when made.

They hold no pixel code. ``fastload.DataLoader(transform=...)`` compiles them for the C++ core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments

__all__ = [
    "CenterCrop",
    "Compose",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "Spec",
    "ToDtype",
]


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part of the picture, resized to ``size``.

    The crop is drawn by torchvision's ``RandomResizedCrop.get_params``: ten tries at an area of ``scale``
    times the picture's and a ratio (width over height) uniform in logarithm over ``ratio``, then the
    central crop. The resize equals Pillow 13's on uint8, bit for bit.

    Args:
        size: ``(height, width)`` of the result in pixels; an int for a square.
        scale: least and greatest share of the picture's area, ``0 < least <= greatest``.
        ratio: least and greatest width over height, ``0 < least <= greatest``.
        interpolation: ``"bilinear"`` or ``"bicubic"`` (or torchvision's ``InterpolationMode``).
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "RandomResizedCrop"
        _set(self, "size", arguments.pair(f"{where}.size", self.size))
        for name in ("scale", "ratio"):
            low, high = arguments.floats(f"{where}.{name}", getattr(self, name), 2)
            if not 0 < low <= high:
                raise ValueError(
                    f"{where}.{name} must be (least, greatest) with 0 < least <= greatest. "
                    f"Found: {(low, high)}."
                )
            _set(self, name, (low, high))
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        _set(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


@dataclass(frozen=True)
class Resize:
    """The picture resized; equal to Pillow 13's resize on uint8, bit for bit.

    Args:
        size: an int: the shorter side gets ``size`` pixels, the longer one
            ``int(size * longer / shorter)``. Two ints: exactly ``(height, width)``.
        interpolation: ``"bilinear"`` or ``"bicubic"`` (or torchvision's ``InterpolationMode``).
        max_size: greatest longer side, more than ``size``; only where ``size`` is an int.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int | Sequence[int]
    interpolation: Any = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "Resize"
        if isinstance(self.size, Sequence) and len(self.size) == 2:
            _set(self, "size", arguments.pair(f"{where}.size", self.size))
            if self.max_size is not None:
                raise ValueError(f"{where}.max_size needs an int as size. Found: size {self.size!r}.")
        else:
            shorter, _ = arguments.pair(f"{where}.size", self.size)
            _set(self, "size", shorter)
            if self.max_size is not None and arguments.side(f"{where}.max_size", self.max_size) <= shorter:
                raise ValueError(
                    f"{where}.max_size must be more than size, {shorter}. Found: {self.max_size}."
                )
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        _set(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


@dataclass(frozen=True)
class CenterCrop:
    """The middle ``(height, width)`` pixels; a smaller picture is padded with zeros, as torchvision does.

    Raises:
        TypeError, ValueError: a side outside [1, 65500] pixels.
    """

    size: int | Sequence[int]

    def __post_init__(self) -> None:
        _set(self, "size", arguments.pair("CenterCrop.size", self.size))


@dataclass(frozen=True)
class RandomCrop:
    """``(height, width)`` pixels at a random place of the picture, every place as likely.

    torchvision's ``RandomCrop`` without padding. A picture that is smaller is an error of the batch: put a
    :class:`Resize` to at least this size before it.

    Raises:
        TypeError, ValueError: a side outside [1, 65500] pixels.
    """

    size: int | Sequence[int]

    def __post_init__(self) -> None:
        _set(self, "size", arguments.pair("RandomCrop.size", self.size))


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """The picture mirrored left to right with probability ``p``, in [0, 1].

    Raises:
        ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        (probability,) = arguments.floats("RandomHorizontalFlip.p", (self.p,), 1)
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"RandomHorizontalFlip.p must be in [0, 1]. Found: {self.p!r}.")
        _set(self, "p", probability)


@dataclass(frozen=True)
class Normalize:
    """``(x - mean) / std`` for each channel, x scaled to [0, 1] first where it still is uint8; gives float32.

    Unlike torchvision's, it may stand directly after the geometric transforms: then it means
    ``(x / 255 - mean) / std``. Computed in float32 and rounded once if :class:`ToDtype` asks for less.

    Raises:
        TypeError, ValueError: not three finite numbers each, or a ``std`` of 0.
    """

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        _set(self, "mean", arguments.floats("Normalize.mean", self.mean, 3))
        std = arguments.floats("Normalize.std", self.std, 3)
        if 0.0 in std:
            raise ValueError(f"Normalize.std must not be 0. Found: {std}.")
        _set(self, "std", std)


@dataclass(frozen=True)
class ToDtype:
    """The samples' dtype: ``"uint8"``, ``"float16"``, ``"bfloat16"`` or ``"float32"`` (or torch's dtype).

    Args:
        dtype: the dtype; float16 and bfloat16 are rounded to nearest even from float32.
        scale: from uint8 to float, divide by 255.

    Raises:
        ValueError: another dtype.
    """

    dtype: Any
    scale: bool = False

    def __post_init__(self) -> None:
        _set(self, "dtype", arguments.dtype_name("ToDtype.dtype", self.dtype))


@dataclass(frozen=True)
class Compose:
    """Transforms, one after the other. May hold other :class:`Compose` objects and any callables.

    Raises:
        TypeError: something that is neither a transform nor callable.
    """

    transforms: Iterable[Any]

    def __post_init__(self) -> None:
        parts = tuple(self.transforms)
        for part in parts:
            if not isinstance(part, (*SPECS, Compose)) and not callable(part):
                raise TypeError(f"Compose takes transforms and callables. Found: {part!r}.")
        _set(self, "transforms", parts)


Spec = RandomResizedCrop | Resize | CenterCrop | RandomCrop | RandomHorizontalFlip | Normalize | ToDtype
SPECS = (RandomResizedCrop, Resize, CenterCrop, RandomCrop, RandomHorizontalFlip, Normalize, ToDtype)
Tail = Callable[[Any], Any]


def _set(spec: Any, name: str, value: Any) -> None:
    """Writes a checked field of a frozen dataclass, during its construction."""
    object.__setattr__(spec, name, value)
