"""The interface of collates: what they need of the loader, and the batches that they get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from fastload.sample.layout import Sizes

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class Device(Protocol):
    """The device of batches: tensors from the host are moved there, and pixels are processed there."""

    is_host: bool

    def move(self, nest: Any) -> Any:
        """Return the same nesting with its tensors on the device."""

    def run(self, operations: Callable[[], T]) -> T:
        """Run operations on tensors of the device; none of them may read their numbers."""


class _Host:
    """The device of batches that stay on the host."""

    is_host = True

    def move(self, nest: Any) -> Any:
        return nest

    def run(self, operations: Callable[[], T]) -> T:
        return operations()


@dataclass(frozen=True)
class Collated:
    """A delivered batch, and what else a collate may know of it.

    Decisions by numbers, such as how many objects there are, use ``host``: to read numbers on a device would
    wait for all its pending work.

    Args:
        batch: values by field.
        host: its numbers on the host (all but pixels), which positions are samples, and their origins
            (``IDS`` and ``VIEW`` of fastload.sample.layout); the batch itself if it is on the host.
        keys: maps sample ids to paths in the source.
        device: the batch's device.
    """

    batch: Any
    host: Mapping[str, Any]
    keys: Callable[[Sequence[int]], list[str]]
    device: Device = field(default_factory=_Host)


#: A function from a batch to what the consumer gets.
Collate: TypeAlias = "Callable[[Collated], Any]"
#: For a device, the function from pixels, RGB side by side, to values of the same shape.
Values: TypeAlias = "Callable[[Device], Callable[[torch.Tensor], torch.Tensor]]"


@dataclass(frozen=True)
class Wanted:
    """What batches are to have.

    Args:
        fields: their names; None: all.
        masks: form of outlines, "packed" or "dense".
        pictures: the treatment of pictures of different sizes.
    """

    fields: Sequence[str] | None = None
    masks: str = "packed"
    pictures: Sizes = field(default_factory=Sizes)


@dataclass(frozen=True)
class Collation:
    """A collate, fitted to a dataset.

    Args:
        collate: see :data:`Collate`.
        wanted: what it needs batches to have; None: what the loader's arguments ask for.
        names: of the fields of objects (:class:`~fastload.collate.detection.Names`); None: no targets.
        needs_origins: it needs the samples' origins, and a batch's numbers on the host.
        of_pixels: returns the collate that gets pictures as uint8, and makes normalised values of its rows by
            a function of its own; None: it takes pictures as they come.
    """

    collate: Collate
    wanted: Wanted | None = None
    names: Any = None
    needs_origins: bool = False
    of_pixels: Callable[[Values], Collate] | None = None
