"""Fill at the right of and below a picture that is too small for a crop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, as_pair, geometry, set_field
from fastload.transforms.operations.pad import fill_of_torchvision
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "PadIfSmaller"]


@dataclass(frozen=True)
class PadIfSmaller:
    """Pad a picture smaller than ``size`` at the right and below: ``PadIfSmaller`` of torchvision's
    segmentation references, which stands before their ``RandomCrop``.

    Args:
        size: ``(height, width)``; an int for a square.
        fill: as :class:`Pad` has it.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    size: int | Sequence[int]
    fill: Any = 0

    def __post_init__(self) -> None:
        set_field(self, "size", arguments.pair("PadIfSmaller.size", self.size))
        arguments.fill_of("PadIfSmaller.fill", self.fill)


def _add(draft: Draft, spec: PadIfSmaller, strict: bool) -> Draft:
    fill = arguments.fill_of("PadIfSmaller.fill", spec.fill)
    return geometry(draft, spec, GeometryUse("pad_below", as_pair(spec.size), fill=fill))


def _from_references(item: Any) -> tuple[PadIfSmaller]:
    return (PadIfSmaller(item.size, fill_of_torchvision(item)),)


OPERATION = Operation(PadIfSmaller, _add, {"v2_extras.PadIfSmaller": _from_references})
