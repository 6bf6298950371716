"""Requests to the engine: fields filled into layouts, and how much is read ahead."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.mixture import Packed
from fastload.machine.memory import PAGE_CACHE_SHARE, available_memory
from fastload.prefetch.slots import Slot
from fastload.sample.layout import BatchLayout, SampleLayout
from fastload.sampler import BlockOrder, Sampler, whole_order

# ---- Requests for batches ----

Ids = npt.NDArray[np.int64]
Draws = npt.NDArray[np.uint32]


class Filling:
    """Batches of one layout, by one engine.

    Args:
        engine: the engine that fills them.
        layout: of a sample.
    """

    def __init__(self, engine: _C.Engine, layout: SampleLayout) -> None:
        self.engine = engine
        self.layout = layout
        self._of_equal = lru_cache(maxsize=8)(lambda size: layout.of(size, [None] * len(layout.fields)))

    def planned(self, ids: Ids, draws: Draws | None, epoch: int, partners: Ids | None = None) -> BatchLayout:
        """Return where the fields of these samples will be; ``partners``: the samples combined with each.

        Raises:
            ValueError: a picture is larger than there is room for.
        """
        if not self.layout.is_measured:
            layout: BatchLayout = self._of_equal(len(ids))
            return layout
        known: list[Any] = self.engine.measure(ids, draws, epoch, partners)
        rest = len(self.layout.fields) - len(known)  # those that the core does not fill are the last ones
        return self.layout.of(len(ids), [*known, *[None] * rest])

    def submit(
        self,
        slot: Slot,
        ids: Ids,
        draws: Draws | None,
        epoch: int,
        announced: _C.Announced | None = None,
        partners: Ids | None = None,
    ) -> int:
        """Have the core fill a slot; return the batch's ticket."""
        memory, layout = slot.memory, slot.layout
        layout.write_numbers(memory, ids != -1)
        return int(self.engine.submit(memory, layout.for_core, ids, draws, epoch, announced, partners))


# ---- Reading ahead, and the share of the page cache ----

_BUFFERS = 64 << 20  # bytes: some 500 records of 110 KB, enough for a disk's best queue depth
_BUFFER_SHARE = 8  # of the available memory, at most 1 / this
_WINDOW_SHARE = 4  # likewise, for a shuffle that reads a whole window of blocks
_WINDOW_ROOM = 1.6  # buffers for a window: a block of five records stays until its last one is used
_KEPT = 0.5  # of the available memory, of a larger set
_KEPT_LEAST = 1 / 8  # of the set; less gains later epochs little, and reading it through the cache is slow


@dataclass(frozen=True)
class ReadAheadPlan:
    """The settings of ``_C.Engine`` for reading ahead."""

    buffer_bytes: int  # maximum size of buffers
    samples: int  # to announce beyond the batches in progress
    keep: float  # share of the set that stays in the page cache once read; the rest bypasses it


def plan_read_ahead(dataset: Packed, sampler: Sampler, room: int | None = None) -> ReadAheadPlan:
    """Plan reading ahead for a loader; ``room``: :func:`fastload.machine.memory.available_memory`."""
    if room is None:
        room = available_memory()
    size = sum(shard.size for part in dataset.parts for shard in part.manifest.shards)
    record = max(1.0, size / max(1, sum(part.num_ids for part in dataset.parts)))
    share = sampler.partition.world_size  # a window's blocks are divided among the ranks
    order = whole_order(sampler.order)
    window = int(order.window / share * record * _WINDOW_ROOM) if isinstance(order, BlockOrder) else 0
    buffers = max(min(_BUFFERS, room // _BUFFER_SHARE), min(window, room // _WINDOW_SHARE))
    buffers = min(buffers, 2 * size + (1 << 20))
    samples = int(buffers / record / (_WINDOW_ROOM if window else 1))
    # What has room in the node's cache is not also kept in the page cache.
    rest = size - sum(part.cached_bytes for part in dataset.parts)
    return ReadAheadPlan(buffers, samples, _keep(rest, room))


def _keep(size: int, room: int) -> float:
    """Return the share of ``size`` bytes that should stay in the page cache."""
    if size <= PAGE_CACHE_SHARE * room:
        return 1.0
    share = _KEPT * room / size
    return share if share >= _KEPT_LEAST else 0.0
