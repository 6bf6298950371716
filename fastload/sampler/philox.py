"""Philox by NumPy: the core's random words of all samples of a batch at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastload._native import _C

if TYPE_CHECKING:
    from fastload.sampler.sampler import BatchIds

__all__ = ["Words", "epoch_key", "high_product", "philox", "sample_words"]

_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

Words = npt.NDArray[np.uint64]  # of 32 bits each, where nothing else is said


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Philox4x32-10 of many counters: (..., 4) words in and out. The reference is base/philox.h."""
    c0, c1, c2, c3 = (counter[..., i] for i in range(4))
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (p1 >> _32) ^ c1 ^ np.uint64(k0),
            p1 & _MASK,
            (p0 >> _32) ^ c3 ^ np.uint64(k1),
            p0 & _MASK,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1)


def epoch_key(seed: int, epoch: int) -> tuple[int, int]:
    """As the core's."""
    counter = [epoch & 0xFFFFFFFF, epoch >> 32, 0x6661737A, 0x6C6F6164]
    words = _C.philox4x32(counter, [seed & 0xFFFFFFFF, seed >> 32])
    return int(words[0]), int(words[1])


def sample_words(seed: int, epoch: int, batch: BatchIds, op: int, blocks: int) -> Words:
    """(n, blocks, 4) words: what ``SampleRng::words`` gives for each sample and each block."""
    ids = batch.ids.astype(np.int64).view(np.uint64)
    counter = np.zeros((len(ids), blocks, 4), np.uint64)
    counter[..., 0] = (ids & _MASK)[:, None]
    counter[..., 1] = (ids >> _32)[:, None]
    if batch.draws is not None:
        counter[..., 2] = batch.draws.astype(np.uint64)[:, None]
    counter[..., 3] = np.uint64(op << 16) | np.arange(blocks, dtype=np.uint64)
    return philox(counter, epoch_key(seed, epoch))


def high_product(bits: Words, n: int) -> npt.NDArray[np.int64]:
    """``bits * n >> 64`` of 64 random bits each: uniform in [0, n), for n below 2**62."""
    low, high = np.uint64(n & 0xFFFFFFFF), np.uint64(n >> 32)
    first = (bits >> _32) * low + ((bits & _MASK) * low >> _32)
    second = (bits & _MASK) * high + (first & _MASK)
    product: npt.NDArray[np.int64] = ((bits >> _32) * high + (first >> _32) + (second >> _32)).astype(
        np.int64
    )
    return product
