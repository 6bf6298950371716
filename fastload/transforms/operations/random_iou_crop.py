"""A part of the picture that shows enough of an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.of_objects import with_objects
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    geometry,
    misplaced,
    set_field,
)
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomIoUCrop"]

_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True)
class RandomIoUCrop:
    """Crop a random part of the picture that has the centre of an object and overlaps such an object enough:
    torchvision's ``RandomIoUCrop``, the crop of SSD.

    How much is enough is drawn from ``sampler_options``, as an overlap (intersection over union) of the box
    with the part; 1 or more leaves the picture as it is. A part that does not do is drawn again, ``trials``
    times, then another option; a picture without boxes is left as it is, and so is one for which 800 rounds
    find nothing (torchvision goes on for ever). Boxes whose centre is not in the part become zeros:
    :class:`SanitizeBoundingBoxes` behind it drops them, with all that belongs to them.

    Args:
        min_scale, max_scale: least and greatest share of the picture's width and height.
        min_aspect_ratio, max_aspect_ratio: least and greatest width over height of the part.
        sampler_options: overlaps; None for 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
        trials: for each option that is drawn, in [1, 32767].

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    def __post_init__(self) -> None:
        where = "RandomIoUCrop"
        for name, most in (("scale", 1.0), ("aspect_ratio", float("inf"))):
            given = (getattr(self, f"min_{name}"), getattr(self, f"max_{name}"))
            low, high = arguments.floats(f"{where}.min_{name}, max_{name}", given, 2)
            if not 0.0 < low <= high <= most:
                raise ValueError(f"{where}: 0 < min_{name} <= max_{name} <= {most:g}. Found: {(low, high)}.")
            set_field(self, f"min_{name}", low)
            set_field(self, f"max_{name}", high)
        options = tuple(_OPTIONS if self.sampler_options is None else self.sampler_options)
        if not options:
            raise ValueError(f"{where}.sampler_options must have at least one number. Found: none.")
        set_field(
            self, "sampler_options", arguments.floats(f"{where}.sampler_options", options, len(options))
        )
        set_field(self, "trials", arguments.whole(f"{where}.trials", self.trials, 1, 32_767))


def _add(draft: Draft, spec: RandomIoUCrop, strict: bool) -> Draft:
    numbers = (
        spec.min_scale,
        spec.max_scale,
        spec.min_aspect_ratio,
        spec.max_aspect_ratio,
        float(spec.trials),
    )
    use = GeometryUse("random_iou_crop", (*numbers, *(spec.sampler_options or ())), drawn=True)
    if any(one.name == use.name for one in draft.plan.geometry):
        raise misplaced(spec)
    draft = geometry(draft, spec, use, whole=True)
    return with_objects(draft, spec, clip=True, draws=True, needed=True)


def _from_torchvision(item: Any) -> tuple[RandomIoUCrop]:
    return (
        RandomIoUCrop(
            item.min_scale,
            item.max_scale,
            item.min_aspect_ratio,
            item.max_aspect_ratio,
            item.options,
            item.trials,
        ),
    )


OPERATION = Operation(RandomIoUCrop, _add, {"RandomIoUCrop": _from_torchvision})
