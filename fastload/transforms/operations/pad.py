"""Fill around the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    Stage,
    geometry,
    set_field,
)
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "Pad", "constant_fill", "sides_of"]

_OTHERS = ("PIL Image", "Image", "others")  # names under which a fill by type has that of pictures


@dataclass(frozen=True)
class Pad:
    """So many pixels of one colour added around the picture: torchvision's ``Pad`` of mode "constant".

    Args:
        padding: one number, (left and right, top and bottom), or (left, top, right, bottom), in [0, 65500].
        fill: a number of the stored picture (before it is scaled or normalised) for all channels, one for
            each, or ``{"image": of images, "mask": of masks}``. Masks have their pixels without a class where
            nothing is said of them, instances' masks 0.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    padding: int | Sequence[int]
    fill: Any = 0

    def __post_init__(self) -> None:
        set_field(self, "padding", sides_of("Pad.padding", self.padding))
        arguments.fill_of("Pad.fill", self.fill)


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


def constant_fill(item: Any) -> dict[str, Any]:
    """The fill of torchvision's object, which holds for masks, too, unless it is given by type.

    Raises:
        ValueError: it pads with something else.
    """
    mode = getattr(item, "padding_mode", "constant")
    if mode != "constant":
        raise ValueError(f"only padding_mode='constant' is here. Found: {mode!r}")
    given = item.fill
    if not isinstance(given, dict):
        mask = given if not isinstance(given, Sequence) else (given[0] if len(set(given)) == 1 else None)
        if mask is None and given is not None:
            raise ValueError(f"its fill {given!r} has several numbers, and masks have one")
        return {"image": given, "mask": int(mask or 0)}
    by_name = {getattr(key, "__name__", key): fill for key, fill in given.items()}
    other = by_name.get("others", 0)
    image = next((by_name[name] for name in _OTHERS if name in by_name), 0)
    return {"image": image, "mask": int(by_name.get("Mask", other) or 0)}


def _add(draft: Draft, spec: Pad, strict: bool) -> Draft:
    left, top, right, bottom = sides_of("Pad.padding", spec.padding)
    before = draft.on_source()
    size = before.plan.output_size
    if size is not None:
        size = size[0] + top + bottom, size[1] + left + right
    stage = Stage.PAD if before.stage >= Stage.RESIZE else Stage.EXPAND
    fill = arguments.fill_of("Pad.fill", spec.fill)
    return geometry(draft, spec, stage, GeometryUse("pad", (left, top, right, bottom), size, fill=fill))


def _from_torchvision(item: Any) -> tuple[Pad]:
    return (Pad(item.padding, constant_fill(item)),)


OPERATION = Operation(
    Pad,
    _add,
    {"Pad": _from_torchvision},
    advice={"Pad": "a Pad with padding_mode='constant'"},
)
