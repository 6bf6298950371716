"""Specs of whole chains: :class:`Compose`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastload.transforms.operations.operation import set_field
from fastload.transforms.operations.registry import operation_of

__all__ = ["Compose", "is_ours"]


@dataclass(frozen=True)
class Compose:
    """Transforms, one after the other. May hold other :class:`Compose` objects and any callables.

    Raises:
        TypeError: something that is neither a transform nor callable.
    """

    transforms: Iterable[Any]

    def __post_init__(self) -> None:
        parts = tuple(self.transforms)
        for part in parts:
            if not is_ours(part) and not callable(part):
                raise TypeError(f"Compose takes transforms and callables. Found: {part!r}.")
        set_field(self, "transforms", parts)


def is_ours(item: Any) -> bool:
    """Whether it is one of fastload's transforms, or a chain by fastload's :class:`Compose`."""
    return isinstance(item, Compose) or operation_of(item) is not None
