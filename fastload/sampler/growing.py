"""The order of a dataset whose length may change between epochs: it is asked when each epoch begins."""

from __future__ import annotations

from collections.abc import Callable

from fastload.sampler.order import IdArray, shuffled

__all__ = ["GrowingOrder"]

_KEPT = 64  # epochs that may go on at the same time


class GrowingOrder:
    """All samples once an epoch: of those that there were when the epoch began.

    Args:
        length: of the dataset, now.
        shuffle: a uniform shuffle, another one each epoch; else 0, 1, 2, ...
        seed: of the shuffle.
    """

    repeats = False
    is_drawn = False

    def __init__(self, length: Callable[[], int], shuffle: bool, seed: int) -> None:
        self._length = length
        self._seed = seed
        self._lengths: dict[int, int] = {}
        self.shuffle = shuffle

    def begin(self, epoch: int) -> None:
        """The epoch begins: from now on it has as many samples as the dataset has now."""
        self._lengths.pop(epoch, None)
        self._lengths[epoch] = self._length()
        if len(self._lengths) > _KEPT:
            del self._lengths[next(iter(self._lengths))]

    def total(self, epoch: int) -> int:
        """Samples of an epoch that has begun, else of the dataset now."""
        found = self._lengths.get(epoch)
        return self._length() if found is None else found

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        """Sample ids at ``positions``."""
        return shuffled(positions, self.total(epoch), self._seed, epoch) if self.shuffle else positions
