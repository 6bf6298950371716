"""What a collate asks of the loader, and what it makes of its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")


class Device(Protocol):
    """Where batches lie: what is made on the host is moved there, and pixels are worked on there."""

    def move(self, nest: Any) -> Any:
        """The same nesting with its tensors on the device."""

    def run(self, operations: Callable[[], T]) -> T:
        """Operations on tensors of the device; none of them may read their numbers."""


class _Host:
    """Batches are where they were made."""

    def move(self, nest: Any) -> Any:
        return nest

    def run(self, operations: Callable[[], T]) -> T:
        return operations()


@dataclass(frozen=True)
class Collated:
    """A batch as it is delivered, and what else a collate may know of it.

    What depends on numbers, such as how many objects there are, is decided by ``host``: to read them on a
    device would wait for all that it has to do.

    Args:
        batch: by field.
        host: its numbers on the host (all but pixels), which positions are samples, and where these come
            from (``IDS`` and ``VIEW`` of fastload.sample.layout); the batch itself, where it is there.
        keys: the paths in the source of samples of these ids.
        device: where the batch is.
    """

    batch: Any
    host: Mapping[str, Any]
    keys: Callable[[Sequence[int]], list[str]]
    device: Device = field(default_factory=_Host)


#: Makes of a batch what the consumer gets.
Collate: TypeAlias = "Callable[[Collated], Any]"


@dataclass(frozen=True)
class Collation:
    """A collate, fitted to a dataset.

    Args:
        collate: see :data:`Collate`.
        changes: arguments of the loader that follow from it: ``fields``, ``sizes``, ``masks``.
        names: of the fields of objects (:class:`~fastload.collate.detection.Names`); None: no targets.
        needs_origins: it wants to know where samples come from, and a batch's numbers on the host.
    """

    collate: Collate
    changes: Mapping[str, Any] = field(default_factory=dict)
    names: Any = None
    needs_origins: bool = False
