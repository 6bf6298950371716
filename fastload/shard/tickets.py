"""Sample ids that know which batch of which loader they belong to.

A framework may take a loader's ids and fetch them itself, with a torch DataLoader that it built around
``loader.dataset`` and ``loader.batch_sampler``. The dataset then sees lists of :class:`SampleId` and asks the
loader for that very batch, so that transform, crops and flips are the loader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastload.errors import StateError


class Source(Protocol):
    """A loader, in this process or opened again in a torch worker."""

    def fetch(self, key: Any) -> Any:
        """The batch ``key``."""


@dataclass(frozen=True)
class Ticket:
    """One batch of one loader."""

    source: Source
    key: Any  # fastload.prefetch.feeder.BatchKey
    size: int  # samples


class SampleId(int):
    """A sample id, an int in every way, with the ticket of its batch and its place there."""

    ticket: Ticket
    place: int

    @classmethod
    def of(cls, sample: int, ticket: Ticket, place: int) -> SampleId:
        """The ``place``-th id of a ticket's batch."""
        made = cls(sample)
        made.ticket, made.place = ticket, place
        return made


class Delivered(list[Any]):
    """A whole batch, where torch's loader expects a list of samples; for ``loader.collate_fn`` to unpack."""

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self.batch = batch

    def __bool__(self) -> bool:
        return True


def deliver(ids: Sequence[Any]) -> Delivered | None:
    """The batch that ``ids`` are, from the loader that gave them; None for ids of no loader.

    Raises:
        StateError: they are a loader's, but not one whole batch of it.
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
