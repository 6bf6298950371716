"""Orders: which sample id stands at which position of an epoch. Pure functions of their arguments.

The shuffle is a keyed bijection of [0, n), so position k is found without a list:

* n up to 2**16: the exact shuffle, positions sorted by 64 random bits each (kept for the last few epochs).
* above: a Feistel network over the smallest power of two that holds n (Luby and Rackoff, 1988), with cycle
  walking back into [0, n) (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).

All randomness comes from Philox4x32-10, keyed by seed and epoch (``csrc/core/base/philox.h``).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastload._native import _C

__all__ = ["EXACT_LIMIT", "derived_seed", "keyed_bits", "random_words", "shuffled"]

EXACT_LIMIT = 1 << 16
_ROUNDS = 12
_ORDER_TAG = 0x6F726472  # "ordr": keeps these words apart from every sample's
_PART_BLOCK = 0x70617274  # "part"
_M1 = np.uint64(0xBF58476D1CE4E5B9)  # SplitMix64's finaliser (Steele, Lea and Flood, 2014)
_M2 = np.uint64(0x94D049BB133111EB)

IdArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def _words(key: int, counter: int, block: int) -> list[int]:
    low = 0xFFFFFFFF
    return list(
        _C.philox4x32((counter & low, counter >> 32 & low, _ORDER_TAG, block), (key & low, key >> 32 & low))
    )


@lru_cache(maxsize=64)
def _round_keys(n: int, seed: int, epoch: int) -> Words:
    """One 64-bit key a round; other sizes get unrelated ones."""
    first, second, *_ = _words(seed, n, 0xFFFFFFFF)
    words = [word for block in range(_ROUNDS // 2) for word in _words(first | second << 32, epoch, block)]
    pairs = np.array(words, dtype=np.uint64).reshape(_ROUNDS, 2)
    keys: Words = pairs[:, 0] << np.uint64(32) | pairs[:, 1]
    return keys


def _mix(values: Words, key: np.uint64) -> Words:
    values = values + key
    values = (values ^ (values >> np.uint64(30))) * _M1
    values = (values ^ (values >> np.uint64(27))) * _M2
    mixed: Words = values ^ (values >> np.uint64(31))
    return mixed


def _feistel(values: Words, bits: int, keys: Words) -> Words:
    """A bijection of [0, 2**bits): rounds change the two parts of the bits in turn."""
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    low, high = values & low_mask, values >> low_bits
    for round_number, key in enumerate(keys):
        if round_number % 2:
            low = (low ^ _mix(high, key)) & low_mask
        else:
            high = (high ^ _mix(low, key)) & high_mask
    joined: Words = high << low_bits | low
    return joined


def random_words(positions: IdArray, seed: int, epoch: int) -> Words:
    """64 random bits for each position of an epoch, (k,) uint64."""
    keys = _round_keys(0, seed, epoch)
    return _mix(_mix(positions.astype(np.uint64), keys[0]), keys[1])


def derived_seed(seed: int, part: int) -> int:
    """A seed for the ``part``-th of several orders that one seed rules."""
    first, second, *_ = _words(seed, part, _PART_BLOCK)
    return first | second << 32


@lru_cache(maxsize=16)
def _exact(n: int, seed: int, epoch: int) -> IdArray:
    keys = _round_keys(n, seed, epoch)
    bits = _mix(_mix(np.arange(n, dtype=np.uint64), keys[0]), keys[1])
    order = np.argsort(bits, kind="stable").astype(np.int64)
    order.setflags(write=False)
    return order


def keyed_bits(values: Words, seed: int, epoch: int, purpose: int, number: int) -> Words:
    """64 random bits for each of ``values`` (k,) uint64: a bijection keyed by all the other arguments."""
    first, second, *_ = _words(seed, epoch, 0xFFFFFFF0 + purpose)
    words = np.array(_words(first | second << 32, number, purpose), dtype=np.uint64)
    keys = words[::2] << np.uint64(32) | words[1::2]
    return _mix(_mix(values, keys[0]), keys[1])


def shuffled(positions: IdArray, n: int, seed: int, epoch: int) -> IdArray:
    """Sample ids at ``positions`` of the uniform shuffle of ``range(n)`` for (seed, epoch).

    Args:
        positions: (k,) int64 in [0, n).
        n: number of samples, 1 to 2**62.
        seed: 0 <= seed < 2**64.
        epoch: 0 <= epoch < 2**64.

    Returns:
        (k,) int64; over all positions a permutation of ``range(n)``. O(k) time and memory above
        ``EXACT_LIMIT``.
    """
    if n <= EXACT_LIMIT:
        return _exact(n, seed, epoch)[positions]
    bits = (n - 1).bit_length()
    keys = _round_keys(n, seed, epoch)
    values = _feistel(positions.astype(np.uint64), bits, keys)
    outside = np.flatnonzero(values >= n)
    while len(outside):
        values[outside] = _feistel(values[outside], bits, keys)
        outside = outside[values[outside] >= n]
    return values.astype(np.int64)
