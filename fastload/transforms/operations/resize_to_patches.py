"""The picture as large as a number of patches allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, resize, set_field
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "ResizeToPatches"]


@dataclass(frozen=True)
class ResizeToPatches:
    """Resize the picture to the largest size that has at most ``most`` patches, its sides in proportion and
    then rounded up to whole patches: what NaFlex models take, as timm's ``get_image_size_for_seq`` computes
    it.

    Args:
        patch: height and width of a patch in pixels.
        most: patches of a picture at most.
        max_ratio: the greatest factor by which a picture is enlarged; None: no bound.
        interpolation: ``"bilinear"`` or ``"bicubic"``.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    patch: int = 16
    most: int = 1024
    max_ratio: float | None = None
    interpolation: Any = "bilinear"

    def __post_init__(self) -> None:
        where = "ResizeToPatches"
        set_field(self, "patch", arguments.side(f"{where}.patch", self.patch))
        set_field(self, "most", arguments.whole(f"{where}.most", self.most, 1, 1 << 24))
        if self.max_ratio is not None:
            (ratio,) = arguments.floats(f"{where}.max_ratio", (self.max_ratio,), 1)
            if ratio <= 0:
                raise ValueError(f"{where}.max_ratio must be above 0. Found: {self.max_ratio!r}.")
            set_field(self, "max_ratio", ratio)
        name = arguments.interpolation_name(f"{where}.interpolation", self.interpolation)
        set_field(self, "interpolation", name)


def _add(draft: Draft, spec: ResizeToPatches, strict: bool) -> Draft:
    use = GeometryUse("resize_to_patches", (spec.patch, spec.most, spec.max_ratio or 0.0))
    return resize(draft, spec, spec.interpolation, use)


OPERATION = Operation(ResizeToPatches, _add, {})
