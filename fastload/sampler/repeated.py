"""Repeated augmentation: each sample several times, drawn anew each time, on different ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload.sampler.keyed import KeyedSampler
from fastload.sampler.order import IdArray, shuffled
from fastload.sampler.partition import PADDING, Partition

__all__ = ["RepeatedSampler"]


class RepeatedSampler(KeyedSampler):
    """Each sample ``num_repeats`` times, one after the other over the ranks: DeiT's and torchvision's
    ``RASampler``.

    Hoffer et al., "Augment your batch: better training with larger batches" (2019); Touvron et al., DeiT
    (2021). Rank r of w takes positions r, r + w, r + 2w, ...: so a sample's copies, whose augmentations
    differ, are in one step, on different ranks. An epoch is as long as ever, and so shows a part of the
    samples only. Global batches are the same for any number of ranks.

    Args:
        num_repeats: times that a sample comes, at least 1.
        shuffle: False: in the dataset's order.
        num_samples: positions of an epoch over all ranks, at most ``num_repeats`` times the samples; None: as
            many as there are samples, rounded down to a multiple of 256 where there are so many, as DeiT
            does.

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
    """Ranks take the positions of a global batch in turn."""

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
