"""Sample ids that know the loader and batch that they belong to.

A framework may take a loader's ids and fetch them itself, with a torch DataLoader that it built around
``loader.dataset`` and ``loader.batch_sampler``. The dataset then receives lists of :class:`SampleId` and asks
the loader for that very batch, so that transform, crops and flips are the loader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastload.errors import StateError


class Source(Protocol):
    """A loader, in this process or opened again in a torch worker."""

    def fetch(self, key: Any) -> Any:
        """Return the batch ``key``."""


@dataclass(frozen=True)
class Ticket:
    """One batch of one loader."""

    source: Source
    key: Any  # fastload.prefetch.feeder.BatchKey
    size: int  # samples


class SampleId(int):
    """A sample id, an int in every way, with the ticket of its batch and its place in it."""

    ticket: Ticket
    place: int

    @classmethod
    def of(cls, sample: int, ticket: Ticket, place: int) -> SampleId:
        """Return the ``place``-th id of a ticket's batch."""
        result = cls(sample)
        result.ticket, result.place = ticket, place
        return result


class Delivered(list[Any]):
    """A complete batch, where torch's loader expects a list of samples; ``loader.collate_fn`` unpacks it."""

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self.batch = batch

    def __bool__(self) -> bool:
        return True


def deliver(ids: Sequence[Any]) -> Delivered | None:
    """Return the batch that ``ids`` are, from the loader that issued them; None: they are no loader's.

    Raises:
        StateError: they are a loader's, but not one complete batch of it.
    """
    if not any(isinstance(sample, SampleId) for sample in ids):
        return None
    ticket = ids[0].ticket if isinstance(ids[0], SampleId) else None
    places = [
        sample.place if isinstance(sample, SampleId) and sample.ticket == ticket else -1 for sample in ids
    ]
    if ticket is None or places != list(range(ticket.size)):
        raise StateError(
            "Sample ids of a fastload.DataLoader were grouped into other batches than its own, by a "
            "loader that was rebuilt from its attributes: transform and random numbers would be lost. "
            "Use the fastload.DataLoader itself, or rebuild from loader.batch_sampler."
        )
    return Delivered(ticket.source.fetch(ticket.key))
