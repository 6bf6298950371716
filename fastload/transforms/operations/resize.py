"""The picture resized."""

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

__all__ = ["OPERATION", "Resize"]


@dataclass(frozen=True)
class Resize:
    """Resize the picture; equal to Pillow 13's resize on uint8, bit for bit.

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


def _add(draft: Draft, spec: Resize, strict: bool) -> Draft:
    if isinstance(spec.size, int):
        use = GeometryUse("resize_shorter", (spec.size, spec.max_size or 0))
    else:
        size = as_pair(spec.size)
        use = GeometryUse("resize_exact", size, size)
    return resize(draft, spec, spec.interpolation, use)


def _from_torchvision(item: Any) -> tuple[Resize]:
    return (Resize(item.size, item.interpolation, item.max_size, from_torchvision_antialias(item)),)


OPERATION = Operation(Resize, _add, {"Resize": _from_torchvision})
