"""How much is read ahead of decoding, and how much of the set may stay in the page cache."""

from __future__ import annotations

from dataclasses import dataclass

from fastload.dataset.mixture import Packed
from fastload.machine.memory import PAGE_CACHE_SHARE, available_memory
from fastload.sampler import BlockOrder, Sampler

__all__ = ["ReadAheadPlan", "plan_read_ahead"]

_BUFFERS = 64 << 20  # bytes: some 500 records of 110 KB, enough for a disk's best queue depth
_BUFFER_SHARE = 8  # of the available memory, at most 1 / this
_WINDOW_SHARE = 4  # the same, for a shuffle that reads a whole window of blocks
_WINDOW_ROOM = 1.6  # buffers for a window: a block of five records stays until its last one is used
_KEPT = 0.5  # of the available memory, of a larger set
_KEPT_LEAST = 1 / 8  # of the set; less gains later epochs little, and reading it through the cache is slow


@dataclass(frozen=True)
class ReadAheadPlan:
    """What ``_C.Engine`` is told about reading ahead."""

    buffer_bytes: int  # of buffers, at most
    samples: int  # to announce beyond the batches in work
    keep: float  # share of the set that stays in the page cache once read; the rest is read past it


def plan_read_ahead(dataset: Packed, sampler: Sampler, room: int | None = None) -> ReadAheadPlan:
    """The plan for a loader; ``room``: :func:`fastload.machine.memory.available_memory`."""
    if room is None:
        room = available_memory()
    size = sum(shard.size for part in dataset.parts for shard in part.manifest.shards)
    record = max(1.0, size / max(1, sum(len(part) for part in dataset.parts)))
    share = sampler.partition.world_size  # a window's blocks are divided among the ranks
    order = sampler.order
    window = int(order.window / share * record * _WINDOW_ROOM) if isinstance(order, BlockOrder) else 0
    buffers = max(min(_BUFFERS, room // _BUFFER_SHARE), min(window, room // _WINDOW_SHARE))
    buffers = min(buffers, 2 * size + (1 << 20))
    samples = int(buffers / record / (_WINDOW_ROOM if window else 1))
    # What has room in the node's cache is not kept in the page cache as well.
    rest = size - sum(part.cached_bytes for part in dataset.parts)
    return ReadAheadPlan(buffers, samples, _keep(rest, room))


def _keep(size: int, room: int) -> float:
    """Which share of ``size`` bytes is to stay in the page cache."""
    if size <= PAGE_CACHE_SHARE * room:
        return 1.0
    share = _KEPT * room / size
    return share if share >= _KEPT_LEAST else 0.0
