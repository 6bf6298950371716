"""Where Python callables run: in the consumer's thread, or in worker processes ahead of it.

Either way the process's random generators are theirs alone while they run (``fastload.machine.generators``),
so each sample's draws are the same in every run, and the model's own go on as if there were no callables.
Threads cannot have that: the generators belong to the process.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from fastload.backends.faults import FaultPolicy
from fastload.backends.native import NativeBackend
from fastload.backends.options import Options
from fastload.backends.render import Renderer, Request, Stopped
from fastload.backends.tail import CallableError, Tail, failed
from fastload.dataset.mixture import Packed
from fastload.machine.generators import kept
from fastload.prefetch.feeder import BatchKey
from fastload.sampler import Sampler

__all__ = ["InlineStage", "Parts"]


@dataclass(frozen=True)
class Parts:
    """What both stages need.

    ``source`` decodes whole batches, or pictures of different sizes one by one.
    """

    dataset: Packed
    sampler: Sampler
    options: Options
    policy: FaultPolicy
    tail: Tail
    source: NativeBackend | Renderer

    def request(self, key: BatchKey) -> Request:
        """What the renderer shall decode."""
        batch = self.sampler.batch(*key)
        return Request(key.epoch, batch.ids, batch.draws, self.policy.substitutes(key, batch))

    def following(self, key: BatchKey) -> BatchKey | None:
        """The batch after ``key`` in its epoch."""
        after = key._replace(step=key.step + 1)
        return after if self.sampler.has_batch(*after) else None


class InlineStage:
    """The consumer's thread runs the callables, when it asks for a batch: ``num_workers=0``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def waited(self) -> float:
        """Seconds in which the consumer was blocked by decoding."""
        source = self._parts.source
        return source.feeder.waited if isinstance(source, NativeBackend) else 0.0

    def take(self, key: BatchKey) -> Any:
        """The batch ``key``."""
        parts = self._parts
        try:
            if isinstance(parts.source, Renderer):
                return self._rendered(key, parts.source)
            pending = parts.source.feeder.take(key)
            parts.source.complete(pending)
            with kept():
                ids, draws = pending.batch.ids, pending.batch.draws
                return parts.tail.of_fields(pending.slot.fields, key.epoch, ids, draws)
        except CallableError as error:
            cause = error.__cause__
            assert cause is not None
            raise failed(error.sample, parts.dataset, cause) from cause

    def _rendered(self, key: BatchKey, renderer: Renderer) -> Any:
        request, batch = self._parts.request(key), None
        images, found = renderer(request)
        try:
            with kept(), suppress(Stopped):  # note() raises then
                labels = torch.from_numpy(found.labels)
                batch = self._parts.tail.batch(images, labels, key.epoch, request.ids, request.draws)
        finally:
            self._parts.policy.note(key, found.faults)
        return batch

    def cancel(self) -> None:
        """Nothing is in work here."""

    close = cancel
