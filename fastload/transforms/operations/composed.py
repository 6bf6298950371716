"""Combinations of samples: Mosaic, and MixUp of two samples with the objects of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Misplaced,
    Operation,
    Stage,
    misplaced,
    set_field,
    with_objects,
)
from fastload.transforms.plan import MosaicUse

# ---- Mosaic -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mosaic:
    """Put the pictures of four or nine samples on one canvas and show a part of it: Ultralytics' Mosaic and
    RandomPerspective (8.4), with boxes and rows of objects.

    It comes first in a chain; colours, flips and sizes may follow. The other samples are those of this rank
    in the previous eight global batches, in the epoch's order (docs/guide/mosaic.md). Each picture's longer
    side becomes ``size``; the canvas, of twice that size, is turned, scaled, sheared and moved around the
    middle of the sample. Each picture is resized once, antialiased, to its place in the sample; one that
    would be larger there than on the canvas is first resized to its size on the canvas. With turns, shears
    or perspective, the canvas is painted, and moved bilinearly. Boxes are those of Ultralytics; an object
    stays if more than a tenth of its box is visible, more than 2 pixels wide and high. Pictures that are not
    visible are not read.

    Args:
        size: height and width of the sample in pixels, even.
        p: probability; otherwise only the sample's own picture is moved and shown.
        tiles: 4 or 9.
        degrees: greatest angle, in either direction.
        translate: greatest shift, as a share of the size.
        scale: the factor is in [1 - scale, 1 + scale]; below 1.
        shear: greatest angle along each axis in degrees, below 90.
        perspective: the strength of a view from the side, in [0, 0.001].
        fill: colour around pictures: a number in [0, 255], or one for each channel.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int = 640
    p: float = 1.0
    tiles: int = 4
    degrees: float = 0.0
    translate: float = 0.1
    scale: float = 0.5
    shear: float = 0.0
    perspective: float = 0.0
    fill: Any = 114

    def __post_init__(self) -> None:
        size = arguments.whole("Mosaic.size", self.size, 2, 8192)
        if size % 2:
            raise ValueError(f"Mosaic.size must be even. Found: {size}.")
        set_field(self, "size", size)
        set_field(self, "p", arguments.probability("Mosaic.p", self.p))
        if self.tiles not in (4, 9):
            raise ValueError(f"Mosaic.tiles must be 4 or 9. Found: {self.tiles!r}.")
        for name, most in _MOST_MOSAIC.items():
            (number,) = arguments.floats(f"Mosaic.{name}", (getattr(self, name),), 1)
            if not 0 <= number <= most:
                raise ValueError(f"Mosaic.{name} must be in [0, {most:g}]. Found: {number:g}.")
            set_field(self, name, number)
        set_field(self, "fill", arguments.colour("Mosaic.fill", self.fill))


_MOST_MOSAIC = {"degrees": 180.0, "translate": 1.0, "scale": 0.99, "shear": 89.0, "perspective": 0.001}


def _add_mosaic(draft: Draft, spec: Mosaic, strict: bool) -> Draft:
    begun = draft.stage is not Stage.NOTHING or draft.plan.geometry
    if draft.in_group or draft.plan.mosaic is not None:
        raise misplaced(spec)
    if begun:
        raise Misplaced(f"{spec!r} must come first: it puts whole pictures together. Move it to the front.")
    motion = spec.degrees, spec.translate, spec.scale, spec.shear, spec.perspective
    draft = with_objects(draft, spec, clip=True, clamp=True, drop=True, min_size=0.0, min_area=0.0)
    return draft.then(Stage.NOTHING, mosaic=MosaicUse(spec.size, spec.tiles, spec.p, motion, spec.fill))


MOSAIC = Operation(Mosaic, _add_mosaic, {})


# ---- MixUp ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MixUp:
    """Mix a sample with another one, with probability ``p``, and keep the objects of both: Ultralytics' MixUp
    (8.4). It comes directly after :class:`Mosaic`, which the other sample goes through, too.

    The weight of the pictures is from Beta(alpha, alpha); masks are those of the heavier one. To mix whole
    batches for classification, use ``fastload.transforms.batch.MixUp``.

    Args:
        p: in [0, 1].
        alpha: above 0.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    p: float = 0.0
    alpha: float = 32.0

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("MixUp.p", self.p))
        (alpha,) = arguments.floats("MixUp.alpha", (self.alpha,), 1)
        if alpha <= 0:
            raise ValueError(f"MixUp.alpha must be above 0. Found: {alpha:g}.")
        set_field(self, "alpha", alpha)


def _add_mix_up(draft: Draft, spec: MixUp, strict: bool) -> Draft:
    plan = draft.plan
    behind = plan.mosaic is not None and plan.mosaic.mixup == 0.0
    if not behind or draft.stage is not Stage.NOTHING or draft.plan.geometry or draft.in_group:
        raise Misplaced(f"{spec!r} must come directly after Mosaic, once.")
    assert plan.mosaic is not None
    return draft.then(Stage.NOTHING, mosaic=replace(plan.mosaic, mixup=spec.p, alpha=spec.alpha))


MIX_UP = Operation(MixUp, _add_mix_up, {})
