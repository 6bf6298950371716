"""Resizes: to a fixed size, a random one, a letterbox, or one that a rule gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_pair,
    from_torchvision_antialias,
    resize,
    set_field,
)
from fastload.transforms.plan import GeometryUse

# ---- Fixed size -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resize:
    """Resize the picture; equal to Pillow 13's resize on uint8, bit for bit.

    Args:
        size: an int: the shorter side gets ``size`` pixels, the longer one
            ``int(size * longer / shorter)``. Two ints: exactly ``(height, width)``.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"lanczos"`` (or torchvision's
            ``InterpolationMode``).
        max_size: greatest longer side, more than ``size``; only if ``size`` is an int.
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
            set_field(self, "size", arguments.pair(f"{where}.size", self.size))
            if self.max_size is not None:
                raise ValueError(f"{where}.max_size needs an int as size. Found: size {self.size!r}.")
        else:
            shorter, _ = arguments.pair(f"{where}.size", self.size)
            set_field(self, "size", shorter)
            if self.max_size is not None and arguments.side(f"{where}.max_size", self.max_size) <= shorter:
                raise ValueError(
                    f"{where}.max_size must be more than size, {shorter}. Found: {self.max_size}."
                )
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add_resize(draft: Draft, spec: Resize, strict: bool) -> Draft:
    if isinstance(spec.size, int):
        use = GeometryUse("resize_shorter", (spec.size, spec.max_size or 0))
    else:
        size = as_pair(spec.size)
        use = GeometryUse("resize_exact", size, size)
    return resize(draft, spec, spec.interpolation, use)


def _resize_from_torchvision(item: Any) -> tuple[Resize]:
    return (Resize(item.size, item.interpolation, item.max_size, from_torchvision_antialias(item)),)


RESIZE = Operation(Resize, _add_resize, {"Resize": _resize_from_torchvision})


# ---- Random size ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomResize:
    """Resize the picture so that its shorter side is a uniformly random whole number of pixels in
    ``[min_size, max_size)``: torchvision's ``RandomResize``, used to train segmentation.

    Args:
        min_size: least size of the shorter side.
        max_size: its greatest size plus one.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"lanczos"``.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    min_size: int
    max_size: int
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "RandomResize"
        least = arguments.side(f"{where}.min_size", self.min_size)
        end = arguments.side(f"{where}.max_size", self.max_size)
        if not least < end:
            raise ValueError(f"{where}: min_size < max_size. Found: {(least, end)}.")
        set_field(self, "min_size", least)
        set_field(self, "max_size", end)
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add_random_resize(draft: Draft, spec: RandomResize, strict: bool) -> Draft:
    use = GeometryUse("random_resize", (spec.min_size, spec.max_size), drawn=True)
    return resize(draft, spec, spec.interpolation, use)


def _random_resize_from_torchvision(item: Any) -> tuple[RandomResize]:
    antialias = from_torchvision_antialias(item)
    return (RandomResize(item.min_size, item.max_size, item.interpolation, antialias),)


RANDOM_RESIZE = Operation(RandomResize, _add_random_resize, {"RandomResize": _random_resize_from_torchvision})


# ---- One of several sizes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomShortestSize:
    """Resize the picture in proportion, so that the shorter side has one of the sizes ``min_size``, drawn
    uniformly, and the longer side at most ``max_size``: torchvision's ``RandomShortestSize``, used to train
    detectors. As in torchvision, the shorter side may come out a pixel smaller.

    Args:
        min_size: the sizes, or one.
        max_size: greatest longer side; None: no bound.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"lanczos"``.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "RandomShortestSize"
        sizes = self.min_size if isinstance(self.min_size, Sequence) else (self.min_size,)
        if not sizes:
            raise ValueError(f"{where}.min_size must have at least one size. Found: none.")
        set_field(self, "min_size", tuple(arguments.side(f"{where}.min_size", size) for size in sizes))
        if self.max_size is not None:
            set_field(self, "max_size", arguments.side(f"{where}.max_size", self.max_size))
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add_random_shortest_size(draft: Draft, spec: RandomShortestSize, strict: bool) -> Draft:
    sizes = spec.min_size if isinstance(spec.min_size, Sequence) else (spec.min_size,)
    use = GeometryUse("random_shortest_size", (spec.max_size or 0, *sizes), drawn=True)
    return resize(draft, spec, spec.interpolation, use)


def _random_shortest_size_from_torchvision(item: Any) -> tuple[RandomShortestSize]:
    antialias = from_torchvision_antialias(item)
    return (RandomShortestSize(item.min_size, item.max_size, item.interpolation, antialias),)


RANDOM_SHORTEST_SIZE = Operation(
    RandomShortestSize,
    _add_random_shortest_size,
    {"RandomShortestSize": _random_shortest_size_from_torchvision},
)


# ---- Random factor ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScaleJitter:
    """Resize the picture in proportion, to a random multiple of the size at which it fits ``target_size``:
    torchvision's ``ScaleJitter``, the first half of large scale jitter (:class:`FixedSizeCrop` is the
    second).

    Like torchvision, it exchanges height and width of ``target_size``, which makes no difference for squares.
    A side is at least 1 pixel.

    Args:
        target_size: ``(height, width)``; an int for a square.
        scale_range: least and greatest factor, which is uniform between them.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"lanczos"``.
        antialias: only ``True``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    target_size: int | Sequence[int]
    scale_range: Sequence[float] = (0.1, 2.0)
    interpolation: Any = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        where = "ScaleJitter"
        set_field(self, "target_size", arguments.pair(f"{where}.target_size", self.target_size))
        low, high = arguments.floats(f"{where}.scale_range", self.scale_range, 2)
        if not 0.0 < low <= high:
            raise ValueError(
                f"{where}.scale_range must be (least, greatest), 0 < least <= greatest. Found: {(low, high)}."
            )
        set_field(self, "scale_range", (low, high))
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        arguments.require_antialias(f"{where}.antialias", self.antialias)


def _add_scale_jitter(draft: Draft, spec: ScaleJitter, strict: bool) -> Draft:
    use = GeometryUse("scale_jitter", (*as_pair(spec.target_size), *spec.scale_range), drawn=True)
    return resize(draft, spec, spec.interpolation, use)


def _scale_jitter_from_torchvision(item: Any) -> tuple[ScaleJitter]:
    antialias = from_torchvision_antialias(item)
    return (ScaleJitter(item.target_size, item.scale_range, item.interpolation, antialias),)


SCALE_JITTER = Operation(ScaleJitter, _add_scale_jitter, {"ScaleJitter": _scale_jitter_from_torchvision})


# ---- Letterbox --------------------------------------------------------------------------------------

_RULES = ("dataset", "letterbox")


@dataclass(frozen=True)
class Letterbox:
    """Resize the whole picture in proportion to fit ``size``, and fill around it. Positions of pictures
    and boxes are those of Ultralytics (8.4); pixels are Pillow's antialiased bilinear ones, not OpenCV's.

    Args:
        size: ``(height, width)`` of the result, which may differ only with the rule "letterbox"; an int for
            a square.
        fill: see :class:`Pad`.
        rule: ``"dataset"``, as Ultralytics' dataset does in validation: the longer side gets ``size`` pixels,
            the other one is rounded up. ``"letterbox"``, as its LetterBox does in prediction: sides are
            rounded, halves to even.
        scaleup: enlarge smaller pictures; False only with the rule "letterbox".
        center: put the picture in the middle (an odd pixel goes right or bottom); False: at the top
            left.

    Raises:
        TypeError, ValueError: an argument is outside its range, or does not go with the rule.
    """

    size: int | Sequence[int] = 640
    fill: Any = 114
    rule: str = "dataset"
    scaleup: bool = True
    center: bool = True

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("Letterbox.size", self.size))
        arguments.fill_of("Letterbox.fill", self.fill)
        if self.rule not in _RULES:
            raise ValueError(f"Letterbox.rule must be 'dataset' or 'letterbox'. Found: {self.rule!r}.")
        for name in ("scaleup", "center"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"Letterbox.{name} must be True or False. Found: {getattr(self, name)!r}.")
        height, width = as_pair(self.size)
        if self.rule == "dataset" and (height != width or not self.scaleup):
            raise ValueError(
                "Letterbox by the rule 'dataset' has one size for both sides, and enlarges smaller pictures. "
                f"Found: size {(height, width)}, scaleup {self.scaleup}. Give rule='letterbox'."
            )


def _add_letterbox(draft: Draft, spec: Letterbox, strict: bool) -> Draft:
    size = as_pair(spec.size)
    numbers = *size, spec.rule == "dataset", spec.scaleup, spec.center
    fill = arguments.fill_of("Letterbox.fill", spec.fill)
    use = GeometryUse("letterbox", tuple(map(float, numbers)), size, fill=fill)
    return resize(draft, spec, "bilinear", use)


LETTERBOX = Operation(Letterbox, _add_letterbox, {})


# ---- Size by patches --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResizeToPatches:
    """Resize the picture in proportion to the largest size that has at most ``most`` patches, with sides
    rounded up to whole patches, for NaFlex models: timm's ``get_image_size_for_seq``.

    Args:
        patch: height and width of a patch in pixels.
        most: greatest number of patches per picture.
        max_ratio: greatest factor by which a picture is enlarged; None: no bound.
        interpolation: ``"bilinear"``, ``"bicubic"`` or ``"lanczos"``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    patch: int = 16
    most: int = 1024
    max_ratio: float | None = None
    interpolation: Any = "bilinear"

    def __post_init__(self) -> None:
        where = "ResizeToPatches"
        set_field(self, "patch", arguments.side(f"{where}.patch", self.patch))
        set_field(self, "most", arguments.whole(f"{where}.most", self.most, 1, 1 << 24))
        if self.max_ratio is not None:
            (ratio,) = arguments.floats(f"{where}.max_ratio", (self.max_ratio,), 1)
            if ratio <= 0:
                raise ValueError(f"{where}.max_ratio must be above 0. Found: {self.max_ratio!r}.")
            set_field(self, "max_ratio", ratio)
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)


def _add_resize_to_patches(draft: Draft, spec: ResizeToPatches, strict: bool) -> Draft:
    use = GeometryUse("resize_to_patches", (spec.patch, spec.most, spec.max_ratio or 0.0))
    return resize(draft, spec, spec.interpolation, use)


RESIZE_TO_PATCHES = Operation(ResizeToPatches, _add_resize_to_patches, {})
