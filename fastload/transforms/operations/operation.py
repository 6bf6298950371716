"""What the compiler knows of an operation: its spec, its place in the order, torchvision's names for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from fastload.transforms.plan import Drawn, GeometryUse, PixelUse, Plan

__all__ = [
    "ORDER",
    "Draft",
    "Misplaced",
    "Operation",
    "Stage",
    "as_pair",
    "drawn_between",
    "from_torchvision_antialias",
    "geometry",
    "misplaced",
    "pixels",
    "set_field",
    "use_of_pixels",
]

ORDER = (
    "[Mosaic] -> [MixUp] -> [operations on pixels, as RandomGrayscale] -> [RandomZoomOut | Pad] -> "
    "[RandomIoUCrop] -> "
    "[RandomResizedCrop | Resize | ScaleJitter | RandomShortestSize | RandomResize | ResizeToPatches | "
    "Letterbox] -> "
    "[CenterCrop | RandomCrop | FixedSizeCrop] (or BucketCrop for both) -> [Pad] -> "
    "[RandomQuarterTurn] -> "
    "[operations on pixels] -> [ToDtype] -> [Normalize] -> [ToDtype] -> [RandomErasing], "
    "with one RandomHorizontalFlip anywhere, and ClampBoundingBoxes or SanitizeBoundingBoxes behind all that "
    "crops or moves"
)


class Stage(IntEnum):
    """The core's order: what follows must be of a higher stage; any number of operations are on pixels, and
    before all others they are on the whole picture's."""

    NOTHING = 0
    EXPAND = 1
    CROP = 2
    RESIZE = 3
    WINDOW = 4
    PAD = 5
    TURN = 6
    PIXELS = 7
    DTYPE = 8
    NORMALIZE = 9
    FINAL_DTYPE = 10
    ERASED = 11


class Misplaced(ValueError):
    """A spec that cannot follow what came before it; the message says why."""


def misplaced(spec: Any) -> Misplaced:
    """The refusal of what comes too late, or twice."""
    return Misplaced(f"{spec!r} is out of order or there twice. The core's order is {ORDER}.")


@dataclass(frozen=True)
class Draft:
    """What the core does so far, the stage reached, whether a flip was there, and whether this is part of a
    group, in which nothing is done to the geometry."""

    plan: Plan = field(default_factory=Plan)
    stage: Stage = Stage.NOTHING
    flipped: bool = False
    in_group: bool = False

    @property
    def moved(self) -> bool:
        """Whether a flip from here on must be done to the pixels."""
        if (
            self.stage < Stage.PIXELS
        ):  # all that moves so far is a vertical flip, with which it may change places
            return self.in_group
        return self.in_group or any(use.moves for use in self.plan.pixels)

    @property
    def is_closed(self) -> bool:
        """Whether boxes were clipped for good: no crop, and nothing that moves pixels, but a flip."""
        return self.plan.objects is not None and self.plan.objects.closed

    def on_source(self) -> Draft:
        """The draft before its first step of the geometry, so that its operations on pixels are on those of
        the whole picture; as it is, where that is not so."""
        plan = self.plan
        if self.stage is not Stage.PIXELS or self.in_group or not plan.keeps_size:
            return self
        source, geometry, flipped = plan.pixels, plan.geometry, self.flipped
        if any(use.moves and use.name != "vertical_flip" for use in source):  # the flip stood before these
            flips = tuple(PixelUse(use.name, use.numbers[0]) for use in geometry)
            source, geometry, flipped = (*flips, *source), (), False
        plan = replace(plan, source=source, pixels=(), geometry=geometry)
        return replace(self, plan=plan, stage=Stage.NOTHING, flipped=flipped)

    def then(self, stage: Stage, **fields: Any) -> Draft:
        """The draft with these fields of its plan changed, at ``stage``."""
        return replace(self, plan=replace(self.plan, **fields), stage=stage)


@dataclass(frozen=True)
class Operation:
    """A row of the registry.

    ``add(draft, spec, strict)`` gives the draft with the operation behind what is there, or raises
    :class:`Misplaced`; ``strict``: only what torchvision means, too. ``torchvision`` has, for each class of
    torchvision's (``timm.data.transforms.X``: timm's) that may mean the same, what makes specs of an object
    of it; it raises AttributeError, TypeError or ValueError where the object means something else.
    """

    spec: type
    add: Callable[[Draft, Any, bool], Draft]
    torchvision: Mapping[str, Callable[[Any], tuple[Any, ...]]]
    # Whether torchvision's of a tensor gives other pixels than Pillow's of a picture, which are the core's.
    pictures_only: bool = field(default=False, kw_only=True)
    # Whether a picture is a tensor behind it, in torchvision's chain.
    makes_tensor: bool = field(default=False, kw_only=True)
    # By the classes' names: what would keep an object in the core that means something else.
    advice: Mapping[str, str] = field(default_factory=dict, kw_only=True)


def geometry(draft: Draft, spec: Any, stage: Stage, use: GeometryUse, filter: str | None = None) -> Draft:
    """The draft with a step of the geometry, which resizes by ``filter`` if it does."""
    draft = draft.on_source()
    if stage <= draft.stage or draft.is_closed:
        raise misplaced(spec)
    plan = draft.plan
    fills = {one.fill for one in (*plan.geometry, use) if one.fill is not None}
    if len(fills) > 1:
        raise Misplaced(
            f"{spec!r} has another fill than a step before it, and the core has one for all: "
            f"{', '.join(map(str, sorted(fills, key=str)))}. CenterCrop's is 0."
        )
    return draft.then(stage, geometry=(*plan.geometry, use), filter=filter or plan.filter)


def pixels(draft: Draft, spec: Any, name: str, probability: float, *numbers: float | Drawn) -> Draft:
    """The draft with an operation on pixels. A flip behind it is done before it, unless it moves pixels: all
    others are the same for a picture and its mirror image."""
    return use_of_pixels(draft, spec, PixelUse(name, probability, numbers))


def use_of_pixels(draft: Draft, spec: Any, use: PixelUse) -> Draft:
    """As :func:`pixels`, of an operation or a group."""
    moves = use.moves and use.name not in ("horizontal_flip", "vertical_flip")
    if draft.stage > Stage.PIXELS or (moves and draft.is_closed):
        raise misplaced(spec)
    return draft.then(Stage.PIXELS, pixels=(*draft.plan.pixels, use))


def drawn_between(low: float, high: float) -> float | Drawn:
    """A number that is uniform in [low, high]."""
    return low if low == high else Drawn("uniform", (low, high))


def as_pair(size: Any) -> tuple[int, int]:
    """The checked size of a spec, which is ``(height, width)``."""
    height, width = size
    return height, width


def set_field(spec: Any, name: str, value: Any) -> None:
    """Writes a checked field of a frozen dataclass, during its construction."""
    object.__setattr__(spec, name, value)


def from_torchvision_antialias(item: Any) -> bool:
    """Whether an object of torchvision's resizes antialiased."""
    # None and "warn" were the defaults of older releases, where pictures were antialiased anyway.
    return getattr(item, "antialias", True) in (True, None, "warn")
