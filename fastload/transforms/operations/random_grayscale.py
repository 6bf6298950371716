"""Some pictures gray."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, colour_name, pixels, set_field

__all__ = ["OPERATION", "RandomGrayscale"]


@dataclass(frozen=True)
class RandomGrayscale:
    """With probability ``p``, in [0, 1], put the luma into all three channels, as :class:`Grayscale` does.

    Raises:
        TypeError, ValueError: ``p`` outside its range.
    """

    p: float = 0.1

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("RandomGrayscale.p", self.p))


def _add(draft: Draft, spec: RandomGrayscale, strict: bool) -> Draft:
    return pixels(draft, spec, colour_name(draft, "grayscale"), spec.p)


OPERATION = Operation(
    RandomGrayscale,
    _add,
    {"RandomGrayscale": lambda item: (RandomGrayscale(item.p),)},
    pictures_only=True,
    knows_tensors=True,
)
