"""What a collate asks of the loader, and what it makes of its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

__all__ = ["Collate", "Collation", "Origins"]


class Origins(Protocol):
    """Where a batch's samples come from: asked for what no field says. One entry for each position."""

    def ids(self) -> list[int]:
        """Sample ids."""

    def keys(self) -> list[str]:
        """Paths in the source."""

    def sizes(self, image: str) -> list[tuple[int, int]]:
        """(height, width) of a field's pictures as they are stored; (0, 0) where the index does not say."""


#: Makes of a batch (a dict by field), and of where its samples come from, what the consumer gets.
Collate: TypeAlias = "Callable[[Mapping[str, Any], Origins], Any]"


@dataclass(frozen=True)
class Collation:
    """A collate, fitted to a dataset.

    Args:
        collate: see :data:`Collate`.
        changes: arguments of the loader that follow from it: ``fields``, ``sizes``, ``masks``.
        needs: why it asks where samples come from, in words; "": it does not.
        names: of the fields of objects (:class:`fastload.collate.roles.Names`); None: it makes no targets.
    """

    collate: Collate
    changes: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    names: Any = None
