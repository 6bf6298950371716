"""Which other samples a sample is put together with: mosaics, and mixes of two."""

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
_LEAST = 2 * _BACK  # global batches of an epoch; in shorter ones a few samples would always meet


@dataclass(frozen=True)
class Partnering:
    """How many other samples an operation puts together with each.

    Args:
        tiles: of a mosaic, the sample's own among them.
        p: with which a sample becomes a mosaic; else its own picture is the only one.
        mixup: with which it is mixed with another one, which is a mosaic by ``p``, too.
    """

    tiles: int
    p: float = 1.0
    mixup: float = 0.0

    @property
    def count(self) -> int:
        """Partners of a sample at most: those of its mosaic, then all tiles of the mosaic that it is mixed
        with."""
        return self.tiles - 1 + (self.tiles if self.mixup > 0.0 else 0)


def partners(sampler: Sampler, seed: int, epoch: int, batch: BatchIds, of: Partnering) -> IdArray:
    """(n, ``of.count``) int64 sample ids; -1: there is none. Padding has none.

    They stand at positions of the epoch's order: a subset's are of the subset, and a weighted order's come by
    their weights. Pure in seed, epoch, sample, draw, the order and the size of a global batch: threads, ranks
    and where an epoch is taken up change nothing.
    """
    n, count = len(batch.ids), of.count
    words = _C.batch_words(seed, epoch, batch.ids, batch.draws, _OP, 2 + (count + 1) // 2)
    uniforms = _joined(words[:, :2]).reshape(n, 4) >> np.uint64(11)
    drawn = uniforms.astype(np.float64) * 2.0**-53
    # Partners stand behind each other, 64 bits each; the first two blocks are the probabilities'.
    bits = _joined(words[:, 2:]).reshape(n, -1)[:, :count]
    found = sampler.ids_at(_places(sampler, epoch, batch, bits).reshape(-1), epoch).reshape(n, count)
    wanted = np.empty((n, count), np.bool_)
    wanted[:, : of.tiles - 1] = (drawn[:, 0] < of.p)[:, None]
    if of.mixup > 0.0:
        mixed = drawn[:, 1] < of.mixup
        wanted[:, of.tiles - 1] = mixed
        wanted[:, of.tiles :] = (mixed & (drawn[:, 2] < of.p))[:, None]
    wanted &= (batch.ids >= 0)[:, None]
    return np.where(wanted, found, np.int64(-1))


def reach(sampler: Sampler) -> int:
    """The last so many samples of this rank are those that partners are found among, for the most part.

    0: partners come from everywhere.
    """
    near = (_BACK + 2) * sampler.partition.batch_size  # with the sample's own, and what is in work already
    if not sampler.has_positions or not is_shuffled(sampler.order):
        return 0
    if sampler.order.is_drawn:  # is not asked before its epoch begins
        return near if sampler.partition.global_batch >= _GROUP else 0
    total = sampler.total(sampler.epoch)
    if total >= _LEAST * sampler.partition.global_batch and sampler.partition.global_batch < _GROUP:
        return 0
    return total if total < _LEAST * sampler.partition.global_batch else near


def _places(
    sampler: Sampler, epoch: int, batch: BatchIds, bits: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """The positions of (n, k) partners, by 64 bits each.

    A sample's group are the eight of its global batch around it, at the batch's end its last eight; its
    partners come uniformly from the same places of the eight global batches before. The rank that has the
    sample had those not long ago, and may still have their pictures. An order that is shuffled makes them
    samples as random as any. Of global batches of less than eight they come from everywhere: else a few
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
    found: npt.NDArray[np.int64] = first + within.astype(np.int64) - back * size
    return np.where(found < 0, found % total, found)


def _joined(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """(n, blocks, 2) of 64 bits from (n, blocks, 4) of 32."""
    joined: npt.NDArray[np.uint64] = words[..., ::2].astype(np.uint64) << np.uint64(32) | words[..., 1::2]
    return joined


def _high_product(bits: npt.NDArray[np.uint64], n: int) -> npt.NDArray[np.int64]:
    """``bits * n >> 64`` of 64 random bits each: uniform in [0, n), for n below 2**62."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low, high = np.uint64(n & 0xFFFFFFFF), np.uint64(n >> 32)
    first = (bits >> half) * low + ((bits & mask) * low >> half)
    second = (bits & mask) * high + (first & mask)
    product = (bits >> half) * high + (first >> half) + (second >> half)
    result: npt.NDArray[np.int64] = product.astype(np.int64)
    return result
