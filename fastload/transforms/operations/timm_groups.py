"""timm's policies as groups of operations (timm/data/auto_augment.py)."""

from __future__ import annotations

from collections.abc import Sequence

from fastload.transforms.operations.policy import chain, choice, random_depth
from fastload.transforms.plan import PixelUse

__all__ = ["auto", "mixed", "rand"]


def rand(ops: Sequence[PixelUse], layers: int, weights: Sequence[float] | None) -> PixelUse:
    """timm's RandAugment: ``layers`` of the operations; with weights, none of them twice."""
    if weights is None:
        return chain([choice(ops)] * layers)
    return PixelUse("some", 1.0, (float(layers), *map(float, weights)), tuple(ops))


def auto(policies: Sequence[Sequence[PixelUse]]) -> PixelUse:
    """timm's AutoAugment: one of the sub-policies."""
    return choice([chain(ops) for ops in policies])


def mixed(ops: Sequence[PixelUse], alpha: float, width: int, depth: int, blended: bool) -> PixelUse:
    """timm's AugMixAugment: chains of ``depth`` operations (one to three where it is not above 0)."""
    one = choice(ops)
    branch = chain([one] * depth) if depth > 0 else random_depth(one)
    return PixelUse("blend_in_turn" if blended else "mix_and_blend", 1.0, (float(alpha),), (branch,) * width)
