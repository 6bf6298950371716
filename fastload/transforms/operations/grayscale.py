"""Every picture gray."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms.operations.operation import Draft, Operation, colour_name, pixels, set_field

__all__ = ["OPERATION", "Grayscale"]


@dataclass(frozen=True)
class Grayscale:
    """Put the picture's luma into all three channels: Pillow's ``convert("L")``, bit for bit.

    Args:
        num_output_channels: only 3, as batches of pictures have; torchvision's default is 1.

    Raises:
        ValueError: another number of channels.
    """

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        if self.num_output_channels != 3:
            raise ValueError(
                f"Grayscale.num_output_channels must be 3. Found: {self.num_output_channels!r}. For one "
                "channel take images[:, :1] of the batch."
            )
        set_field(self, "num_output_channels", 3)


def _add(draft: Draft, spec: Grayscale, strict: bool) -> Draft:
    return pixels(draft, spec, colour_name(draft, "grayscale"), 1.0)


OPERATION = Operation(
    Grayscale,
    _add,
    {"Grayscale": lambda item: (Grayscale(item.num_output_channels),)},
    pictures_only=True,
    knows_tensors=True,
)
