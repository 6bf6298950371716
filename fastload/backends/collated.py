"""Batches of which a function makes what the consumer gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastload.backends.faults import SampleReport
    from fastload.backends.protocol import Backend
    from fastload.prefetch.feeder import BatchKey

__all__ = ["CollatedBackend"]


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
