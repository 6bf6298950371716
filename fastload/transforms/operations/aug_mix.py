"""Several chains of operations, mixed with the picture: AugMix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, set_field, use_of_pixels
from fastload.transforms.operations.policy import (
    Fill,
    chain,
    check_fields,
    one_of,
    random_depth,
    size_before,
    warp_of,
)
from fastload.transforms.operations.space import augmix_space
from fastload.transforms.plan import PixelUse

__all__ = ["OPERATION", "AugMix"]


@dataclass(frozen=True)
class AugMix:
    """Mix the picture with the results of ``mixture_width`` chains of operations, with Pillow's pixels.

    Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty" (arXiv
    1912.02781), with torchvision's operations, magnitudes and weights: a share of the picture drawn from
    Beta(alpha, alpha), the rest given to the chains by Dirichlet(alpha), added in float32 and truncated.
    Torchvision's own class runs its operations on tensors, even of pictures, and so makes other pixels.

    Args:
        severity: greatest strength, in [1, 10].
        mixture_width: number of chains, in [1, 16].
        chain_depth: operations of a chain, in [1, 16]; -1: one to three, drawn for each chain.
        alpha: of the weights, in [0.05, 1000].
        all_ops: with brightness, colour, contrast and sharpness.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, of what shears, shifts and rotates.
        fill: colour of what comes from outside the picture, in [0, 255]; None: black.
        version: 1 for ``torchvision.transforms``, 2 for ``torchvision.transforms.v2``, whose thresholds of
            Solarize differ in their last bits.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Any = "bilinear"
    fill: Fill = None
    version: int = 1

    def __post_init__(self) -> None:
        depth = {} if self.chain_depth == -1 else {"chain_depth": (1, 16)}
        check_fields(self, severity=(1, 10), mixture_width=(1, 16), **depth)
        (alpha,) = arguments.floats("AugMix.alpha", (self.alpha,), 1)
        if not 0.05 <= alpha <= 1000:
            raise ValueError(f"AugMix.alpha must be in [0.05, 1000]. Found: {self.alpha!r}.")
        set_field(self, "alpha", alpha)


def _add(draft: Draft, spec: AugMix, strict: bool) -> Draft:
    size = size_before(draft, spec, "shifts")
    space, warp = augmix_space(size, spec.all_ops, spec.version), warp_of(spec)
    one = one_of({name: values[: spec.severity] for name, values in space.items()}, warp)
    branch = random_depth(one) if spec.chain_depth < 0 else chain([one] * spec.chain_depth)
    branches = (branch,) * spec.mixture_width
    return use_of_pixels(draft, spec, PixelUse("augmix", 1.0, (spec.alpha,), branches))


def _from_torchvision(item: Any) -> tuple[AugMix]:
    raise ValueError("its operations work on tensors, also of pictures, and make other pixels than Pillow's")


OPERATION = Operation(
    AugMix,
    _add,
    {"AugMix": _from_torchvision},
    pictures_only=True,
    advice={"AugMix": "fastload.transforms.AugMix, the same policy with Pillow's pixels"},
)
