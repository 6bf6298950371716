"""Pictures blurred as torchvision does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Operation,
    as_torch_draws,
    pixels,
    set_field,
)
from fastload.transforms.plan import Drawn

__all__ = ["OPERATION", "GaussianBlur", "drawn_between", "positive_range"]

_MOST = 511


@dataclass(frozen=True)
class GaussianBlur:
    """Blur the picture as torchvision's GaussianBlur: with a Gaussian's values at whole pixels, the picture
    reflected at its edges. ``RandomApply([GaussianBlur(23)], p=0.5)`` blurs half of the pictures.

    Pixels are those of torchvision 0.28 (v1 and v2; torch's convolution with AVX2 or AVX-512), but for the
    weights, whose exp is rounded otherwise for one sigma in ten: at most one level, in fewer than 40 of a
    million values. Pictures smaller than half the kernel, which torchvision refuses, are reflected to and
    fro.

    Args:
        kernel_size: odd pixels, at most 511; or ``(across, down)``.
        sigma: the standard deviation in pixels, above 0; or ``(least, greatest)``, uniform between them for
            each sample.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        where = "GaussianBlur.kernel_size"
        sizes = arguments.pair(where, self.kernel_size)
        if not all(size % 2 == 1 and size <= _MOST for size in sizes):
            raise ValueError(f"{where} must be odd, at most {_MOST}. Found: {self.kernel_size!r}.")
        set_field(self, "kernel_size", sizes)
        set_field(self, "sigma", positive_range("GaussianBlur.sigma", self.sigma))


def positive_range(where: str, value: Any) -> tuple[float, float]:
    """A number above 0, or the ends of a range of them, as a range."""
    ends = value if isinstance(value, Sequence) else (value, value)
    low, high = arguments.floats(where, ends, 2)
    if not 0.0 < low <= high:
        raise ValueError(f"{where} must be above 0, or (least, greatest) above 0. Found: {value!r}.")
    return low, high


def drawn_between(ends: Any) -> float | Drawn:
    """The number of an operation that is uniform in this range."""
    low, high = ends
    return low if low == high else Drawn("uniform", (low, high))


def _add(draft: Draft, spec: GaussianBlur, strict: bool) -> Draft:
    across, down = spec.kernel_size  # type: ignore[misc]
    return pixels(draft, spec, "gaussian_blur", 1.0, across, down, drawn_between(spec.sigma))


OPERATION = Operation(
    GaussianBlur,
    _add,
    {
        "GaussianBlur": lambda item: (
            GaussianBlur(tuple(item.kernel_size), as_torch_draws(tuple(item.sigma))),
        )
    },
)
