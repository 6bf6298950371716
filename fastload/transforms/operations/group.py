"""What groups of operations on pixels share: their parts, and how these are compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastload.transforms.operations.operation import Draft, Misplaced, Stage
from fastload.transforms.operations.registry import operation_of
from fastload.transforms.plan import PixelUse

__all__ = ["as_parts", "uses_of"]


def as_parts(where: str, transforms: Any) -> tuple[Any, ...]:
    """The parts of a group: a spec each, or a tuple of specs, one after the other.

    Raises:
        TypeError: something that the core does not know.
        ValueError: none.
    """
    parts = tuple(_specs(where, item) for item in transforms)
    if not parts:
        raise ValueError(f"{where} needs at least one transform.")
    return tuple(part[0] if len(part) == 1 else part for part in parts)


def _specs(where: str, item: Any) -> tuple[Any, ...]:
    from fastload.transforms import (
        recognised as torchvision_objects,  # it knows the operations, of which groups are some
    )

    if operation_of(item) is not None:
        return (item,)
    if isinstance(item, tuple):
        parts: Iterable[Any] | None = item
    else:
        parts = item.transforms if _is_compose(item) else torchvision_objects.composed(item)
    if parts is not None:
        return tuple(spec for part in parts for spec in _specs(where, part))
    specs = torchvision_objects.translate(item)
    if specs is None:
        raise TypeError(
            f"{where} takes transforms that the core knows. Found: {item!r}: "
            f"{torchvision_objects.refusal(item)}. Torchvision's {where} takes any callable, in Python."
        )
    return specs


def _is_compose(item: Any) -> bool:
    kind = type(item)
    return (kind.__module__, kind.__name__) == ("fastload.transforms.compose", "Compose")


def uses_of(before: Draft, spec: Any, strict: bool) -> tuple[PixelUse, ...]:
    """The parts of a group that stands behind ``before`` as the core takes them; raises Misplaced for what is
    no operation on pixels."""
    draft = replace(before, plan=replace(before.plan, pixels=()), stage=Stage.PIXELS, in_group=True)
    return tuple(_use(draft, type(spec).__name__, part, strict) for part in spec.transforms)


def _use(draft: Draft, where: str, part: Any, strict: bool) -> PixelUse:
    geometry = draft.plan.geometry
    for spec in part if isinstance(part, tuple) else (part,):
        operation = operation_of(spec)
        assert operation is not None  # as_parts() has seen to it
        draft = operation.add(draft, spec, strict)
        if draft.stage is not Stage.PIXELS or draft.plan.geometry != geometry:
            raise Misplaced(f"{spec!r} is in {where}, whose parts may only be operations on pixels.")
    uses = draft.plan.pixels
    return uses[0] if len(uses) == 1 else PixelUse("all", 1.0, (), uses)
