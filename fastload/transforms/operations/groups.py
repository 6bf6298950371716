"""Groups of operations on pixels: all, some or one of them, in a given or a drawn order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import (
    Draft,
    Misplaced,
    Operation,
    Stage,
    set_field,
    use_of_pixels,
)
from fastload.transforms.operations.registry import operation_of
from fastload.transforms.plan import PixelUse

# ---- Parts of groups --------------------------------------------------------------------------------


def as_parts(where: str, transforms: Any) -> tuple[Any, ...]:
    """Return the parts of a group: each a spec, or a tuple of specs to apply one after the other.

    Raises:
        TypeError: the core does not know a part.
        ValueError: there are no parts.
    """
    parts = tuple(_specs(where, item) for item in transforms)
    if not parts:
        raise ValueError(f"{where} needs at least one transform.")
    return tuple(part[0] if len(part) == 1 else part for part in parts)


def _specs(where: str, item: Any) -> tuple[Any, ...]:
    from fastload.transforms import (
        recognised as torchvision_objects,  # which imports the operations, groups among them
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
    """Return the parts of a group that follows ``before``, as the core takes them; raise Misplaced if one is
    not an operation on pixels."""
    draft = replace(before, plan=replace(before.plan, pixels=()), stage=Stage.PIXELS, in_group=True)
    return tuple(_use(draft, type(spec).__name__, part, strict) for part in spec.transforms)


def _use(draft: Draft, where: str, part: Any, strict: bool) -> PixelUse:
    geometry = draft.plan.geometry
    for spec in part if isinstance(part, tuple) else (part,):
        operation = operation_of(spec)
        assert operation is not None  # as_parts() has checked it
        draft = operation.add(draft, spec, strict)
        if draft.stage is not Stage.PIXELS or draft.plan.geometry != geometry:
            raise Misplaced(f"{spec!r} is in {where}, whose parts may only be operations on pixels.")
    uses = draft.plan.pixels
    return uses[0] if len(uses) == 1 else PixelUse("all", 1.0, (), uses)


# ---- All or none ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomApply:
    """Apply all of ``transforms``, one after the other, with probability ``p``; else none of them.

    Args:
        transforms: operations on pixels, groups of them, a ``Compose``, or torchvision's objects of these.
        p: in [0, 1].

    Raises:
        TypeError: an element is not such a transform.
        ValueError: the list is empty, or ``p`` outside its range.
    """

    transforms: Iterable[Any]
    p: float = 0.5

    def __post_init__(self) -> None:
        set_field(self, "transforms", as_parts("RandomApply", self.transforms))
        set_field(self, "p", arguments.probability("RandomApply.p", self.p))


def _add_random_apply(draft: Draft, spec: RandomApply, strict: bool) -> Draft:
    return use_of_pixels(draft, spec, PixelUse("all", spec.p, (), uses_of(draft, spec, strict)))


RANDOM_APPLY = Operation(
    RandomApply,
    _add_random_apply,
    {"RandomApply": lambda item: (RandomApply(tuple(item.transforms), item.p),)},
)


# ---- One of several ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomChoice:
    """Apply one of ``transforms``, drawn for each sample; each of them may be a ``Compose``.

    Args:
        transforms: see :class:`RandomApply`.
        p: their weights, at least 0 and not all 0; None: equal weights.

    Raises:
        TypeError: an element is not such a transform.
        ValueError: the list is empty, or the weights are not legal.
    """

    transforms: Iterable[Any]
    p: Sequence[float] | None = None

    def __post_init__(self) -> None:
        parts = as_parts("RandomChoice", self.transforms)
        set_field(self, "transforms", parts)
        if self.p is None:
            return
        weights = arguments.floats("RandomChoice.p", self.p, len(parts))
        if min(weights) < 0 or sum(weights) <= 0:
            raise ValueError(
                f"RandomChoice.p must be weights of at least 0, not all of them 0. Found: {self.p!r}."
            )
        set_field(self, "p", weights)


def _add_random_choice(draft: Draft, spec: RandomChoice, strict: bool) -> Draft:
    parts = uses_of(draft, spec, strict)
    weights = (1.0,) * len(parts) if spec.p is None else tuple(spec.p)
    return use_of_pixels(draft, spec, PixelUse("choice", 1.0, weights, parts))


def _random_choice_of_torchvision(item: Any) -> tuple[RandomChoice]:
    weights = getattr(item, "probabilities", None) or item.p  # of v2, of v1
    return (RandomChoice(tuple(item.transforms), weights),)


RANDOM_CHOICE = Operation(RandomChoice, _add_random_choice, {"RandomChoice": _random_choice_of_torchvision})


# ---- Random order -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomOrder:
    """Apply all of ``transforms``, in an order that is drawn for each sample.

    Args:
        transforms: see :class:`RandomApply`.

    Raises:
        TypeError: an element is not such a transform.
        ValueError: the list is empty.
    """

    transforms: Iterable[Any]

    def __post_init__(self) -> None:
        set_field(self, "transforms", as_parts("RandomOrder", self.transforms))


def _add_random_order(draft: Draft, spec: RandomOrder, strict: bool) -> Draft:
    return use_of_pixels(draft, spec, PixelUse("order", 1.0, (), uses_of(draft, spec, strict)))


RANDOM_ORDER = Operation(
    RandomOrder, _add_random_order, {"RandomOrder": lambda item: (RandomOrder(tuple(item.transforms)),)}
)
