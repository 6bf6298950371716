"""Some pictures with all the contrast there is."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "RandomAutocontrast"]


@dataclass(frozen=True)
class RandomAutocontrast:
    """With probability ``p``, in [0, 1], stretch each channel's values to [0, 255]: Pillow's
    ``ImageOps.autocontrast``, bit for bit.

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomAutocontrast.p", self.p))


def _add(draft: Draft, spec: RandomAutocontrast, strict: bool) -> Draft:
    return pixels(draft, spec, "autocontrast", spec.p)


OPERATION = Operation(
    RandomAutocontrast,
    _add,
    {"RandomAutocontrast": lambda item: (RandomAutocontrast(item.p),)},
    pictures_only=True,
)
