"""Operations that move pixels: flips, quarter turns, rotations, affine and perspective transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Misplaced,
    Operation,
    Stage,
    as_center,
    as_torch_draws,
    center_numbers,
    drawn_in,
    flip,
    pixels,
    set_field,
)
from fastload.transforms.plan import GeometryUse

# ---- Horizontal flip --------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Flip the picture left to right with probability ``p``, in [0, 1].

    Raises:
        ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomHorizontalFlip.p", self.p))


def _add_random_horizontal_flip(draft: Draft, spec: RandomHorizontalFlip, strict: bool) -> Draft:
    return flip(draft, spec, "horizontal_flip")


RANDOM_HORIZONTAL_FLIP = Operation(
    RandomHorizontalFlip,
    _add_random_horizontal_flip,
    {"RandomHorizontalFlip": lambda item: (RandomHorizontalFlip(item.p),)},
)


# ---- Vertical flip ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomVerticalFlip:
    """Flip the picture top to bottom with probability ``p``, in [0, 1].

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomVerticalFlip.p", self.p))


def _add_random_vertical_flip(draft: Draft, spec: RandomVerticalFlip, strict: bool) -> Draft:
    return flip(draft, spec, "vertical_flip")


RANDOM_VERTICAL_FLIP = Operation(
    RandomVerticalFlip,
    _add_random_vertical_flip,
    {"RandomVerticalFlip": lambda item: (RandomVerticalFlip(item.p),)},
)


# ---- Quarter turns ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomQuarterTurn:
    """Turn the picture counter-clockwise by quarters, as ``numpy.rot90`` does, without interpolation. With
    a flip before or after it, the results are the eight symmetries of a square.

    An odd number of quarters exchanges height and width: if these differ, so do the sizes of samples.

    Args:
        turns: numbers of quarters, each in [0, 3], from which one is drawn uniformly for each sample; a
            repeated number is more likely.

    Raises:
        TypeError, ValueError: there are no numbers, or one is outside [0, 3].
    """

    turns: int | Sequence[int] = (0, 1, 2, 3)

    def __post_init__(self) -> None:
        turns = (self.turns,) if isinstance(self.turns, int) else tuple(self.turns)
        if not turns:
            raise ValueError(
                "RandomQuarterTurn.turns must have at least one number of quarters. Found: none."
            )
        turns = tuple(arguments.whole("RandomQuarterTurn.turns", turn, 0, 3) for turn in turns)
        set_field(self, "turns", turns)


def _upside_down_before(draft: Draft, spec: RandomQuarterTurn) -> Draft:
    """Return the draft with an earlier vertical flip of pixels as a step of the geometry: after a quarter
    turn it would be a horizontal one."""
    flips = draft.plan.pixels
    if not flips:
        return draft
    if len(flips) > 1 or flips[0].name != "vertical_flip":
        raise Misplaced(
            f"{spec!r} must come before the operations on pixels, except for one RandomVerticalFlip, if a "
            "crop or a resize comes before these. Move it to the front of them."
        )
    (flip,) = flips
    use = GeometryUse(
        "vertical_flip", (flip.probability,), keeps_size=True, drawn=0.0 < flip.probability < 1.0
    )
    return replace(draft, plan=replace(draft.plan, pixels=(), geometry=(*draft.plan.geometry, use)))


def _add_random_quarter_turn(draft: Draft, spec: RandomQuarterTurn, strict: bool) -> Draft:
    draft = draft.on_source()
    if draft.in_group or draft.stage is Stage.TURN or draft.stage > Stage.PIXELS:
        raise Misplaced(
            f"{spec!r} is there twice, in a group, or after ToDtype or Normalize. Put it once, after crops, "
            "resizes and pads, and before the operations on pixels."
        )
    draft = _upside_down_before(draft, spec)
    turns = tuple(spec.turns) if not isinstance(spec.turns, int) else (spec.turns,)
    use = GeometryUse(
        "quarter_turn",
        tuple(float(turn) for turn in turns),
        _size_behind(draft.plan.output_size, turns),
        drawn=len(set(turns)) > 1,
    )
    return draft.then(Stage.TURN, geometry=(*draft.plan.geometry, use))


def _size_behind(size: tuple[int, int] | None, turns: Sequence[int]) -> tuple[int, int] | None:
    """Return height and width after the turn, if they are the same for all samples."""
    if size is None:
        return None
    sizes = {size if turn % 2 == 0 else size[::-1] for turn in turns}
    return sizes.pop() if len(sizes) == 1 else None


RANDOM_QUARTER_TURN = Operation(RandomQuarterTurn, _add_random_quarter_turn, {})


# ---- Rotation ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomRotation:
    """Turn the picture counter-clockwise by an angle that is uniform in a range: Pillow's ``Image.rotate``,
    bit for bit.

    Args:
        degrees: the range (low, high), or one number for (-number, number).
        interpolation: "nearest", "bilinear" or "bicubic", torchvision's or Pillow's.
        expand: only False: pictures keep their size.
        center: (x, y) in pixels of the cropped picture, from its upper left corner; None: its middle.
        fill: colour around the picture: a number in [0, 255], or one for each channel.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    degrees: Any
    interpolation: Any = "nearest"
    expand: bool = False
    center: Any = None
    fill: Any = 0

    def __post_init__(self) -> None:
        set_field(self, "degrees", arguments.span("RandomRotation.degrees", self.degrees))
        name = arguments.filter_name("RandomRotation.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        if self.expand:
            raise ValueError(
                "RandomRotation.expand must be False: pictures of a batch keep their size. Found: "
                f"{self.expand!r}. Use torchvision's RandomRotation, which runs in Python."
            )
        set_field(self, "expand", False)
        set_field(self, "center", as_center("RandomRotation.center", self.center))
        set_field(self, "fill", arguments.colour("RandomRotation.fill", self.fill))


def _add_random_rotation(draft: Draft, spec: RandomRotation, strict: bool) -> Draft:
    last = arguments.filter_and_fill(spec.interpolation, spec.fill)
    return pixels(draft, spec, "rotate", 1.0, drawn_in(spec.degrees), *center_numbers(spec.center), *last)


RANDOM_ROTATION = Operation(
    RandomRotation,
    _add_random_rotation,
    {
        "RandomRotation": lambda item: (
            RandomRotation(
                as_torch_draws(item.degrees), item.interpolation, item.expand, item.center, item.fill
            ),
        )
    },
    pictures_only=True,
)


# ---- Affine -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomAffine:
    """Turn, move, scale and shear the picture about its centre, each by a number that is uniform in a range,
    as torchvision does with Pillow pictures, bit for bit.

    Args:
        degrees: the range (low, high) of the angle, clockwise, or one number for (-number, number).
        translate: the largest shifts as shares of width and height, in [0, 1]; None: not moved.
        scale: the range (low, high), above 0; None: 1.
        shear: the range of the angle along x, like ``degrees``, or four numbers, for x and y; None: 0.
        interpolation: "nearest", "bilinear" or "bicubic", torchvision's or Pillow's.
        fill: colour around the picture: a number in [0, 255], or one for each channel.
        center: (x, y) in pixels of the cropped picture, from its upper left corner; None: its middle.
        version: 1 for ``torchvision.transforms``, 2 for its ``v2``, which rounds differently.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    degrees: Any
    translate: Any = None
    scale: Any = None
    shear: Any = None
    interpolation: Any = "nearest"
    fill: Any = 0
    center: Any = None
    version: int = 1

    def __post_init__(self) -> None:
        set_field(self, "degrees", arguments.span("RandomAffine.degrees", self.degrees))
        if self.translate is not None:
            translate = arguments.floats("RandomAffine.translate", self.translate, 2)
            if not all(0 <= part <= 1 for part in translate):
                raise ValueError(f"RandomAffine.translate must be in [0, 1]. Found: {self.translate!r}.")
            set_field(self, "translate", translate)
        if self.scale is not None:
            scale = arguments.ordered(
                "RandomAffine.scale", *arguments.floats("RandomAffine.scale", self.scale, 2)
            )
            if scale[0] <= 0:
                raise ValueError(f"RandomAffine.scale must be above 0. Found: {self.scale!r}.")
            set_field(self, "scale", scale)
        set_field(self, "shear", _shear(self.shear))
        set_field(
            self, "interpolation", arguments.filter_name("RandomAffine.interpolation", self.interpolation)
        )
        set_field(self, "fill", arguments.colour("RandomAffine.fill", self.fill))
        set_field(self, "center", as_center("RandomAffine.center", self.center))
        set_field(self, "version", arguments.whole("RandomAffine.version", self.version, 1, 2))


def _shear(value: Any) -> tuple[float, ...] | None:
    """Return the ranges along x and y."""
    where = "RandomAffine.shear"
    if value is None:
        return None
    if isinstance(value, Sequence) and len(value) == 4:
        numbers = arguments.floats(where, value, 4)
        return *arguments.ordered(where, *numbers[:2]), *arguments.ordered(where, *numbers[2:])
    return *arguments.span(where, value), 0.0, 0.0


def _add_random_affine(draft: Draft, spec: RandomAffine, strict: bool) -> Draft:
    share_x, share_y = spec.translate or (0.0, 0.0)
    low_x, high_x, low_y, high_y = spec.shear or (0.0,) * 4
    ranges = (
        spec.degrees,
        (-share_x, share_x),
        (-share_y, share_y),
        spec.scale or (1.0, 1.0),
        (low_x, high_x),
        (low_y, high_y),
    )
    last = arguments.filter_and_fill(spec.interpolation, spec.fill)
    numbers = (*map(drawn_in, ranges), *center_numbers(spec.center), float(spec.version), *last)
    return pixels(draft, spec, "affine", 1.0, *numbers)


def _random_affine_from_torchvision(item: Any) -> tuple[RandomAffine]:
    version = 2 if type(item).__module__.startswith("torchvision.transforms.v2") else 1
    degrees, scale, shear = map(as_torch_draws, (item.degrees, item.scale, item.shear))
    drawn = degrees, item.translate, scale, shear
    return (RandomAffine(*drawn, item.interpolation, item.fill, item.center, version),)


RANDOM_AFFINE = Operation(
    RandomAffine, _add_random_affine, {"RandomAffine": _random_affine_from_torchvision}, pictures_only=True
)


# ---- Perspective ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomPerspective:
    """Pull the picture's corners inwards, with probability ``p``, each by up to ``distortion_scale`` of half
    the sides, as torchvision does with Pillow pictures. Pictures one pixel wide or high stay as they are.

    Args:
        distortion_scale: in [0, 1].
        p: in [0, 1].
        interpolation: "nearest", "bilinear" or "bicubic", torchvision's or Pillow's.
        fill: colour around the picture: a number in [0, 255], or one for each channel.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Any = "bilinear"
    fill: Any = 0

    def __post_init__(self) -> None:
        scale = arguments.probability("RandomPerspective.distortion_scale", self.distortion_scale)
        set_field(self, "distortion_scale", scale)
        set_field(self, "p", arguments.probability("RandomPerspective.p", self.p))
        name = arguments.filter_name("RandomPerspective.interpolation", self.interpolation)
        set_field(self, "interpolation", name)
        set_field(self, "fill", arguments.colour("RandomPerspective.fill", self.fill))


def _add_random_perspective(draft: Draft, spec: RandomPerspective, strict: bool) -> Draft:
    last = arguments.filter_and_fill(spec.interpolation, spec.fill)
    return pixels(draft, spec, "perspective", spec.p, spec.distortion_scale, *last)


RANDOM_PERSPECTIVE = Operation(
    RandomPerspective,
    _add_random_perspective,
    {
        "RandomPerspective": lambda item: (
            RandomPerspective(item.distortion_scale, item.p, item.interpolation, item.fill),
        )
    },
    pictures_only=True,
)
