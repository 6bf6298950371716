"""Philox in NumPy, step by step: the random words of all samples of a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastload.sampler import BatchIds

_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

Words = npt.NDArray[np.uint64]  # of 32 bits each, where nothing else is said


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Philox4x32-10 of many counters: (..., 4) words in and out."""
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
    counter = np.array([epoch & 0xFFFFFFFF, epoch >> 32, 0x6661737A, 0x6C6F6164], np.uint64)
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return int(words[0]), int(words[1])


def sample_words(seed: int, epoch: int, batch: BatchIds, op: int, blocks: int) -> Words:
    """(n, blocks, 4) words of each sample and each block."""
    ids = batch.ids.astype(np.int64).view(np.uint64)
    counter = np.zeros((len(ids), blocks, 4), np.uint64)
    counter[..., 0] = (ids & _MASK)[:, None]
    counter[..., 1] = (ids >> _32)[:, None]
    if batch.draws is not None:
        counter[..., 2] = batch.draws.astype(np.uint64)[:, None]
    counter[..., 3] = np.uint64(op << 16) | np.arange(blocks, dtype=np.uint64)
    return philox(counter, epoch_key(seed, epoch))
