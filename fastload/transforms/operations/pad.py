"""Fill around the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    geometry,
    set_field,
)
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "Pad", "border_number", "fill_of_torchvision", "sides_of"]

_MODES = ("constant", "edge", "reflect", "symmetric")
_OTHERS = ("PIL Image", "Image", "others")  # names under which a fill by type has that of pictures


@dataclass(frozen=True)
class Pad:
    """Add pixels around the picture: torchvision's ``Pad``.

    Args:
        padding: one number, (left and right, top and bottom), or (left, top, right, bottom), in [0, 65500].
        fill: a number of the stored picture (before it is scaled or normalised) for all channels, one for
            each, or ``{"image": of images, "mask": of masks}``. Masks are padded with their ignore value
            unless given here, masks of instances with 0.
        padding_mode: ``"constant"``: the fill; else the picture's own pixels: ``"edge"``, ``"reflect"`` or
            ``"symmetric"``, as ``numpy.pad`` has them. Such a border is there once, without any fill, and
            nothing is resized behind it. Boxes, keypoints and outlines cannot follow, as in torchvision.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    padding: int | Sequence[int]
    fill: Any = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        set_field(self, "padding", sides_of("Pad.padding", self.padding))
        arguments.fill_of("Pad.fill", self.fill)
        border_number("Pad.padding_mode", self.padding_mode)


def border_number(where: str, mode: Any) -> int:
    """A padding mode as the core takes it; 0: fill.

    Raises:
        ValueError: another one.
    """
    if mode not in _MODES:
        raise ValueError(f"{where} must be one of {', '.join(_MODES)}. Found: {mode!r}.")
    return _MODES.index(mode)


def sides_of(where: str, value: Any) -> tuple[int, int, int, int]:
    """A padding as (left, top, right, bottom)."""
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    sides = tuple(arguments.whole(where, side, 0, arguments.MAX_SIDE) for side in given)
    if len(sides) == 1:
        sides *= 4
    elif len(sides) == 2:
        sides *= 2
    if len(sides) != 4:
        raise ValueError(
            f"{where} must be an int, (left and right, top and bottom), or (left, top, right, bottom). "
            f"Found: {value!r}."
        )
    left, top, right, bottom = sides
    return left, top, right, bottom


def fill_of_torchvision(item: Any) -> dict[str, Any]:
    """The fill of torchvision's object; masks have it, too, unless it is given by type, or is a colour: they
    have their pixels without a class then."""
    given = item.fill
    if not isinstance(given, dict):
        if not isinstance(given, Sequence):
            return {"image": given, "mask": int(given or 0)}
        return {"image": given, "mask": int(given[0])} if len(set(given)) == 1 else {"image": given}
    by_name = {getattr(key, "__name__", key): fill for key, fill in given.items()}
    if hasattr(given, "default_factory") and by_name.keys().isdisjoint(_OTHERS):
        raise ValueError("its fill is a defaultdict, of which torchvision's releases ask other types")
    other = by_name.get("others", 0)
    image = next((by_name[name] for name in _OTHERS if name in by_name), 0)
    found: dict[str, Any] = {"image": image}
    mask = by_name.get("Mask", other)
    if isinstance(mask, Sequence):
        if "Mask" in by_name and len(set(mask)) > 1:
            raise ValueError(f"its fill of masks, {mask!r}, has several numbers, and masks have one")
        mask = mask[0] if len(set(mask)) == 1 else None
        return found if mask is None else {**found, "mask": int(mask)}
    return {**found, "mask": int(mask or 0)}


def _add(draft: Draft, spec: Pad, strict: bool) -> Draft:
    left, top, right, bottom = sides_of("Pad.padding", spec.padding)
    size = draft.on_source().plan.output_size
    if size is not None:
        size = size[0] + top + bottom, size[1] + left + right
    border = border_number("Pad.padding_mode", spec.padding_mode)
    if border:
        use = GeometryUse("pad_border", (left, top, right, bottom, border), size)
    else:
        fill = arguments.fill_of("Pad.fill", spec.fill)
        use = GeometryUse("pad", (left, top, right, bottom), size, fill=fill)
    return geometry(draft, spec, use)


def _from_torchvision(item: Any) -> tuple[Pad]:
    return (Pad(item.padding, fill_of_torchvision(item), getattr(item, "padding_mode", "constant")),)


OPERATION = Operation(Pad, _add, {"Pad": _from_torchvision})
