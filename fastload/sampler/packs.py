"""Packs: several samples in one sequence of bounded length, a function of seed, epoch and lengths.

An epoch's shuffle is cut into windows of 4,096 positions. Each window is packed by itself, best fit
decreasing, and its packs are then shuffled. No window depends on another one, so any number of ranks find
the packs of any step by themselves, and resuming in the middle is counting packs, without reading a sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.machine.sizes import counted
from fastload.sampler.keyed import KeyedSampler
from fastload.sampler.order import (
    EXACT_LIMIT,
    PADDING,
    IdArray,
    Partition,
    derived_seed,
    round_keys,
    shuffled,
)
from fastload.sampler.sampler import BatchIds, Sampler

WINDOW: int = _C.PACK_WINDOW  # positions that are packed together
_MOST_LIMITS = 2  # beside tokens; kPackBounds in csrc/core/sampler/packing.h
_MOST = 2**31 - 1
_FIRST_COUNTED, _MOST_COUNTED = 8, 512  # windows at a time: some 3 ms, and 200, until a signal is seen
_KEPT = 32  # windows: those of the batches in work, at 4,096 samples each
_NAMED = 5  # samples in a message
_HASHED = 1 << 18  # numbers at a time

Limits = Mapping[str, tuple[Any, int]]

# ---- The sampler ----


class PackingSampler(KeyedSampler):
    """``sampler=`` of a DataLoader for packs of samples: sequences of nearly equal length.

    ``batch_size`` of the loader counts packs: a batch has all samples of this rank's packs, pack after pack,
    and ``batch["pack_offsets"]``, (packs + 1,) int64, says where each begins (docs/guide/samplers.md).

    Best fit decreasing (Johnson, "Near-optimal bin packing algorithms", 1973) over windows of 4,096
    positions of the epoch's shuffle. A global batch's packs are shared among the ranks by cost: the costliest
    first, each to the rank with the least so far, equal numbers of packs to all (Graham, 1969).

    Args:
        lengths: (n,) integers, tokens of each sample, at least 1.
        tokens: of a pack.
        limits: what else bounds a pack, at most two: by name, (n,) integers >= 0 and what a pack holds, as
            ``{"pictures": (counts, 32)}``. One mapping, as each array is of no use without its bound, and the
            names are those that messages use.
        costs: (n,) integers >= 0, what a sample costs a rank; None: its tokens.
        long: what becomes of samples that fit in no pack. "raise": a ValueError; "skip": they are left out.
        shuffle: False: windows and packs in the order of their samples' ids, the same in every epoch.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or outside its range, or a sample that fits in no
            pack.
    """

    in_packs: ClassVar[bool] = True

    def __init__(
        self,
        lengths: Any,
        tokens: int = 8192,
        *,
        limits: Limits | None = None,
        costs: Any = None,
        long: str = "raise",
        shuffle: bool = True,
    ) -> None:
        if long not in ("raise", "skip"):
            raise ValueError(f"PackingSampler.long must be 'raise' or 'skip'. Found: {long!r}.")
        self.tokens = _bound("tokens", tokens)
        self.long, self.shuffle = long, shuffle
        given = [_numbers("lengths", lengths, None, 1)]
        #: What a pack holds of tokens, and of each limit.
        self.most: list[int] = [self.tokens]
        names = ["tokens"]
        for name, (numbers, most) in _pairs(limits):
            names.append(name)
            given.append(_numbers(f"limits[{name!r}]", numbers, len(given[0]), 0))
            self.most.append(_bound(f"limits[{name!r}]", most))
        kept = self._fitting(given, names)
        self._length = len(given[0])
        self._digest = _digest_of(given, self.most, names, long)
        #: (bounds, samples) int32: tokens, and what is limited, of the samples that are not left out.
        count = self._length if kept is None else len(kept)
        self.amounts: npt.NDArray[np.int32] = np.empty((len(given), count), np.int32)
        for number, numbers in enumerate(given):
            self.amounts[number] = numbers if kept is None else numbers[kept]
        #: The ids of these samples; None: 0 to n - 1.
        self.ids: IdArray | None = kept
        own = None if costs is None else _numbers("costs", costs, self._length, 0)
        self.costs: npt.NDArray[Any] = self.amounts[0]
        if own is not None:
            self.costs = (own if kept is None else own[kept]).astype(np.int64)
        self._costs_digest = "" if own is None else _digest(own)
        self._shown: tuple[int, int] = 0, 0

    def _fitting(self, given: Sequence[npt.NDArray[Any]], names: Sequence[str]) -> IdArray | None:
        """Return the ids of the samples that fit in a pack; None: all."""
        fits = np.ones(len(given[0]), bool)
        for number, numbers in enumerate(given):
            fits &= numbers <= self.most[number]
        if fits.all():
            return None
        if self.long == "raise":
            why = "; ".join(
                f"{counted(int((numbers > most).sum()), 'sample')} with more than {most:,} {name}"
                for name, numbers, most in zip(names, given, self.most, strict=True)
                if (numbers > most).any()
            )
            long = np.flatnonzero(~fits)
            shown = ", ".join(
                f"{one} ({', '.join(str(numbers[one]) for numbers in given)})" for one in long[:_NAMED]
            )
            raise ValueError(
                f"Each sample must fit in a pack of {self._in_words(names)}. Found: {why}; the first are "
                f"{shown}. Raise the bound, shorten these samples, or leave them out by long='skip'."
            )
        if not fits.any():
            raise ValueError(
                f"No sample fits in a pack of {self._in_words(names)}: the shortest of {len(fits):,} has "
                f"{int(given[0].min()):,} tokens. Raise the bound."
            )
        return np.flatnonzero(fits)

    def _in_words(self, names: Sequence[str]) -> str:
        return ", ".join(f"{most:,} {name}" for name, most in zip(names, self.most, strict=True))

    @property
    def skipped(self) -> int:
        """The number of samples that are left out."""
        return self._length - len(self)

    def samples_of(self, batch_size: int) -> int:
        mean = int(self.amounts[0].sum(dtype=np.int64)) / len(self)
        return max(1, round(batch_size * self.tokens / mean))

    @property
    def digest(self) -> str:
        """Names lengths, limits and bounds; two samplers with one digest make the same packs."""
        return self._digest

    @property
    def costs_digest(self) -> str:
        """Names the costs, which decide a rank's share; "": tokens."""
        return self._costs_digest

    def __repr__(self) -> str:
        return (
            f"PackingSampler({counted(self._length, 'sample')}, tokens={self.tokens}, shuffle={self.shuffle})"
        )

    def __str__(self) -> str:
        """Describe the packs of the epoch that was begun last; before any, of epoch 0 of seed 0."""
        seed, epoch = self._shown
        order = PackedOrder(self, seed)
        packs, samples = order.packs(epoch), self.amounts.shape[1]
        full = self.amounts[0].sum(dtype=np.int64) / (packs * self.tokens)
        words = [
            f"{samples:,} samples in {packs:,} packs of {self.tokens:,} tokens",
            f"{100 * full:.1f}% full",
            *([f"{self.skipped:,} longer left out"] if self.skipped else []),
        ]
        return ", ".join(words) + (f" (epoch {epoch} of seed {seed})" if self.shuffle else "")

    def __len__(self) -> int:
        return int(self.amounts.shape[1])

    def order(self, n: int, seed: int) -> Any:
        if n != self._length:
            raise ValueError(
                f"PackingSampler must have the lengths of {n} samples, those of the dataset. Found: "
                f"{self._length}."
            )
        return PackedOrder(self, seed)

    def batches(self, order: Any, partition: Partition) -> Sampler:
        return PackBatches(order, partition)

    def show(self, seed: int, epoch: int) -> None:
        """Let ``print()`` describe this epoch."""
        self._shown = seed, epoch


def _bound(name: str, most: Any) -> int:
    if isinstance(most, bool) or not hasattr(type(most), "__index__"):
        raise TypeError(f"PackingSampler.{name} must be bounded by an integer. Found: {most!r}.")
    if not 1 <= most <= _MOST:
        raise ValueError(f"PackingSampler.{name} must be from 1 to {_MOST} a pack. Found: {most}.")
    return int(most)


def _pairs(limits: Limits | None) -> list[tuple[str, tuple[Any, int]]]:
    if limits is None:
        return []
    is_pairs = isinstance(limits, Mapping) and all(
        isinstance(name, str) and isinstance(pair, tuple) and len(pair) == 2 for name, pair in limits.items()
    )
    if not is_pairs:
        raise TypeError(
            "PackingSampler.limits must be a dict of pairs, {'pictures': (counts, 32)}: an array with a "
            f"number for each sample, and what a pack holds. Found: {limits!r:.200}."
        )
    if len(limits) > _MOST_LIMITS:
        raise ValueError(
            f"PackingSampler.limits must be at most {_MOST_LIMITS}, beside tokens. Found: {len(limits)}, "
            f"{', '.join(limits)}."
        )
    return list(limits.items())


def _numbers(name: str, given: Any, n: int | None, least: int) -> npt.NDArray[Any]:
    """Return an array of integers with one for each sample, none below ``least``."""
    numbers = np.asarray(given)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) == 0:
        raise TypeError(
            f"PackingSampler.{name} must be integers of shape (n,), one for each sample. Found: "
            f"{type(given).__name__} of {numbers.dtype} and shape {numbers.shape}."
        )
    if n is not None and len(numbers) != n:
        raise ValueError(f"PackingSampler.{name} must have {n} numbers, as lengths. Found: {len(numbers)}.")
    bad = np.flatnonzero(numbers < least)
    if len(bad):
        shown = ", ".join(f"{one} ({numbers[one]})" for one in bad[:_NAMED])
        raise ValueError(
            f"PackingSampler.{name} must be >= {least}. Found: {counted(len(bad), 'sample')} with less, the "
            f"first: {shown}. Leave samples without tokens out by a Subset."
        )
    return numbers


def _digest(numbers: npt.NDArray[Any]) -> str:
    """Return 16 hex digits that name integers, whatever their type."""
    found = hashlib.sha256()
    for first in range(0, len(numbers), _HASHED):  # no copy of all of them
        found.update(np.ascontiguousarray(numbers[first : first + _HASHED], "<i8").data)
    return found.hexdigest()[:16]


def _digest_of(
    given: Sequence[npt.NDArray[Any]], most: Sequence[int], names: Sequence[str], long: str
) -> str:
    parts = [f"{WINDOW} {long}", *(f"{name} {bound}" for name, bound in zip(names, most, strict=True))]
    return hashlib.sha256(" ".join([*parts, *map(_digest, given)]).encode()).hexdigest()[:16]


# ---- The order ----


class _Window(NamedTuple):
    """The packs of a window, in the epoch's order."""

    ids: list[IdArray]  # the samples of each
    costs: npt.NDArray[np.int64]


@dataclass
class _Known:
    """What is known of an epoch's packs. Replaced as a whole: threads may count at the same time."""

    ends: IdArray  # the number of packs up to and with each window
    largest: int  # samples in a pack


class PackedOrder:
    """The order of packs in every epoch, computed as far as it is asked for.

    Its positions, :meth:`total` and :meth:`ids` are those of the samples before they are packed; packs have
    numbers.

    Args:
        sampler: what to pack.
        seed: of the loader.
    """

    repeats = False
    is_drawn = False

    def __init__(self, sampler: PackingSampler, seed: int) -> None:
        self.sampler = sampler
        self.shuffle = sampler.shuffle
        self._seed = seed
        self._samples = sampler.amounts.shape[1]
        self._windows = -(-self._samples // WINDOW)
        self._global_batch = 1
        self._known = lru_cache(maxsize=4)(lambda epoch: [_Known(np.empty(0, np.int64), 0)])
        self._packed = lru_cache(maxsize=_KEPT)(self._window)

    def cut(self, global_batch: int) -> None:
        """Say how many packs a step has over all ranks, for the state."""
        self._global_batch = global_batch

    def begin(self, epoch: int) -> None:
        """Note that an epoch begins."""
        self.sampler.show(self._seed, epoch)

    @property
    def in_state(self) -> str:
        """The order as a loader's state names it."""
        own = self.sampler
        return f"packs:{own.tokens}:{self._global_batch}:{self.shuffle}:{own.digest}"

    @property
    def agreed(self) -> str:
        """What all ranks must have in common, beside the order's state."""
        return f"{self.in_state}:{self.sampler.costs_digest}"

    def differs(self, saved: object) -> str | None:
        """Say how the order of a saved state differs from this one; None: it is no order of packs.

        Positions are numbers of packs, so a step may have had another number of them over all ranks.

        Args:
            saved: the ``in_state`` of the other one.
        """
        parts = saved.split(":") if isinstance(saved, str) else []
        if len(parts) != 5 or parts[0] != "packs":
            return None
        tokens, _, shuffle, digest = parts[1:]
        if tokens != str(self.sampler.tokens):
            return f"packs had {tokens} tokens, now {self.sampler.tokens}"
        if digest != self.sampler.digest:
            return (
                "the lengths or limits of PackingSampler have changed, so that packs have other samples: "
                f"their digest was {digest:.40}, is {self.sampler.digest}"
            )
        if shuffle != str(self.shuffle):
            return f"PackingSampler.shuffle was {shuffle:.10}, is {self.shuffle}"
        return ""

    def total(self, epoch: int) -> int:
        return int(self._samples)

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        places = self._places(positions, epoch)
        return places if self.sampler.ids is None else self.sampler.ids[places]

    def _places(self, positions: IdArray, epoch: int) -> IdArray:
        return shuffled(positions, self._samples, self._seed, epoch) if self.shuffle else positions

    # ---- Counting ----

    def packs(self, epoch: int, needed: int | None = None) -> int:
        """Return the number of packs in the epoch, or ``needed`` if there are as many.

        Only as many windows are counted as that takes.
        """
        ends = self._ends(epoch, needed)
        known = int(ends[-1])
        return known if needed is None else min(needed, known)

    def largest(self, epoch: int) -> int:
        """Return the most samples in a pack of the epoch; counts all windows."""
        self._ends(epoch, None)
        return int(self._known(epoch)[0].largest)

    def _ends(self, epoch: int, needed: int | None) -> IdArray:
        of_epoch = self._known(epoch)
        known = of_epoch[0]
        while len(known.ends) < self._windows:
            count, last = len(known.ends), int(known.ends[-1]) if len(known.ends) else 0
            if needed is not None and last >= needed:
                break
            more = _FIRST_COUNTED
            if count:  # as many as are missing, if they have as many packs as those before
                more = _MOST_COUNTED if needed is None else (needed - last) * count // last + 1
            more = min(max(_FIRST_COUNTED, more), _MOST_COUNTED, self._windows - count)
            packs, largest = self._counts(epoch, count, more)
            ends = np.concatenate([known.ends, last + np.cumsum(packs, dtype=np.int64)])
            known = of_epoch[0] = _Known(ends, max(known.largest, largest))
        return known.ends

    def _counts(self, epoch: int, first: int, count: int) -> tuple[npt.NDArray[np.uint32], int]:
        """Count the packs of ``count`` windows from ``first`` on, and the samples in the largest of them."""
        amounts, most = self.sampler.amounts, self.sampler.most
        if not self.shuffle or self._samples > EXACT_LIMIT:
            keys = round_keys(self._samples, self._seed, epoch) if self.shuffle else None
            found = _C.count_packs(amounts, most, keys, first, first + count)
        else:
            end = min(self._samples, (first + count) * WINDOW)
            here = self._places(np.arange(first * WINDOW, end, dtype=np.int64), epoch)
            found = _C.count_packs(np.ascontiguousarray(amounts[:, here]), most, None, 0, count)
        return found[0], int(found[1].max())

    # ---- Packs ----

    def _window(self, epoch: int, window: int) -> _Window:
        begin = window * WINDOW
        positions = np.arange(begin, min(begin + WINDOW, self._samples), dtype=np.int64)
        places = self._places(positions, epoch)
        amounts = np.ascontiguousarray(self.sampler.amounts[:, places])
        members, ends = _C.pack_window(amounts, self.sampler.most)
        begins = np.concatenate([[0], ends[:-1]])
        places = places[members]
        costs = np.add.reduceat(self.sampler.costs[places], begins, dtype=np.int64)
        ids = places if self.sampler.ids is None else self.sampler.ids[places]
        packs = np.split(ids, ends[:-1])
        if not self.shuffle:
            return _Window(packs, costs)
        numbers = np.arange(len(packs), dtype=np.int64)
        mixed = shuffled(numbers, len(packs), derived_seed(self._seed, 1 + window), epoch)
        return _Window([packs[number] for number in mixed.tolist()], costs[mixed])

    def _located(self, number: int, epoch: int) -> tuple[_Window, int]:
        ends = self._ends(epoch, number + 1)
        window = int(np.searchsorted(ends, number, "right"))
        return self._packed(epoch, window), number - (int(ends[window - 1]) if window else 0)

    def pack(self, number: int, epoch: int) -> IdArray:
        """Return the sample ids of a pack."""
        window, place = self._located(number, epoch)
        return window.ids[place]

    def cost(self, number: int, epoch: int) -> int:
        """Return what a pack costs a rank."""
        window, place = self._located(number, epoch)
        return int(window.costs[place])


# ---- Batches ----


def share(costs: Sequence[int], rooms: Sequence[int]) -> list[list[int]]:
    """Share the packs of a global batch among ranks: the costliest first, to the least loaded with room.

    Args:
        costs: of each pack; equal ones go in this order.
        rooms: packs of each rank, as many in total as there are costs.

    Returns:
        The packs of each rank, in ascending order.
    """
    given: list[list[int]] = [[] for _ in rooms]
    loads = [(0, rank) for rank, room in enumerate(rooms) if room]
    heapify(loads)
    for pack in sorted(range(len(costs)), key=lambda one: (-costs[one], one)):
        load, rank = heappop(loads)
        given[rank].append(pack)
        if len(given[rank]) < rooms[rank]:
            heappush(loads, (load + costs[pack], rank))
    return [sorted(packs) for packs in given]


class PackBatches(Sampler):
    """This rank's packs of each global batch. Positions are numbers of packs, over all ranks."""

    has_positions = False
    has_one_size = False
    unit = "pack"

    def __init__(self, order: PackedOrder, partition: Partition) -> None:
        order.cut(partition.global_batch)
        super().__init__(order, partition)
        self._packed = order
        self._shares = lru_cache(maxsize=_KEPT)(self._shared)

    def divide(self, partition: Partition, position: int = 0) -> None:
        self._packed.cut(partition.global_batch)
        self.partition = partition

    @property
    def typical(self) -> int:
        return self._packed.sampler.samples_of(self.partition.batch_size)

    def most(self, epoch: int) -> int:
        return self.partition.batch_size * self._packed.largest(epoch)

    def total(self, epoch: int) -> int:
        return self._packed.packs(epoch)

    def has_batch(self, epoch: int, start: int, step: int) -> bool:
        first, size = start + step * self.partition.global_batch, self.partition.global_batch
        needed = first + (size if self.partition.drop_last else 1)
        return self._packed.packs(epoch, needed) == needed

    def pool(self, epoch: int) -> int:
        return self._packed.total(epoch)

    def reached(self, epoch: int, position: int) -> int:
        return self._packed.packs(epoch, position) if position > 0 else 0

    def differs(self, saved: object) -> str | None:
        return self._packed.differs(saved)

    def numbers(self, epoch: int, start: int, step: int) -> list[int]:
        """Return the numbers of this rank's packs in a batch; ``PADDING`` where a pack is padding."""
        return self._shares(epoch, start, step, self.partition)[self.partition.rank]

    def _shared(self, epoch: int, start: int, step: int, part: Partition) -> list[list[int]]:
        """Return the packs of each rank in a step."""
        first = start + step * part.global_batch
        known = self._packed.packs(epoch, first + part.global_batch)
        size, ranks = part.batch_size, part.world_size
        if known - first == part.global_batch:
            whole, rooms = list(range(first, known)), [size] * ranks
            padded = [0] * ranks
        else:
            whole, rooms, padded = _last(part, known, start, step)
        if ranks == 1:
            return [whole + padded[0] * [PADDING]]
        shared = share([self._packed.cost(number, epoch) for number in whole], rooms)
        return [
            [whole[place] for place in places] + fill * [PADDING]
            for places, fill in zip(shared, padded, strict=True)
        ]

    def _ids(self, epoch: int, start: int, step: int) -> list[IdArray]:
        empty = np.array(
            [-1], np.int64
        )  # of a padded pack: one row that is no sample, so that no batch is empty
        numbers = self.numbers(epoch, start, step)
        return [empty if number == PADDING else self._packed.pack(number, epoch) for number in numbers]

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        packs = self._ids(epoch, start, step)
        return BatchIds(np.concatenate(packs) if packs else np.empty(0, np.int64), None)

    def offsets(self, epoch: int, start: int, step: int) -> IdArray:
        """Return where each pack of a batch begins among its samples, and the end: (packs + 1,) int64."""
        sizes = [len(pack) for pack in self._ids(epoch, start, step)]
        return np.cumsum([0, *sizes], dtype=np.int64)

    def planned(self, epoch: int, start: int, step: int) -> IdArray:
        """Return the tokens that were planned for each of a batch's samples, (n,) int64; 0 for padding."""
        places, own = self.batch(epoch, start, step).ids, self._packed.sampler
        there = places >= 0
        ids = places[there] if own.ids is None else np.searchsorted(own.ids, places[there])
        found = np.zeros(len(places), np.int64)
        found[there] = own.amounts[0][ids]
        return found

    def keys(self, epoch: int, start: int, step: int) -> Any:
        return self.batch(epoch, start, step).ids.tolist()

    def uses(self, positions: IdArray, epoch: int, ranks: range) -> tuple[IdArray, IdArray]:
        part = self.partition
        if len(ranks) < part.world_size:
            owners: dict[int, int] = {}
            for step in np.unique(positions // part.global_batch).tolist():
                shares = self._shared(epoch, 0, step, part)
                owners.update((number, rank) for rank in ranks for number in shares[rank])
            positions = positions[[number in owners for number in positions.tolist()]]
        packs = [self._packed.pack(number, epoch) for number in positions.tolist()]
        if not packs:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(packs), np.repeat(positions, [len(pack) for pack in packs])

    def ids_at(self, positions: IdArray, epoch: int) -> IdArray:
        return self._packed.ids(positions, epoch)

    def remainder(self, epoch: int) -> int:
        return 0

    def __len__(self) -> int:
        if self.partition.world_size == 1 and not self.partition.drop_last:
            return self._packed.total(self.epoch)
        steps = range(self.num_batches(self.epoch))
        return sum(len(self.batch(self.epoch, 0, step).ids) for step in steps)


def _last(part: Partition, total: int, start: int, step: int) -> tuple[list[int], list[int], list[int]]:
    """Return the packs of a last, partial global batch, and of each rank how many packs and how much padding.

    ``padding="repeat"`` has packs of the epoch's beginning among them.
    """
    whole: list[int] = []
    rooms, padded = [], []
    for rank in range(part.world_size):
        own = Partition(part.batch_size, rank, part.world_size, part.drop_last, part.padding)
        numbers = own.positions(total, start, step)
        real = numbers[numbers != PADDING].tolist()
        whole += real
        rooms.append(len(real))
        padded.append(len(numbers) - len(real))
    return whole, rooms, padded
