"""The channels in a random order."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.transforms.operations.operation import Draft, Operation, pixels
from fastload.transforms.plan import Drawn

__all__ = ["OPERATION", "PERMUTED", "RandomChannelPermutation"]

#: Which of the six orders, as csrc/core/transform/pixels/channel_permutation.cpp has them.
PERMUTED = Drawn("among", tuple(map(float, range(6))))


@dataclass(frozen=True)
class RandomChannelPermutation:
    """Permute red, green and blue, in one of the six orders, drawn uniformly for each sample."""


def _add(draft: Draft, spec: RandomChannelPermutation, strict: bool) -> Draft:
    return pixels(draft, spec, "channel_permutation", 1.0, PERMUTED)


OPERATION = Operation(
    RandomChannelPermutation, _add, {"RandomChannelPermutation": lambda item: (RandomChannelPermutation(),)}
)
