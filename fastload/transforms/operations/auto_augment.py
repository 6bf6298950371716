"""Pairs of operations that a search found: AutoAugment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.transforms.operations.operation import Draft, Operation, set_field, use_of_pixels
from fastload.transforms.operations.policy import (
    Fill,
    chain,
    check_fields,
    choice,
    leaf,
    size_before,
    version_of,
    warp_of,
)
from fastload.transforms.operations.space import auto_augment_space
from fastload.transforms.operations.sub_policies import SUB_POLICIES

__all__ = ["OPERATION", "AutoAugment"]

_BINS = 10


@dataclass(frozen=True)
class AutoAugment:
    """Apply one of 25 pairs of operations, each operation with its own probability, with Pillow's pixels.

    Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data" (arXiv 1805.09501), with
    torchvision's operations and magnitudes.

    Args:
        policy: ``"imagenet"``, ``"cifar10"`` or ``"svhn"`` (or torchvision's ``AutoAugmentPolicy``).
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, of what shears, shifts and rotates.
        fill: colour of what comes from outside the picture, in [0, 255]; None: black.
        version: 1 for ``torchvision.transforms``, 2 for ``torchvision.transforms.v2``, whose thresholds of
            Solarize differ in their last bits.

    Raises:
        ValueError: an argument outside its range.
    """

    policy: Any = "imagenet"
    interpolation: Any = "nearest"
    fill: Fill = None
    version: int = 1

    def __post_init__(self) -> None:
        name = getattr(self.policy, "value", self.policy)
        if name not in SUB_POLICIES:
            names = ", ".join(SUB_POLICIES)
            raise ValueError(f"AutoAugment.policy must be one of {names}. Found: {self.policy!r}.")
        set_field(self, "policy", name)
        check_fields(self)


def _add(draft: Draft, spec: AutoAugment, strict: bool) -> Draft:
    size = size_before(draft, spec, "shifts")
    space, warp = auto_augment_space(size, _BINS, spec.version), warp_of(spec)
    pairs = [
        chain([leaf(name, space[name][level : level + 1], warp, chance) for name, chance, level in pair])
        for pair in SUB_POLICIES[spec.policy]
    ]
    return use_of_pixels(draft, spec, choice(pairs))


def _from_torchvision(item: Any) -> tuple[AutoAugment]:
    version = version_of(item)
    found = tuple(
        tuple((name, chance, level or 0) for name, chance, level in pair)
        for pair in (item.policies if version == 1 else item._policies)
    )
    spec = AutoAugment(item.policy, item.interpolation, item.fill, version)
    if found != SUB_POLICIES[spec.policy]:
        raise ValueError("its sub-policies are not those of its policy")
    return (spec,)


OPERATION = Operation(AutoAugment, _add, {"AutoAugment": _from_torchvision}, pictures_only=True)
