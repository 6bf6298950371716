"""Orders: the sample id at each position of an epoch, and the positions of each of a rank's steps.

Both are pure functions of their arguments: every rank computes the same from the same few integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastload._native import _C

# ---- Random orders ----

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
def round_keys(n: int, seed: int, epoch: int) -> Words:
    """Return one 64-bit key per round; the keys for different sizes are unrelated."""
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
    """Apply a bijection of [0, 2**bits): rounds change the two parts of the bits in turn."""
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
    """Return 64 random bits for each position of an epoch, (k,) uint64."""
    keys = round_keys(0, seed, epoch)
    return _mix(_mix(positions.astype(np.uint64), keys[0]), keys[1])


def _unfeistel(values: Words, bits: int, keys: Words) -> Words:
    """Undo :func:`_feistel`: each round is its own inverse, so they come in reverse."""
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    low, high = values & low_mask, values >> low_bits
    for round_number in reversed(range(len(keys))):
        if round_number % 2:
            low = (low ^ _mix(high, keys[round_number])) & low_mask
        else:
            high = (high ^ _mix(low, keys[round_number])) & high_mask
    joined: Words = high << low_bits | low
    return joined


def derived_seed(seed: int, part: int) -> int:
    """Return a seed for the ``part``-th of several orders with a common seed."""
    first, second, *_ = _words(seed, part, _PART_BLOCK)
    return first | second << 32


@lru_cache(maxsize=16)
def _exact(n: int, seed: int, epoch: int) -> IdArray:
    keys = round_keys(n, seed, epoch)
    bits = _mix(_mix(np.arange(n, dtype=np.uint64), keys[0]), keys[1])
    order = np.argsort(bits, kind="stable").astype(np.int64)
    order.setflags(write=False)
    return order


def keyed_bits(values: Words, seed: int, epoch: int, purpose: int, number: int) -> Words:
    """Return 64 random bits for each of ``values`` (k,) uint64: a bijection keyed by the other arguments."""
    first, second, *_ = _words(seed, epoch, 0xFFFFFFF0 + purpose)
    words = np.array(_words(first | second << 32, number, purpose), dtype=np.uint64)
    keys = words[::2] << np.uint64(32) | words[1::2]
    return _mix(_mix(values, keys[0]), keys[1])


def shuffled(positions: IdArray, n: int, seed: int, epoch: int) -> IdArray:
    """Return the sample ids at ``positions`` of the uniform shuffle of ``range(n)`` for (seed, epoch).

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
    return _walk_cycles(_feistel, positions, n, seed, epoch)


def unshuffled(ids: IdArray, n: int, seed: int, epoch: int) -> IdArray:
    """Return the positions of sample ids in the shuffle: the inverse of :func:`shuffled`.

    Args:
        ids: (k,) int64 in [0, n).
        n, seed, epoch: as there.

    Returns:
        (k,) int64. O(k) time and memory above ``EXACT_LIMIT``: each walks the same cycle backwards.
    """
    if n <= EXACT_LIMIT:
        return inverse_of(_exact(n, seed, epoch))[ids]
    return _walk_cycles(_unfeistel, ids, n, seed, epoch)


def _walk_cycles(
    step: Callable[[Words, int, Words], Words], numbers: IdArray, n: int, seed: int, epoch: int
) -> IdArray:
    """Apply a bijection of a power of two until each number is below ``n`` again: one of ``range(n)``."""
    bits = (n - 1).bit_length()
    keys = round_keys(n, seed, epoch)
    values = step(numbers.astype(np.uint64), bits, keys)
    outside = np.flatnonzero(values >= n)
    while len(outside):
        values[outside] = step(values[outside], bits, keys)
        outside = outside[values[outside] >= n]
    return values.astype(np.int64)


def inverse_of(order: IdArray) -> IdArray:
    """Return the place of each number in a permutation, (n,) int64."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


# ---- Partition into batches and ranks ----
# Every rank computes the same number of batches from the same few integers, so none can run out first. A
# global batch is ``world_size * batch_size`` consecutive positions; rank r takes the r-th part. Positions
# count from the epoch's beginning; a resumed epoch continues at ``start``.

PADDING = -1  # the position of a padded entry


@dataclass(frozen=True)
class Partition:
    """How an epoch is cut into batches.

    ``padding`` determines the last, partial global batch of several ranks: "mark" spreads its samples as
    evenly as possible and fills up with marked entries (exact evaluation); "repeat" fills up with
    samples from the epoch's beginning, as ``torch.utils.data.DistributedSampler`` does; "end" leaves the
    marked entries to the last ranks, for frameworks that gather batches rank by rank and cut the end off;
    "drop" spreads as "mark" does but does not fill up: the last batch of some ranks is one sample smaller.
    """

    batch_size: int  # samples per rank
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False
    padding: str = "mark"

    @property
    def global_batch(self) -> int:
        """Samples per step over all ranks."""
        return self.batch_size * self.world_size

    def num_batches(self, total: int, start: int = 0) -> int:
        """Return each rank's number of batches from position ``start`` of an epoch of ``total`` samples."""
        left = max(0, total - start)
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    def positions(self, total: int, start: int, step: int) -> IdArray:
        """Return this rank's positions in the ``step``-th batch after ``start``; ``PADDING`` where padded.

        Returns:
            (n,) int64 with n <= batch_size; n is equal on all ranks (except with "drop"), and batch_size
            except for an epoch's last batch.
        """
        first = start + step * self.global_batch
        count = min(self.global_batch, total - first)
        if count == self.global_batch:
            return np.arange(self.batch_size, dtype=np.int64) + (first + self.rank * self.batch_size)
        size = -(-count // self.world_size)
        if self.padding == "repeat":
            own = np.arange(size, dtype=np.int64) + (first + self.rank * size)
            return np.where(own < total, own, (own - total) % total)
        if self.padding == "end":
            own = np.arange(size, dtype=np.int64) + (first + self.rank * size)
            return np.where(own < total, own, PADDING)
        begin = first + self.rank * count // self.world_size
        end = first + (self.rank + 1) * count // self.world_size
        if self.padding == "drop":
            return np.arange(begin, end, dtype=np.int64)
        own = np.full(size, PADDING, dtype=np.int64)
        own[: end - begin] = np.arange(begin, end, dtype=np.int64)
        return own

    def ranks_of(self, positions: IdArray) -> IdArray:
        """Return the ranks that have these positions of complete global batches."""
        return positions % self.global_batch // self.batch_size

    def consumed(self, total: int, start: int, steps: int) -> int:
        """Return the epoch's position after ``steps`` batches from ``start``; at most ``total``."""
        return min(total, start + steps * self.global_batch)
