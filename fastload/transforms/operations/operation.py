"""The compiler's view of an operation: its spec, its place in the order, torchvision's names for it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.plan import Drawn, Fill, GeometryUse, ObjectsUse, PixelUse, Plan

# ---- Drafts and operations --------------------------------------------------------------------------

ORDER = (
    "[Mosaic] -> [MixUp] -> [operations on pixels, as RandomGrayscale] -> [crops and pads: RandomZoomOut, "
    "Pad, CenterCrop, RandomCrop, one RandomIoUCrop] -> "
    "[one of RandomResizedCrop | Resize | ScaleJitter | RandomShortestSize | RandomResize | "
    "ResizeToPatches | Letterbox] -> "
    "[crops and pads, but RandomIoUCrop; FixedSizeCrop last, then Pad] (or BucketCrop for both) -> "
    "[RandomQuarterTurn] -> "
    "[operations on pixels] -> [ToDtype] -> [Normalize] -> [ToDtype] -> [RandomErasing], "
    "with RandomHorizontalFlip, RandomVerticalFlip, ClampBoundingBoxes and SanitizeBoundingBoxes anywhere "
    "before ToDtype, or after it"
)


class Stage(IntEnum):
    """How far a chain has come in the core's order. Any number of crops and pads may stand before and after
    the resize, and any number of operations on pixels; if these come first, they change the whole picture."""

    NOTHING = 0
    RESIZED = 1
    TURN = 2
    PIXELS = 3
    DTYPE = 4
    NORMALIZE = 5
    FINAL_DTYPE = 6
    ERASED = 7


class Misplaced(ValueError):
    """A spec that cannot follow the ones before it; the message says why."""


def misplaced(spec: Any) -> Misplaced:
    """Return the error for a spec that comes too late, or twice."""
    return Misplaced(f"{spec!r} is out of order or there twice. The core's order is {ORDER}.")


@dataclass(frozen=True)
class Draft:
    """What the core does so far, and the stage that it has reached."""

    plan: Plan = field(default_factory=Plan)
    stage: Stage = Stage.NOTHING
    in_group: bool = False  # within a group, where nothing may change the geometry
    of_v2: bool = False  # the next item is torchvision v2's
    tensors: bool = False  # it gets tensors, whose colours torchvision changes differently

    @property
    def moved(self) -> bool:
        """Whether a flip that comes next must be done to the pixels."""
        return self.in_group or any(use.moves for use in self.plan.pixels)

    def on_source(self) -> Draft:
        """Return the draft before its first step of the geometry, so that its operations on pixels change the
        whole picture; the draft itself if it has such a step."""
        plan = self.plan
        if self.stage is not Stage.PIXELS or self.in_group or not plan.keeps_size:
            return self
        source, geometry = plan.pixels, plan.geometry
        if any(use.moves for use in source):  # flips came before these
            if any(use.name not in _FLIPS for use in geometry):
                return self
            flips = tuple(PixelUse(use.name, use.numbers[0]) for use in geometry)
            source, geometry = (*flips, *source), ()
        plan = replace(plan, source=source, pixels=(), geometry=geometry)
        return replace(self, plan=plan, stage=Stage.NOTHING)

    def opened(self, spec: Any) -> Draft:
        """Return the draft with the final operations on boxes as steps of the geometry, so that more may
        follow.

        Raises:
            Misplaced: they come after an operation that moves pixels, or the core cannot do so many.
        """
        plan = self.plan
        objects = plan.objects
        if objects is None or not objects.closed:
            return self
        steps = []
        if objects.clamp:
            steps.append(GeometryUse("clamp_boxes", (), keeps_size=True))
        if objects.inside:
            steps.append(GeometryUse("judge_boxes", (objects.min_size, objects.min_area), keeps_size=True))
        judged = sum(use.name == "judge_boxes" for use in (*plan.geometry, *steps))
        if judged > _MOST_JUDGED or any(use.moves for use in plan.pixels):
            raise misplaced(spec)
        judges = objects.inside or objects.judges
        objects = replace(objects, clamp=False, closed=False, judges=judges)
        if objects.inside:
            objects = replace(objects, inside=False, drop=False)
        return replace(self, plan=replace(plan, geometry=(*plan.geometry, *steps), objects=objects))

    def then(self, stage: Stage, **fields: Any) -> Draft:
        """Return the draft with these fields of its plan changed, at ``stage``."""
        return replace(self, plan=replace(self.plan, **fields), stage=stage)


@dataclass(frozen=True)
class Operation:
    """A row of the registry.

    ``add(draft, spec, strict)`` returns the draft with the operation added, or raises :class:`Misplaced`;
    ``strict``: only if torchvision does the same. ``torchvision`` maps the names of torchvision's classes
    that may be equal (``timm.data.transforms.X``: timm's) to functions from their objects to specs, which
    raise AttributeError, TypeError or ValueError if the object means something else.
    """

    spec: type
    add: Callable[[Draft, Any, bool], Draft]
    torchvision: Mapping[str, Callable[[Any], tuple[Any, ...]]]
    # Whether torchvision gives other pixels for a tensor than for a picture, which the core equals.
    pictures_only: bool = field(default=False, kw_only=True)
    # Whether the core also has the pixels of a tensor, which ``add`` chooses by ``draft.tensors``.
    knows_tensors: bool = field(default=False, kw_only=True)
    # Whether it turns pictures into tensors, in torchvision's chain.
    makes_tensor: bool = field(default=False, kw_only=True)
    # What to use in the core instead of an object that means something else, by its class's name.
    advice: Mapping[str, str] = field(default_factory=dict, kw_only=True)


_MOST_JUDGED = 2  # kMostJudged in csrc/core/transform/view.h
_FLIPS = ("horizontal_flip", "vertical_flip")
_LAST = ("bucket_cover", "fixed_size_crop")  # steps that only pads may follow
_BORDERS = ("pad_border", "pad_border_to")


def geometry(draft: Draft, spec: Any, *uses: GeometryUse, whole: bool = False) -> Draft:
    """Return the draft with more steps that crop or pad; ``whole``: only if nothing was resized before."""
    draft = draft.on_source().opened(spec)
    plan = draft.plan
    before = {use.name for use in plan.geometry}
    pads = all(use.name.startswith("pad") for use in uses)
    if draft.in_group or draft.stage > Stage.RESIZED or (whole and draft.stage is Stage.RESIZED):
        raise misplaced(spec)
    if not pads and not before.isdisjoint(_LAST):
        raise misplaced(spec)
    fills = {_colour_of(use.fill) for use in (*plan.geometry, *uses) if use.fill is not None}
    if len(fills) > 1:
        raise Misplaced(
            f"{spec!r} has another fill than a step before it, and the core has one fill for all: "
            f"{', '.join(map(str, sorted(fills, key=str)))}. CenterCrop's is 0."
        )
    borders = sum(use.name in _BORDERS for use in (*plan.geometry, *uses))
    if borders > 1 or (borders and (fills or whole or plan.mosaic is not None)):
        raise Misplaced(
            f"{spec!r} is in a chain with a border of the picture's own pixels. The core allows one such "
            "border, without any fill and without a later resize."
        )
    masks = tuple(_of_masks(draft, use) for use in uses if _shows_fill(plan, use))
    plan = replace(plan, geometry=(*plan.geometry, *uses), mask_fills=(*plan.mask_fills, *masks))
    return replace(draft, plan=plan)


def _colour_of(fill: Fill) -> tuple[int, ...]:
    """Return the fill of images; several fills of masks are checked when masks are known to exist."""
    return fill.image if len(set(fill.image)) > 1 else fill.image[:1]


def _shows_fill(plan: Plan, use: GeometryUse) -> bool:
    """Return whether a step may show fill, as far as it is known."""
    if use.fill is None or use.name != "center_crop" or not plan.geometry:
        return use.fill is not None
    least, last = max(use.numbers), plan.geometry[-1]
    resized = last.name == "resize_shorter" and last.numbers[0] >= least and not last.numbers[1]
    size = plan.output_size
    return not (resized or (size is not None and min(size) >= least))


def _of_masks(draft: Draft, use: GeometryUse) -> int | None:
    """Return the fill of masks; None: their pixels without a class. torchvision's v2 gives them the fill of
    pictures, if it is one number."""
    assert use.fill is not None
    if use.fill.mask is not None or not draft.of_v2 or len(set(use.fill.image)) > 1:
        return use.fill.mask
    return use.fill.image[0]


def resize(draft: Draft, spec: Any, filter: str | None, *uses: GeometryUse) -> Draft:
    """Return the draft with the step of the geometry that resizes, and the steps that belong to it."""
    if draft.tensors and filter == "bicubic":
        uses = (*uses, GeometryUse("across_first", (), keeps_size=True))
    resized = geometry(draft, spec, *uses, whole=True)
    return resized.then(Stage.RESIZED, filter=filter or resized.plan.filter)


def flip(draft: Draft, spec: Any, name: str) -> Draft:
    """Return the draft with a flip of probability ``spec.p``, at any stage: the core flips last in the
    geometry, and later crops are taken at the mirrored position. If an operation has moved pixels, these
    are flipped."""
    if draft.moved:
        return pixels(draft, spec, name, spec.p)
    use = GeometryUse(name, (spec.p,), keeps_size=True, drawn=0.0 < spec.p < 1.0)
    return draft.then(draft.stage, geometry=(*draft.plan.geometry, use))


def pixels(draft: Draft, spec: Any, name: str, probability: float, *numbers: float | Drawn) -> Draft:
    """Return the draft with an operation on pixels. A later flip runs before it, unless it moves pixels: all
    others are the same for a picture and its mirror image."""
    return use_of_pixels(draft, spec, PixelUse(name, probability, numbers))


def use_of_pixels(draft: Draft, spec: Any, use: PixelUse) -> Draft:
    """Return the draft with an operation on pixels or a group, as :func:`pixels` does."""
    if draft.stage > Stage.PIXELS:
        raise misplaced(spec)
    if use.moves and use.name not in _FLIPS and not draft.in_group:
        draft = draft.opened(spec)
    masks = (*draft.plan.mask_fills, *_masks_behind(draft, use))
    return draft.then(Stage.PIXELS, pixels=(*draft.plan.pixels, use), mask_fills=masks)


def _masks_behind(draft: Draft, use: PixelUse) -> tuple[int | None, ...]:
    """Return the fills of masks, as :func:`_of_masks`, for operations that move pixels."""
    if use.name not in _FILLING:
        return tuple(mask for part in use.parts for mask in _masks_behind(draft, part))
    fill = set(use.numbers[-3:])
    number = use.numbers[-1]
    return (int(number) if draft.of_v2 and len(fill) == 1 and isinstance(number, float) else None,)


_FILLING = ("affine", "perspective", "rotate")  # their last numbers are red, green and blue


def colour_name(draft: Draft, name: str) -> str:
    """Return the core's name of an operation on colours, for the draft's pictures or tensors."""
    return f"tensor_{name}" if draft.tensors and name in _OF_TENSORS else name


_OF_TENSORS = ("grayscale", "contrast", "saturation", "hue")  # the others are the same for both


def drawn_between(low: float, high: float) -> float | Drawn:
    """Return a number that is uniform in [low, high]."""
    return low if low == high else Drawn("uniform", (low, high))


def as_pair(size: Any) -> tuple[int, int]:
    """Return the checked size of a spec, ``(height, width)``."""
    height, width = size
    return height, width


def as_torch_draws(ranges: Any) -> Any:
    """Return torchvision's ranges with equal ends rounded to float32, because torch's ``uniform_``, by which
    it draws, returns float32. Anything else is returned as it is."""
    if not isinstance(ranges, Sequence) or len(ranges) % 2:
        return ranges
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return tuple(end for low, high in pairs for end in ((_float32(low),) * 2 if low == high else (low, high)))


def _float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def set_field(spec: Any, name: str, value: Any) -> None:
    """Write a checked field of a frozen dataclass, during its construction."""
    object.__setattr__(spec, name, value)


def from_torchvision_antialias(item: Any) -> bool:
    """Return whether an object of torchvision's resizes with antialiasing."""
    # None and "warn" were defaults of older releases, which antialiased pictures anyway.
    return getattr(item, "antialias", True) in (True, None, "warn")


# ---- Arguments of motions ---------------------------------------------------------------------------


def as_center(where: str, value: Any) -> tuple[float, float] | None:
    """Return the checked point (x, y) about which a picture is turned; None: its middle."""
    if value is None:
        return None
    x, y = arguments.floats(where, value, 2)
    return x, y


def center_numbers(center: tuple[float, float] | None) -> tuple[float, float, float]:
    """Return a centre as the core takes it."""
    return (0.0, 0.0, 0.0) if center is None else (1.0, *center)


def drawn_in(span: tuple[float, float]) -> float | Drawn:
    """Return a number that is uniform in a range; the number itself if both ends are equal."""
    return span[0] if span[0] == span[1] else Drawn("uniform", span)


# ---- Objects ----------------------------------------------------------------------------------------


def with_objects(draft: Draft, spec: Any, **changes: Any) -> Draft:
    """Return the draft with other settings of :class:`ObjectsUse`.

    Raises:
        Misplaced: it is within a group, which only some samples go through.
    """
    if draft.in_group:
        raise misplaced(spec)
    objects = replace(draft.plan.objects or ObjectsUse(), **changes)
    return replace(draft, plan=replace(draft.plan, objects=objects))
