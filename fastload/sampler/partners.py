"""The samples with which a sample is combined: mosaics, and mixes of two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.sampler.order import IdArray
from fastload.sampler.sampler import BatchIds, Sampler, is_shuffled

_OP = _C.DRAW_OPS["partner"]
_BACK = 8  # global batches
_GROUP = 8  # samples of each
_LEAST = 2 * _BACK  # global batches per epoch; with fewer, the same samples would always meet


@dataclass(frozen=True)
class Partnering:
    """How many other samples an operation combines with each.

    Args:
        tiles: of a mosaic, including the sample's own.
        p: probability that a sample becomes a mosaic; else it has only its own picture.
        mixup: probability of mixing it with another sample, which is also a mosaic with probability p.
    """

    tiles: int
    p: float = 1.0
    mixup: float = 0.0

    @property
    def count(self) -> int:
        """A sample's maximum number of partners: those of its mosaic, then all tiles of the mosaic it is
        mixed with."""
        return self.tiles - 1 + (self.tiles if self.mixup > 0.0 else 0)


def partners(sampler: Sampler, seed: int, epoch: int, batch: BatchIds, of: Partnering) -> IdArray:
    """Return (n, ``of.count``) int64 sample ids; -1: none, as for all of padding.

    They come from positions of the epoch's order: a subset's from the subset, a weighted order's by their
    weights. A pure function of seed, epoch, sample, draw, order and global batch size: threads, ranks and
    resuming change nothing.
    """
    n, count = len(batch.ids), of.count
    words = _C.batch_words(seed, epoch, batch.ids, batch.draws, _OP, 2 + (count + 1) // 2)
    uniforms = _joined(words[:, :2]).reshape(n, 4) >> np.uint64(11)
    drawn = uniforms.astype(np.float64) * 2.0**-53
    # Partners use consecutive 64-bit words; the first two blocks are for the probabilities.
    bits = _joined(words[:, 2:]).reshape(n, -1)[:, :count]
    ids = sampler.ids_at(_places(sampler, epoch, batch, bits).reshape(-1), epoch).reshape(n, count)
    wanted = np.empty((n, count), np.bool_)
    wanted[:, : of.tiles - 1] = (drawn[:, 0] < of.p)[:, None]
    if of.mixup > 0.0:
        mixed = drawn[:, 1] < of.mixup
        wanted[:, of.tiles - 1] = mixed
        wanted[:, of.tiles :] = (mixed & (drawn[:, 2] < of.p))[:, None]
    wanted &= (batch.ids >= 0)[:, None]
    return np.where(wanted, ids, np.int64(-1))


def reach(sampler: Sampler) -> int:
    """Return how many of this rank's last samples most partners come from.

    0: partners come from everywhere.
    """
    near = (_BACK + 2) * sampler.partition.batch_size  # plus the sample's own, and those in progress
    if not sampler.has_positions or not is_shuffled(sampler.order):
        return 0
    if sampler.order.is_drawn:  # it must not be read before its epoch begins
        return near if sampler.partition.global_batch >= _GROUP else 0
    total = sampler.total(sampler.epoch)
    if total >= _LEAST * sampler.partition.global_batch and sampler.partition.global_batch < _GROUP:
        return 0
    return total if total < _LEAST * sampler.partition.global_batch else near


def _places(
    sampler: Sampler, epoch: int, batch: BatchIds, bits: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Return the positions of (n, k) partners, from 64 bits each.

    A sample's group is the eight samples of its global batch around it, at the batch's end its last eight;
    its partners come uniformly from the same places of the eight global batches before. The rank that has the
    sample had those recently, and may still have their pictures. In a shuffled order they are as random as
    any other samples. With global batches below eight samples they come from everywhere: else the same few
    samples would meet again and again.
    """
    total, size = sampler.pool(epoch), sampler.global_batch(epoch)
    is_near = batch.positions is not None and size >= _GROUP and total >= _LEAST * size
    if batch.positions is None or not is_near or not is_shuffled(sampler.order):
        return _high_product(bits.reshape(-1), total).reshape(bits.shape)
    place = batch.positions[:, None] % size
    group = np.minimum(place // _GROUP * _GROUP, size - _GROUP)
    back = (bits >> np.uint64(61)).astype(np.int64) + 1
    within = bits >> np.uint64(58) & np.uint64(_GROUP - 1)
    first = batch.positions[:, None] - place + group
    places: npt.NDArray[np.int64] = first + within.astype(np.int64) - back * size
    return np.where(places < 0, places % total, places)


def _joined(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Join (n, blocks, 4) 32-bit words into (n, blocks, 2) of 64 bits."""
    joined: npt.NDArray[np.uint64] = words[..., ::2].astype(np.uint64) << np.uint64(32) | words[..., 1::2]
    return joined


def _high_product(bits: npt.NDArray[np.uint64], n: int) -> npt.NDArray[np.int64]:
    """Return ``bits * n >> 64`` of 64 random bits each: uniform in [0, n), for n below 2**62."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low, high = np.uint64(n & 0xFFFFFFFF), np.uint64(n >> 32)
    first = (bits >> half) * low + ((bits & mask) * low >> half)
    second = (bits & mask) * high + (first & mask)
    product = (bits >> half) * high + (first >> half) + (second >> half)
    result: npt.NDArray[np.int64] = product.astype(np.int64)
    return result
