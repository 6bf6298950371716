"""What a collate asks of the loader, and what it makes of its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Collate", "Collation"]

#: Makes of a batch (a dict by field) and the function that gives its sample ids what the consumer gets.
Collate: TypeAlias = "Callable[[Mapping[str, Any], Callable[[], Sequence[int]]], Any]"


@dataclass(frozen=True)
class Collation:
    """A collate, fitted to a dataset.

    Args:
        collate: see :data:`Collate`.
        changes: arguments of the loader that follow from it: ``fields``, ``sizes``, ``masks``.
        needs_ids: whether it asks for the ids of a batch's samples.
    """

    collate: Collate
    changes: Mapping[str, Any] = field(default_factory=dict)
    needs_ids: bool = False
