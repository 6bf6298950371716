"""Samplers whose draws are a function of (seed, epoch, position): nothing is listed, every rank agrees.

A DataLoader takes them as ``sampler=``. Unlike torch's, which must list a whole epoch, they compute just the
positions that are requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fastload.machine.sizes import counted
from fastload.sampler.order import PADDING, IdArray, Partition, random_words, shuffled

# ---- Samplers ----


class KeyedSampler:
    """The interface through which the DataLoader requests an order instead of a list."""

    in_packs: ClassVar[bool] = False  # batches have packs of samples, of which batch_size is the number

    def order(self, n: int, seed: int) -> Any:
        """Return the :class:`~fastload.sampler.sampler.Order` over a dataset of ``n`` samples.

        Raises:
            ValueError, IndexError: the sampler does not fit the dataset.
        """
        raise NotImplementedError

    def divided(self, partition: Partition) -> Partition:
        """Return how ranks share the order's positions; ``partition`` is the loader's default."""
        return partition

    def samples_of(self, batch_size: int) -> int:
        """Return about how many samples a batch has."""
        return batch_size

    def batches(self, order: Any, partition: Partition) -> Any:
        """Return the :class:`~fastload.sampler.sampler.Sampler` that batches the order; None: the default."""
        return None


class WeightedSampler(KeyedSampler):
    """A sampler that draws in proportion to weights: torch's ``WeightedRandomSampler`` for all ranks.

    With replacement a position costs a binary search. Without it, the epoch's order is computed when it
    begins, in O(n log n) time and 8 n bytes: the largest of the keys ``log(u) / weight`` (Efraimidis and
    Spirakis, "Weighted random sampling with a reservoir", 2006).

    Args:
        weights: one per sample, >= 0, finite, not all 0.
        num_samples: positions in an epoch over all ranks.
        replacement: whether a sample may come several times in an epoch; its augmentation differs each time.

    Raises:
        ValueError: weights or num_samples out of range.
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True) -> None:
        try:
            self.weights: npt.NDArray[np.float64] = np.asarray(weights, np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"weights must be numbers, one for each sample. Found: {weights!r}.") from None
        self.num_samples = num_samples
        self.replacement = replacement
        if self.weights.ndim != 1:
            raise ValueError(
                f"weights must be one list, a number for each sample. Found the shape {self.weights.shape}."
            )
        bad = np.flatnonzero(~(np.isfinite(self.weights) & (self.weights >= 0)))
        if bad.size:
            raise ValueError(
                f"weights must be finite numbers >= 0. Found: {self.weights[bad[0]]} for sample {bad[0]} and "
                f"{bad.size - 1} more."
            )
        possible = int(np.count_nonzero(self.weights))
        if possible == 0:
            raise ValueError(f"weights must not be all 0. Found: {len(self.weights)} weights, none above 0.")
        if not np.isfinite(self.weights.sum()):
            raise ValueError(
                "The sum of weights must be a finite number. Found: weights up to "
                f"{self.weights.max():g}, whose sum overflows. Divide all by the largest: only their "
                "proportions matter."
            )
        if isinstance(num_samples, bool) or not hasattr(type(num_samples), "__index__"):
            raise TypeError(f"num_samples must be an integer. Found: {num_samples!r}.")
        if num_samples < 1:
            raise ValueError(f"num_samples must be >= 1. Found: {num_samples}.")
        if not replacement and num_samples > possible:
            raise ValueError(
                f"Without replacement num_samples must be at most {possible}, the number of weights that are "
                f"not 0. Found: {num_samples}."
            )

    def __len__(self) -> int:
        return self.num_samples

    def __repr__(self) -> str:
        weights = counted(len(self.weights), "weight")
        return f"WeightedSampler({weights}, num_samples={self.num_samples}, replacement={self.replacement})"

    def order(self, n: int, seed: int) -> Any:
        if len(self.weights) != n:
            raise ValueError(
                f"weights must have {n} numbers, one for each sample. Found: {len(self.weights)}."
            )
        kind = _WithReplacement if self.replacement else _WithoutReplacement
        return kind(self.weights, self.num_samples, seed)


class SubsetSampler(KeyedSampler):
    """A sampler of some samples only: torch's ``SubsetRandomSampler`` for all ranks.

    Args:
        ids: sample ids; one that is listed twice comes twice.
        shuffle: False: in the order of the list.
    """

    def __init__(self, ids: Sequence[int], shuffle: bool = True) -> None:
        given = np.asarray(ids)
        if given.dtype.kind not in "iu" and given.size:
            raise TypeError(f"ids must be integers, sample ids. Found: {given.dtype} ({given.ravel()[0]!r}).")
        self.ids: IdArray = given.astype(np.int64)
        self.shuffle = shuffle
        if self.ids.ndim != 1 or len(self.ids) == 0:
            raise ValueError("ids must be a list of at least one sample id.")

    def __repr__(self) -> str:
        return f"SubsetSampler({counted(len(self.ids), 'id')}, shuffle={self.shuffle})"

    def __len__(self) -> int:
        return len(self.ids)

    def order(self, n: int, seed: int) -> Any:
        wrong = self.ids[(self.ids < 0) | (self.ids >= n)]
        if len(wrong):
            raise IndexError(f"SubsetSampler has sample id {wrong[0]}; legal are 0 to {n - 1}.")
        return _Subset(self.ids, self.shuffle, seed, len(np.unique(self.ids)) < len(self.ids))


@dataclass(frozen=True, eq=False)
class _Subset:
    listed: IdArray
    shuffle: bool
    seed: int
    repeats: bool
    is_drawn: bool = False

    def total(self, epoch: int) -> int:
        return len(self.listed)

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        if self.shuffle:
            positions = shuffled(positions, len(self.listed), self.seed, epoch)
        return self.listed[positions]


def _uniform(positions: IdArray, seed: int, epoch: int) -> npt.NDArray[np.float64]:
    """Return 53-bit random numbers in (0, 1)."""
    bits = random_words(positions, seed, epoch) >> np.uint64(11)
    uniform: npt.NDArray[np.float64] = (bits.astype(np.float64) + 0.5) * 2.0**-53
    return uniform


class _WithReplacement:
    repeats = True
    is_drawn = False

    def __init__(self, weights: npt.NDArray[np.float64], num_samples: int, seed: int) -> None:
        # Zero weights are left out, so that no rounding can draw them.
        self._possible = np.flatnonzero(weights)
        self._ends = np.cumsum(weights[self._possible])
        self._num_samples = num_samples
        self._seed = seed

    def total(self, epoch: int) -> int:
        return self._num_samples

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        wanted = _uniform(positions, self._seed, epoch) * self._ends[-1]
        found = np.searchsorted(self._ends, wanted, side="right")
        ids: IdArray = self._possible[np.minimum(found, len(self._possible) - 1)]
        return ids


class _WithoutReplacement:
    repeats = False
    is_drawn = False

    def __init__(self, weights: npt.NDArray[np.float64], num_samples: int, seed: int) -> None:
        self._weights = weights
        self._num_samples = num_samples
        self._seed = seed
        self._drawn = lru_cache(maxsize=2)(self._draw)

    def _draw(self, epoch: int) -> IdArray:
        possible = np.flatnonzero(self._weights)
        keys = np.log(_uniform(possible, self._seed, epoch)) / self._weights[possible]
        order: IdArray = possible[np.argsort(-keys, kind="stable")[: self._num_samples]]
        return order

    def total(self, epoch: int) -> int:
        return self._num_samples

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        return self._drawn(epoch)[positions]


# ---- Repeated augmentation ----


class RepeatedSampler(KeyedSampler):
    """A sampler with each sample ``num_repeats`` times in a row over the ranks: DeiT's and torchvision's
    ``RASampler``.

    Hoffer et al., "Augment your batch: better training with larger batches" (2019); Touvron et al., DeiT
    (2021). Rank r of w takes positions r, r + w, r + 2w, ...: so a sample's copies, whose augmentations
    differ, are in one step, on different ranks. An epoch has its usual length, and so contains only a part of
    the samples. Global batches are the same for any number of ranks.

    Args:
        num_repeats: copies of each sample, at least 1.
        shuffle: False: in the dataset's order.
        num_samples: positions in an epoch over all ranks, at most ``num_repeats`` times the samples; None:
            the number of samples, rounded down to a multiple of 256 if it is at least that, as in DeiT.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    def __init__(self, num_repeats: int = 3, shuffle: bool = True, num_samples: int | None = None) -> None:
        for name, number in (("num_repeats", num_repeats), ("num_samples", num_samples)):
            if number is None and name == "num_samples":
                continue
            if isinstance(number, bool) or not hasattr(type(number), "__index__"):
                raise TypeError(f"RepeatedSampler.{name} must be an integer. Found: {number!r}.")
            if number < 1:  # type: ignore[operator]
                raise ValueError(f"RepeatedSampler.{name} must be >= 1. Found: {number}.")
        self.num_repeats = num_repeats
        self.shuffle = shuffle
        self.num_samples = num_samples

    def __repr__(self) -> str:
        rest = "" if self.num_samples is None else f", num_samples={self.num_samples}"
        return f"RepeatedSampler({self.num_repeats}, shuffle={self.shuffle}{rest})"

    def order(self, n: int, seed: int) -> Any:
        total = self.num_samples or (n // 256 * 256 or n)
        if total > n * self.num_repeats:
            raise ValueError(
                f"num_samples must be at most {n * self.num_repeats}, {self.num_repeats} times each of {n} "
                f"samples. Found: {total}."
            )
        return _Repeated(n, self.num_repeats, total, self.shuffle, seed)

    def divided(self, partition: Partition) -> Partition:
        return _Strided(
            partition.batch_size,
            partition.rank,
            partition.world_size,
            partition.drop_last,
            partition.padding,
        )


@dataclass(frozen=True)
class _Repeated:
    n: int
    num_repeats: int
    length: int
    shuffle: bool
    seed: int
    is_drawn: bool = False

    @property
    def repeats(self) -> bool:
        return self.num_repeats > 1

    def total(self, epoch: int) -> int:
        return self.length

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        places = positions // self.num_repeats
        return shuffled(places, self.n, self.seed, epoch) if self.shuffle else places


@dataclass(frozen=True)
class _Strided(Partition):
    """A partition in which ranks take the positions of a global batch in turn."""

    def positions(self, total: int, start: int, step: int) -> IdArray:
        first = start + step * self.global_batch
        count = min(self.global_batch, total - first)
        own = np.arange(self.rank, -(-count // self.world_size) * self.world_size, self.world_size)
        own = own.astype(np.int64) + first
        if self.padding == "repeat":
            return np.where(own < total, own, (own - total) % total)
        if self.padding == "drop":
            return own[own < total]
        return np.where(own < total, own, PADDING)

    def ranks_of(self, positions: IdArray) -> IdArray:
        return positions % self.world_size
