"""Some pictures with even histograms."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, pixels, set_field

__all__ = ["OPERATION", "RandomEqualize"]


@dataclass(frozen=True)
class RandomEqualize:
    """With probability ``p``, in [0, 1], spread each channel's values so that their histogram is about even:
    Pillow's ``ImageOps.equalize``, bit for bit.

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomEqualize.p", self.p))


def _add(draft: Draft, spec: RandomEqualize, strict: bool) -> Draft:
    return pixels(draft, spec, "equalize", spec.p)


OPERATION = Operation(
    RandomEqualize, _add, {"RandomEqualize": lambda item: (RandomEqualize(item.p),)}, pictures_only=True
)
