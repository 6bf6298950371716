"""The order of this and the next epochs, which the cache's tiers on disk are told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from fastload._native import _C
from fastload.backends.options import Options
from fastload.cache.disk import DiskUse, planned_disk_bytes
from fastload.cache.opening import Streams, kept_of
from fastload.machine.threads import start_beside
from fastload.prefetch.feeder import BatchKey
from fastload.sampler import Sampler, StickyOrder
from fastload.sampler.upcoming import NOT_NEEDED, Levels, level_of, needs_all, use_levels
from fastload.shard.dataset import PackedFiles

_log = logging.getLogger("fastload")

_KNOWN_BYTES, _COMPUTED_BYTES = 4, 2 + 2  # of a record, that its tier knows; of a sample, while computing
_LEAST_EPOCHS, _MOST_EPOCHS = 4, 16  # epochs to look at


def node_ranks(rank: int, world_size: int, local: tuple[int, int]) -> range:
    """Return the ranks of this node.

    Args:
        local: rank and number of ranks on this node; the launcher may not know the number.
    """
    first = max(0, rank - local[0])
    return range(first, min(world_size, max(first + local[1], rank + 1)))


def disk_plan(
    parts: Sequence[PackedFiles], sampler: Sampler, options: Options, streams: Streams, total: int
) -> dict[str, int]:
    """Return what disk tiers add to a loader's memory plan, whose ``total`` is given.

    ``disk_bytes``: on disk, once for all processes of the node; ``order_bytes``: in memory, in ``total``.
    """
    assert options.cache.disk is not None
    part, samples = sampler.partition, sum(dataset.num_ids for dataset in parts)
    ranks = node_ranks(part.rank, part.world_size, options.local_ranks)
    known = not sampler.order.is_drawn and not needs_all(sampler, ranks, samples)
    records = sum(dataset.record_count(stream) for dataset, stream in kept_of(parts, streams))
    order = _KNOWN_BYTES * records + _COMPUTED_BYTES * samples if known else 0
    disk = planned_disk_bytes(parts, options.cache.disk, streams)
    return {"disk_bytes": disk, "order_bytes": order, "total": total + order}


class _Part(NamedTuple):
    first: int  # its first sample id
    dataset: PackedFiles
    tiers: dict[str | None, _C.DiskTier]  # by stream


class Upcoming:
    """The epochs in which samples are needed, for the tiers of one loader; a thread computes them.

    The tiers are told nothing, and keep what they have, if that is already best (each sample is needed in
    each epoch), or if the order is not known beforehand (a user's sampler).

    Args:
        disk: the tiers.
        parts: the packed datasets, in the order of their sample ids.
        sampler: the loader's.
        local: rank and number of ranks on this node.
        ahead: samples of a rank that may be read before they are needed.
    """

    def __init__(
        self,
        disk: DiskUse,
        parts: Sequence[PackedFiles],
        sampler: Sampler,
        local: tuple[int, int],
        ahead: int,
    ) -> None:
        self._disk = disk
        self._sampler = sampler
        self._local = local
        self._ahead_of_rank = ahead
        self._parts: list[_Part] = []
        self._samples = 0
        for part, tiers in zip(parts, disk.of(parts), strict=True):
            self._parts.append(_Part(self._samples, part, tiers))
            self._samples += part.num_ids
        self._wanted: int | None = None
        self._thread: threading.Thread | None = None
        self._divide()

    def _divide(self) -> None:
        """Begin anew with the sampler's ranks as they are now."""
        self._part = part = self._sampler.partition
        self._ranks = ranks = node_ranks(part.rank, part.world_size, self._local)
        self._ahead = self._ahead_of_rank * part.world_size
        nodes = -(-part.world_size // max(1, len(ranks)))
        self._epochs = min(_MOST_EPOCHS, max(_LEAST_EPOCHS, 2 * nodes))
        drawn = self._sampler.order.is_drawn
        self._is_of_use = not drawn and not needs_all(self._sampler, ranks, self._samples)
        self._masks = np.zeros(self._samples if self._is_of_use else 0, np.uint16)
        self._masks_from = self._masks_to = 0  # epochs
        sticky = isinstance(self._sampler.order, StickyOrder)
        self._disk.expect(len(ranks) / part.world_size, sticky)

    def at(self, key: BatchKey) -> None:
        """Tell the tiers that the consumer asks for a batch."""
        self._disk.warn_if_full()
        if self._sampler.partition is not self._part:
            self._stop()
            self._divide()
        if not self._is_of_use:
            return
        epoch, position = key.epoch, self._sampler.consumed(*key)
        total = self._sampler.total(epoch)
        for part in self._parts:
            for tier in part.tiers.values():
                tier.move(epoch, level_of(position, total), position + self._ahead > total)
        if epoch != self._wanted:
            self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        self._stop()
        self._wanted = epoch
        try:
            self._thread = start_beside(partial(self._compute, epoch), "fastload-order", self._forget)
        except RuntimeError:  # no more threads, or no memory for one: the tiers keep what they have
            self._thread = None

    def close(self) -> None:
        """End the thread, and release the tiers. Idempotent."""
        self._stop()
        self._parts = []

    def _forget(self) -> None:
        self._wanted = None

    def _stop(self) -> None:
        self._forget()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _compute(self, epoch: int) -> None:
        try:
            now = self._levels(epoch, epoch)
            passed = epoch - self._masks_from
            known = self._masks_to - epoch if 0 <= passed < self._epochs else 0
            self._masks >>= np.uint16(passed if known > 0 else _MOST_EPOCHS - 1)
            if known <= 0:
                self._masks[:] = 0
            self._masks_from, self._masks_to = epoch, epoch + max(0, known)
            while now is not None and self._masks_to < epoch + self._epochs:
                number = self._masks_to - epoch
                levels = now if number == 0 else self._levels(self._masks_to, epoch)
                if levels is None:
                    return
                self._masks |= (levels != NOT_NEEDED).astype(np.uint16) << np.uint16(number)
                self._masks_to += 1
                if number > 0:
                    self._tell(epoch, now)
        except Exception:
            _log.warning("the order of coming epochs is not known to the disk tier", exc_info=True)

    def _levels(self, epoch: int, wanted: int) -> Levels | None:
        return use_levels(self._sampler, epoch, self._ranks, self._samples, lambda: self._wanted != wanted)

    def _tell(self, epoch: int, levels: Levels) -> None:
        for part in self._parts:
            own = slice(part.first, part.first + part.dataset.num_ids)
            for stream, tier in part.tiers.items():
                orders = ((self._masks, 0), (levels, NOT_NEEDED))
                spread = (part.dataset.spread(stream, each[own], rest) for each, rest in orders)
                tier.set_order(epoch, *spread)
