"""What a DataLoader asks of whatever delivers its batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fastload.backends.faults import SampleReport
from fastload.backends.stats import Counts
from fastload.prefetch.feeder import BatchKey

# ---- protocol ---------------------------------------------------------------------------------------


class Backend(Protocol):
    """Batches by key. Threads or processes begin with the object and end with :meth:`close`."""

    @property
    def errors(self) -> Sequence[SampleReport]:
        """Reports of the bad samples met so far."""

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key``; blocks. The ones after it are in work when it returns."""

    def cancel(self) -> None:
        """Drop the batches that are in work."""

    def close(self) -> None:
        """End all threads. Idempotent."""

    def counts(self) -> Counts:
        """What was counted so far."""


class PlacedBackend(Backend, Protocol):
    """Batches of a dataset that may know its own place, as torchdata's: not pure functions of their key."""

    def place_state(self, key: BatchKey) -> dict[str, Any]:
        """What the dataset and its workers know of their place before the batch ``key``."""

    def load_place_state(self, key: BatchKey, state: dict[str, Any]) -> None:
        """Go on at ``key`` with a state of :meth:`place_state`."""


# ---- Batches of which a function makes what the consumer gets ---------------------------------------


class CollatedBackend:
    """Another back end's batches, collated when the consumer takes them.

    Args:
        inner: whose.
        collate: what is made of a batch.
    """

    def __init__(self, inner: Backend, collate: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._collate = collate
        self.cancel, self.close, self.counts = inner.cancel, inner.close, inner.counts

    @property
    def errors(self) -> Sequence[SampleReport]:
        """Reports of the bad samples met so far."""
        return self._inner.errors

    def batch(self, key: BatchKey) -> Any:
        """What is made of the batch ``key``."""
        return self._collate(self._inner.batch(key))
