"""The interface of back ends, which deliver a DataLoader's batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from fastload.backends.faults import SampleReport
from fastload.backends.stats import Counts
from fastload.prefetch.feeder import BatchKey
from fastload.sample.layout import PACK_OFFSETS

# ---- The protocol -----------------------------------------------------------------------------------


class Backend(Protocol):
    """Batches by key. Threads or processes begin with the object and end with :meth:`close`."""

    @property
    def errors(self) -> Sequence[SampleReport]:
        """Reports of the bad samples met so far."""

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key``; block until it is complete. The next ones are in work by then."""

    def cancel(self) -> None:
        """Drop the batches that are in work."""

    def close(self) -> None:
        """End all threads. Idempotent."""

    def counts(self) -> Counts:
        """Return what was counted so far."""


class PlacedBackend(Backend, Protocol):
    """Batches of a dataset that may know its own place, as torchdata's: not only their key matters."""

    def place_state(self, key: BatchKey) -> dict[str, Any]:
        """Return what the dataset and its workers know of their place before the batch ``key``."""

    def load_place_state(self, key: BatchKey, state: dict[str, Any]) -> None:
        """Go on at ``key`` with a state of :meth:`place_state`."""


def go_on_at(backend: Backend, key: BatchKey | None) -> None:
    """Let a back end go on at ``key`` after the ranks have changed; None: at any batch.

    One that can keep batches in work has a method of this name; others drop theirs.
    """
    own = getattr(backend, "go_on_at", None)
    if own is None or key is None:
        backend.cancel()
    else:
        own(key)


# ---- Batches of packs, and collated ones ------------------------------------------------------------


class PackBackend:
    """Another back end's batches of packs, with where each pack begins.

    Args:
        inner: the other back end; its batches are dicts.
        sampler: which samples each batch has, pack after pack.
        move: moves the numbers to the device, if there is one.
    """

    def __init__(self, inner: Backend, sampler: Any, move: Callable[[Any], Any] | None = None) -> None:
        self._inner = inner
        self._sampler = sampler
        self._move = move
        self.cancel, self.close, self.counts = inner.cancel, inner.close, inner.counts

    @property
    def errors(self) -> Sequence[SampleReport]:
        """Reports of the bad samples met so far."""
        return self._inner.errors

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key``, with ``pack_offsets``."""
        batch = self._inner.batch(key)
        offsets = torch.from_numpy(self._sampler.offsets(*key))
        return {**batch, PACK_OFFSETS: offsets if self._move is None else self._move(offsets)}

    def go_on_at(self, key: BatchKey) -> None:
        """See :func:`go_on_at`."""
        go_on_at(self._inner, key)


class CollatedBackend:
    """Another back end's batches, collated when the consumer takes them.

    Args:
        inner: the other back end.
        collate: makes what the consumer gets of a batch.
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
        """Return the batch ``key``, collated."""
        return self._collate(self._inner.batch(key))

    def go_on_at(self, key: BatchKey) -> None:
        """See :func:`go_on_at`."""
        go_on_at(self._inner, key)
