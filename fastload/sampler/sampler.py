"""The sample ids of this rank's batches in every epoch, also for growing sets and subsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from operator import index
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fastload.errors import StateError
from fastload.sampler.changing import whole_order
from fastload.sampler.drawn import POOL, DrawnBatches, DrawnOrder
from fastload.sampler.keyed import KeyedSampler
from fastload.sampler.order import PADDING, IdArray, Partition, shuffled, unshuffled

# ---- The order of a dataset whose length may change between epochs ----

_KEPT = 64  # epochs that may be in progress at the same time


class GrowingOrder:
    """An order of the samples that exist when an epoch begins, each once.

    Args:
        length: returns the dataset's current length.
        shuffle: a uniform shuffle, different each epoch; else 0, 1, 2, ...
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
        """Begin the epoch: fix its number of samples at the dataset's current one."""
        self._lengths.pop(epoch, None)
        self._lengths[epoch] = self._length()
        if len(self._lengths) > _KEPT:
            del self._lengths[next(iter(self._lengths))]

    def total(self, epoch: int) -> int:
        """Return the samples of an epoch that has begun, else the dataset's current number."""
        found = self._lengths.get(epoch)
        return self._length() if found is None else found

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the sample ids at ``positions``."""
        return shuffled(positions, self.total(epoch), self._seed, epoch) if self.shuffle else positions


# ---- Batches ----


@dataclass(frozen=True)
class BatchIds:
    """The samples of one batch."""

    ids: IdArray  # (n,) int64 sample ids; -1: padding
    draws: npt.NDArray[np.uint32] | None  # (n,), tells repeated draws of one sample apart; None: all 0
    positions: IdArray | None = (
        None  # (n,), in the epoch's order; -1: padding; None: batches are not cut from it
    )


class Order(Protocol):
    """Sample ids of a whole epoch, over all ranks."""

    def total(self, epoch: int) -> int:
        """Return the number of positions in the epoch."""

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the sample ids at ``positions``."""

    @property
    def repeats(self) -> bool:
        """Whether a sample id may come twice in an epoch."""

    @property
    def is_drawn(self) -> bool:
        """Whether a user's sampler draws it, which may depend on anything until its epoch begins."""


def is_shuffled(order: Order) -> bool:
    """Return whether the order differs between epochs, as far as it says."""
    whole = whole_order(order)
    return bool(getattr(whole, "shuffle", not isinstance(whole, SequentialOrder)))


@dataclass(frozen=True)
class SequentialOrder:
    """0, 1, ..., n - 1 in every epoch."""

    n: int
    repeats: bool = False
    is_drawn: bool = False

    def total(self, epoch: int) -> int:
        return self.n

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        return positions

    def places(self, ids: IdArray, epoch: int) -> IdArray:
        """Return the positions of sample ids."""
        return ids


@dataclass(frozen=True)
class ShuffledOrder:
    """A uniform shuffle of all samples, different each epoch."""

    n: int
    seed: int
    repeats: bool = False
    is_drawn: bool = False

    def total(self, epoch: int) -> int:
        return self.n

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        return shuffled(positions, self.n, self.seed, epoch)

    def places(self, ids: IdArray, epoch: int) -> IdArray:
        """Return the positions of sample ids."""
        return unshuffled(ids, self.n, self.seed, epoch)


class Sampler:
    """This rank's batches of sample ids, and the number of the next epoch.

    Has what frameworks look for on ``loader.sampler``: ``set_epoch``, ``len()`` (samples of this rank in
    an epoch) and iteration over this rank's sample ids.
    """

    has_positions: ClassVar[bool] = True  # batches have their samples' positions in the epoch's order
    has_one_size: ClassVar[bool] = True  # none is larger than a partition's
    unit: ClassVar[str] = "sample"  # what positions and a partition's batch size count

    def __init__(self, order: Order, partition: Partition, share: tuple[int, int] = (0, 1)) -> None:
        self.order = order
        self.partition = partition
        self.share = share  # (rank, ranks) of the user's sampler, if it returns one rank's ids only
        self.epoch = 0  # the epoch of the next iteration
        #: A resumed epoch, and the global batch size of the run that began it.
        self.begun: tuple[int, int] | None = None

    def draws(self, positions: IdArray) -> npt.NDArray[np.uint32]:
        """Return what distinguishes the samples at ``positions`` from others with the same id, on all ranks.

        Repeated augmentation sends copies of a sample to several ranks, which must crop them differently.
        """
        rank, ranks = self.share
        return (positions * ranks + rank).astype(np.uint32)

    def set_epoch(self, epoch: int) -> None:
        """Run ``epoch`` next. Rarely needed: epochs advance by themselves."""
        try:
            number = index(epoch)
        except TypeError:
            raise TypeError(f"epoch must be an integer. Found: {epoch!r}.") from None
        if number < 0:
            raise ValueError(f"epoch must be >= 0. Found: {number}.")
        self.epoch = number

    def divide(self, partition: Partition, position: int = 0) -> None:
        """Divide positions among the ranks by ``partition`` from now on.

        Args:
            position: how far an epoch that is under way has come.

        Raises:
            StateError: the order's positions depend on the global batch, and an epoch is under way.
        """
        self.partition = partition

    def total(self, epoch: int) -> int:
        """Return the epoch's number of positions over all ranks."""
        return self.order.total(epoch)

    def num_batches(self, epoch: int, start: int = 0) -> int:
        """Return every rank's number of batches from position ``start`` on.

        Raises:
            TypeError: a user's sampler has no ``len()``.
        """
        return self.partition.num_batches(self.total(epoch), start)

    def has_batch(self, epoch: int, start: int, step: int) -> bool:
        """Return whether there is a ``step``-th batch after position ``start``."""
        return step < self.num_batches(epoch, start)

    def is_ready(self, epoch: int, start: int, step: int) -> bool:
        """Return whether that batch exists and can be made now."""
        return self.has_batch(epoch, start, step)

    @property
    def typical(self) -> int:
        """About how many samples this rank's batches have."""
        return self.partition.batch_size

    def most(self, epoch: int) -> int:
        """Return the most samples in one of this rank's batches."""
        return self.partition.batch_size

    def differs(self, saved: object) -> str | None:
        """Say how the order of a saved state differs from this one's, if there is more to say than both; "":
        it does not, whatever the two are named."""
        return None

    def pool(self, epoch: int) -> int:
        """Return the number of positions at an epoch's beginning for substitutes and partners: all."""
        return self.total(epoch)

    def reached(self, epoch: int, position: int) -> int:
        """Return ``position``, or the epoch's end if that comes first."""
        return min(position, self.total(epoch))

    def _known(self, epoch: int, start: int, step: int) -> int:
        """Return the epoch's end, or a position after this batch if the end is later."""
        return self.total(epoch)

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        """Return the ``step``-th batch after position ``start``."""
        positions = self.partition.positions(self._known(epoch, start, step), start, step)
        padded = positions == PADDING
        ids = self.order.ids(np.where(padded, 0, positions), epoch)
        draws = self.draws(positions) if self.order.repeats else None
        return BatchIds(np.where(padded, np.int64(-1), ids), draws, positions)

    def global_batch(self, epoch: int) -> int:
        """Return the global batch size of the run that began the epoch."""
        begun = self.begun
        return begun[1] if begun is not None and begun[0] == epoch else self.partition.global_batch

    def ids_at(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the sample ids at positions of an epoch."""
        return self.order.ids(positions, epoch)

    def ranks_at(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the ranks that have positions of an epoch; near its end they may differ."""
        return self.partition.ranks_of(positions)

    def uses(self, positions: IdArray, epoch: int, ranks: range) -> tuple[IdArray, IdArray]:
        """Return the samples that these ranks need at ``positions``, and the position of each."""
        if len(ranks) < self.partition.world_size:
            at = self.ranks_at(positions, epoch)
            positions = positions[(at >= ranks.start) & (at < ranks.stop)]
        return self.ids_at(positions, epoch), positions

    def keys(self, epoch: int, start: int, step: int) -> Any:
        """Return a batch's keys for a torch Dataset: sample ids, or the draws of a user's sampler."""
        drawn = getattr(self.order, "keys", None)
        if drawn is None:
            return self.batch(epoch, start, step).ids.tolist()
        positions = self.partition.positions(self._known(epoch, start, step), start, step)
        return drawn(positions[positions != PADDING], epoch)

    def substitute(self, epoch: int, word: int) -> int:
        """Return the sample id at a position of this epoch's order chosen by a random 64-bit ``word``."""
        places = self.pool(epoch)
        return int(self.order.ids(np.array([word * places >> 64], dtype=np.int64), epoch)[0])

    def consumed(self, epoch: int, start: int, steps: int) -> int:
        """Return the epoch's position after ``steps`` batches from ``start``."""
        return self.reached(epoch, start + steps * self.partition.global_batch)

    def remainder(self, epoch: int) -> int:
        """Return the samples of the epoch's last, partial batch over all ranks; 0: none, or it is dropped."""
        return 0 if self.partition.drop_last else self.total(epoch) % self.partition.global_batch

    def _share(self, total: int) -> int:
        """Return this rank's number of samples in an epoch of ``total``."""
        whole, rest = divmod(total, self.partition.global_batch)
        partial = 0 if self.partition.drop_last else -(-rest // self.partition.world_size)
        return whole * self.partition.batch_size + partial

    def __len__(self) -> int:
        return self._share(self.total(self.epoch))

    def __iter__(self) -> Iterator[int]:
        for step in count():
            if not self.has_batch(self.epoch, 0, step):
                return
            yield from self.batch(self.epoch, 0, step).ids.tolist()


class DrawnSampler(Sampler):
    """Batches of the ids that a user's sampler draws, as far as they are requested."""

    def __init__(self, drawn: DrawnOrder, partition: Partition, share: tuple[int, int] = (0, 1)) -> None:
        super().__init__(drawn, partition, share)
        self._drawn = drawn

    def num_batches(self, epoch: int, start: int = 0) -> int:
        return self.partition.num_batches(self._drawn.length(), start)

    def has_batch(self, epoch: int, start: int, step: int) -> bool:
        least = self.partition.global_batch if self.partition.drop_last else 1
        return _there(self._drawn, epoch, start + step * self.partition.global_batch + least)

    def is_ready(self, epoch: int, start: int, step: int) -> bool:
        end = start + (step + 1) * self.partition.global_batch
        return self.has_batch(epoch, start, step) and _can_draw(self._drawn, epoch, end)

    def pool(self, epoch: int) -> int:
        return self._drawn.reached(epoch, POOL)

    def reached(self, epoch: int, position: int) -> int:
        return self._drawn.reached(epoch, position)

    def _known(self, epoch: int, start: int, step: int) -> int:
        return self._drawn.reached(epoch, start + (step + 1) * self.partition.global_batch)

    def __len__(self) -> int:
        return self._share(self._drawn.length())


def _can_draw(drawn: DrawnOrder | DrawnBatches, epoch: int, count: int) -> bool:
    """Return whether the user's sampler makes that many draws without an error."""
    try:
        drawn.reached(epoch, count)
    except Exception:
        return False
    return True


def _there(drawn: DrawnOrder | DrawnBatches, epoch: int, count: int) -> bool:
    """Return whether that many draws exist. If the sampler fails, the batch exists, and making it raises."""
    return not _can_draw(drawn, epoch, count) or drawn.reached(epoch, count) == count


class ListedSampler(Sampler):
    """Batches that a user's batch sampler drew: rank r takes every world_size-th of them."""

    has_positions = False
    has_one_size = False

    def __init__(self, drawn: DrawnBatches, partition: Partition, share: tuple[int, int] = (0, 1)) -> None:
        super().__init__(drawn, partition, share)
        self._drawn = drawn

    def num_batches(self, epoch: int, start: int = 0) -> int:
        left = max(0, self._drawn.length() - start)
        return -(-left // self.partition.world_size)

    def has_batch(self, epoch: int, start: int, step: int) -> bool:
        return _there(self._drawn, epoch, start + step * self.partition.world_size + 1)

    def is_ready(self, epoch: int, start: int, step: int) -> bool:
        end = start + (step + 1) * self.partition.world_size
        return self.has_batch(epoch, start, step) and _can_draw(self._drawn, epoch, end)

    def pool(self, epoch: int) -> int:
        return self._drawn.pool(epoch)

    def reached(self, epoch: int, position: int) -> int:
        return self._drawn.reached(epoch, position)

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        ids, first = self._drawn.batch(self._number(epoch, start, step), epoch)
        return BatchIds(ids, self.draws(np.arange(first, first + len(ids), dtype=np.int64)))

    def keys(self, epoch: int, start: int, step: int) -> Any:
        return self._drawn.keys(self._number(epoch, start, step), epoch)

    def _number(self, epoch: int, start: int, step: int) -> int:
        """Return the number of the batch in the epoch; the end is filled up from the beginning."""
        wanted = start + step * self.partition.world_size + self.partition.rank
        known = self._drawn.reached(epoch, wanted + 1)
        return wanted if known > wanted else wanted % known

    def consumed(self, epoch: int, start: int, steps: int) -> int:
        return self._drawn.reached(epoch, start + steps * self.partition.world_size)

    def remainder(self, epoch: int) -> int:
        count = self._drawn.count(epoch)
        last = range(count - count % self.partition.world_size, count)
        return sum(len(self._drawn.batch(number, epoch)[0]) for number in last)

    @cached_property
    def _size(self) -> int:
        return sum(1 for _ in self)

    def __len__(self) -> int:
        return self._size


def check_begun(sampler: Sampler, epoch: int, position: int) -> None:
    """Refuse to begin before the order does, which only that of a migrated mix knows.

    Raises:
        StateError: the mix began after this place.
    """
    check = getattr(sampler.order, "check_begun", None)
    if check is not None:
        check(epoch, position)


def check_position(sampler: Sampler, epoch: int, position: int) -> None:
    """Refuse to begin beyond an epoch's end, where an empty epoch would follow, or before the order begins.

    Raises:
        StateError: ``position`` is more than the epoch has, or a migrated mix began after it.
    """
    check_begun(sampler, epoch, position)
    end = sampler.reached(epoch, position)
    if position > end:
        raise StateError(
            f"position of a loader state must be at most {end}, the end of epoch {epoch}. Found: {position}. "
            "The state is of a larger dataset or of another sampler, or damaged."
        )


def make_sampler(
    n: int | None,
    partition: Partition,
    *,
    shuffle: bool,
    seed: int,
    sampler: Iterable[int] | KeyedSampler | None = None,
    batch_sampler: Iterable[Any] | None = None,
    own_order: Callable[[int, bool], Order] | None = None,
    length: Callable[[], int] | None = None,
    check_there: Callable[[IdArray], None] | None = None,
) -> Sampler:
    """Return the sampler for torch's arguments; ``own_order(seed, shuffle)`` is the dataset's.

    For a torch Dataset ``n`` is None, and ``length`` returns the number of samples when an epoch begins; a
    sampler may draw anything that the dataset accepts.

    ``check_there`` raises if a user's sampler drew a sample that was dropped.

    A sampler that already is one rank's share (it has ``num_replicas``, like ``DistributedSampler``) is not
    divided again.

    Raises:
        ValueError: arguments that exclude each other.
    """
    if (sampler is not None or batch_sampler is not None) and shuffle:
        raise ValueError("shuffle=True and a sampler exclude each other: the sampler gives the order.")
    if sampler is not None and batch_sampler is not None:
        raise ValueError("sampler and batch_sampler exclude each other.")
    own = batch_sampler if batch_sampler is not None else sampler
    inner: Any = getattr(own, "sampler", own)
    share = (0, 1)
    if hasattr(inner, "num_replicas"):
        share = int(getattr(inner, "rank", 0)), int(inner.num_replicas)
        partition = replace(partition, rank=0, world_size=1)
    if batch_sampler is not None:
        batches = DrawnBatches(batch_sampler, n, seed)
        batches.draws.check_there = check_there
        return ListedSampler(batches, partition, share)
    if isinstance(sampler, KeyedSampler):
        samples: Any = length() if length is not None else n
        order = sampler.order(samples, seed)
        made: Sampler | None = sampler.batches(order, partition)
        return Sampler(order, sampler.divided(partition)) if made is None else made
    if sampler is not None:
        drawn = DrawnOrder(sampler, n, seed)
        drawn.draws.check_there = check_there
        return DrawnSampler(drawn, partition, share)
    if length is not None:
        return Sampler(GrowingOrder(length, shuffle, seed), partition)
    assert n is not None
    if own_order is not None:
        return Sampler(own_order(seed, shuffle), partition)
    return Sampler(ShuffledOrder(n, seed) if shuffle else SequentialOrder(n), partition)


# ---- Samplers of datasets that choose samples of others ----


class MappedSampler:
    """A :class:`Sampler` over places of a dataset that returns the ids of the samples there.

    Args:
        sampler: over places.
        ids: (n,) int64, the sample id at each place.
        repeats: a sample id has several places. Then the place distinguishes its draws, unless the
            sampler's order already does.
    """

    def __init__(self, sampler: Sampler, ids: IdArray, repeats: bool) -> None:
        self._sampler = sampler
        self._ids = ids
        self._repeats = repeats

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __len__(self) -> int:
        return len(self._sampler)

    def batch(self, epoch: int, start: int, step: int) -> BatchIds:
        """Return a batch like :meth:`Sampler.batch`, in sample ids; -1: padding."""
        found = self._sampler.batch(epoch, start, step)
        padded = found.ids < 0
        places = np.where(padded, 0, found.ids)
        draws = found.draws
        if draws is None and self._repeats:
            draws = places.astype(np.uint32)
        return BatchIds(np.where(padded, np.int64(-1), self._ids[places]), draws, found.positions)

    def ids_at(self, positions: IdArray, epoch: int) -> IdArray:
        """Return sample ids like :meth:`Sampler.ids_at`."""
        return self._ids[self._sampler.ids_at(positions, epoch)]

    def uses(self, positions: IdArray, epoch: int, ranks: range) -> tuple[IdArray, IdArray]:
        """Return sample ids and positions like :meth:`Sampler.uses`."""
        places, positions = self._sampler.uses(positions, epoch, ranks)
        return self._ids[places], positions

    def substitute(self, epoch: int, word: int) -> int:
        """Return a sample id like :meth:`Sampler.substitute`."""
        return int(self._ids[self._sampler.substitute(epoch, word)])
