"""``loader.sampler`` and ``loader.batch_sampler``: this rank's sample ids, in the form frameworks expect.

Frameworks leave a loader alone if its sampler is a ``DistributedSampler``, and give other loaders one. So the
sampler is one if the ranks divide the samples; else it is what torch's loader would have.
Frameworks also rebuild loaders from their attributes, as ``torch.utils.data.DataLoader(loader.dataset,
batch_sampler=..., collate_fn=...)``. Ids of packed datasets know which batch they belong to
(:mod:`fastload.shard.tickets`), so that such a loader gets its batches from the engine, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any
from weakref import WeakSet

from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import RandomSampler, SequentialSampler
from torch.utils.data import Sampler as TorchSampler
from torch.utils.data.distributed import DistributedSampler

from fastload.backends.options import Order
from fastload.errors import StateError, WorldError
from fastload.prefetch.feeder import BatchKey
from fastload.ranks.world import World
from fastload.sampler import Sampler, check_begun
from fastload.sampler.sampler import is_shuffled
from fastload.shard.tickets import SampleId, Source, Ticket


class RankSampler(TorchSampler[int]):
    """The sample ids of this rank, batch by batch, and the next epoch.

    It has the attributes of the :class:`fastload.sampler.Sampler` behind it, which is made on request, and
    made again if rank, world size or seed change before iteration begins.

    Args:
        make: makes that sampler.
        known: returns rank and world size, and the seed (None: not drawn yet), as they are now.
        dataset: the loader's.
        order: the loader's.
        source: returns the loader for the ids' tickets, None once it is gone; without it ids are integers.
    """

    def __init__(
        self,
        make: Callable[[World, int | None], Sampler],
        known: Callable[[], tuple[World, int | None]],
        dataset: Any,
        order: Order,
        source: Callable[[], Source | None] | None = None,
    ) -> None:
        self._make = make
        self._known = known
        #: What the loader's arguments say of its order.
        self.order_given = order
        self._source = source
        self._core: Sampler | None = None
        self._made_for: tuple[World, int | None] | None = None
        self._padding: str | None = None  # instead of the loader's
        self._own_padding = ""
        self._is_even = True
        self._goes_on = False
        self.batches_over: WeakSet[RankBatches] = WeakSet()
        #: How often the world has changed.
        self.divisions = 0
        self.dataset = dataset
        #: Epoch and position at which the loader's next iteration begins; None when the loader is gone.
        self.upcoming: Callable[[], tuple[int, int] | None] = lambda: None
        #: Maps the epoch that somebody sets to the one that is meant; None: the same.
        self.meant: Callable[[int], int] | None = None

    @property
    def core(self) -> Sampler:
        """The sampler for the present rank, world size and seed."""
        known = self._known()
        if self._core is None or known != self._made_for:
            sampler = self._make(*known)
            if self._core is not None:
                sampler.epoch, sampler.begun = self._core.epoch, self._core.begun
            self._core, self._made_for = sampler, known
            self._own_padding = sampler.partition.padding
            self._pad_core()
        return self._core

    def detach(self, begin: Callable[[RankSampler], Any]) -> Callable[[], None]:
        """Go through the epochs by itself from now on, for a sampler that somebody puts around this one.

        Args:
            begin: fixes rank, world size and seed.

        Returns:
            A function that calls ``begin`` once.
        """
        self._source, self._goes_on = None, True
        for batches in self.batches_over:  # their ids lead nowhere now; they would keep the loader alive
            batches.owner = None
        return lambda: begin(self).meet(self.core.epoch, 0)

    def remake(self, order: Order | None = None) -> None:
        """Make the sampler anew on the next request; ``order``: what the loader's arguments say now."""
        self._made_for, self.order_given = None, order or self.order_given

    def divide(self, world: World, position: int) -> None:
        """Divide the samples among the ranks of another world, while epochs are under way.

        Args:
            position: how far the furthest of these epochs has come.

        Raises:
            StateError: the order cannot be divided otherwise there.
            WorldError: the user's sampler has its own rank.
        """
        core = self.core
        if core.share != (0, 1):
            given = self.order_given.sampler or self.order_given.batch_sampler
            raise WorldError(
                f"{type(given).__name__} divides the samples itself, by its own rank and number of ranks. "
                "Leave it out: the loader's ranks= divide them."
            )
        core.divide(replace(core.partition, rank=world.rank, world_size=world.size), position)
        self.divisions += 1

    def divided(self) -> None:
        """Note that :meth:`divide` was for the world that is known now."""
        self._made_for = self._known()

    def pad(self, padding: str) -> None:
        """Fill the last batch of several ranks this way, not the loader's; see ``Partition``."""
        self._padding = padding
        self._pad_core()

    @property
    def even_batches(self) -> bool:
        """Whether all ranks' batches have the same length; Accelerate sets it for a while."""
        return self.core.partition.padding != "drop"

    @even_batches.setter
    def even_batches(self, is_even: bool) -> None:
        self._is_even = is_even
        self._pad_core()

    def _pad_core(self) -> None:
        if self._core is not None:
            padding = "drop" if not self._is_even else self._padding or self._own_padding
            self._core.partition = replace(self._core.partition, padding=padding)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return getattr(self.core, name)
        except AttributeError:
            if self.order_given.sampler is None:
                raise
        return getattr(self.order_given.sampler, name)

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The epoch that the next iteration runs."""
        core = self.core
        by_user = getattr(core.order, "set_by_user", None)
        found = by_user() if by_user is not None else None
        if found is not None:
            core.set_epoch(found)
        return core.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.core.epoch = epoch

    @property
    def begun(self) -> tuple[int, int] | None:
        """See :class:`fastload.sampler.Sampler`."""
        return self.core.begun

    @begun.setter
    def begun(self, begun: tuple[int, int] | None) -> None:
        self.core.begun = begun

    def set_epoch(self, epoch: int) -> None:
        """Run ``epoch`` next, also in the user's sampler. Not needed: epochs advance by themselves."""
        own = getattr(self.order_given.sampler, "set_epoch", None)
        if own is not None:
            own(epoch)
        self.core.set_epoch(epoch if self.meant is None else self.meant(epoch))

    @property
    def place(self) -> tuple[int, int]:
        """Epoch and position at which the next iteration begins."""
        return self.upcoming() or (self.epoch, 0)

    def __len__(self) -> int:
        self.core.epoch = self.epoch
        return len(self.core)

    def __iter__(self) -> Iterator[int]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[int]]:
        """Yield this rank's batches of sample ids in the next epoch."""
        epoch, start = (self.core.epoch, 0) if self._goes_on else self.place
        core = self.core
        check_begun(core, epoch, start)
        if self._goes_on:
            core.epoch = epoch + 1
        source = self._source() if self._source is not None else None
        divisions = self.divisions
        for step in count():
            if self.divisions != divisions:
                raise StateError(
                    "loader.reshard() was called while a framework iterates over loader.batch_sampler, whose "
                    "batches were numbered for the ranks before. Call it between two epochs, or iterate over "
                    "the loader itself."
                )
            if not core.has_batch(epoch, start, step):
                return
            ids = core.batch(epoch, start, step).ids.tolist()
            if source is None:
                yield ids
                continue
            ticket = Ticket(source, BatchKey(epoch, start, step), len(ids))
            yield [SampleId.of(sample, ticket, place) for place, sample in enumerate(ids)]


class DividedSampler(RankSampler, DistributedSampler[int]):
    """A rank's share of the samples, with the attributes of torch's ``DistributedSampler``."""

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """The number of ranks."""
        return self.core.partition.world_size

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This process's rank."""
        return self.core.partition.rank

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        """Whether an epoch's last, partial batch is left out."""
        return self.core.partition.drop_last

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Samples per epoch on this rank."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Samples per epoch on all ranks, including those that fill the last batch."""
        return self.num_samples * self.num_replicas

    @property
    def shuffle(self) -> bool:  # type: ignore[override]
        """Whether each epoch has another order."""
        return is_shuffled(self.core.order)

    @property
    def seed(self) -> int:  # type: ignore[override]
        """The loader's seed; 0 until it is drawn."""
        return self._known()[1] or 0


class _Random(RankSampler, RandomSampler):
    """All samples in a new order every epoch, with the attributes of torch's ``RandomSampler``."""

    replacement = False
    generator = None

    @property
    def data_source(self) -> Any:  # type: ignore[override]
        """The loader's dataset."""
        return self.dataset

    @property
    def num_samples(self) -> int:
        """Samples per epoch."""
        return len(self)


class _Sequential(RankSampler, SequentialSampler):
    """All samples in order, with the attributes of torch's ``SequentialSampler``."""

    @property
    def data_source(self) -> Any:  # type: ignore[override]
        """The loader's dataset."""
        return self.dataset


def sampler_class(is_divided: bool, order: Order) -> type[RankSampler]:
    """Return the kind of sampler that a loader with this order shows to frameworks."""
    if is_divided:
        return DividedSampler
    if order.is_given:
        return RankSampler
    return _Random if order.shuffle else _Sequential


class RankBatches(TorchBatchSampler):
    """The batches of a :class:`RankSampler`; with another sampler, torch's ``BatchSampler``.

    Frameworks make one of the same class around their own sampler.

    Args:
        sampler, batch_size, drop_last: torch's arguments.
        owner: the loader that the ids lead to, which has to live as long as this.
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool, owner: Any = None) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.owner = owner
        if isinstance(sampler, RankSampler):
            sampler.batches_over.add(self)

    @property
    def even_batches(self) -> bool:
        """Whether all ranks' batches have the same length; Accelerate sets it for a while."""
        return not isinstance(self.sampler, RankSampler) or self.sampler.even_batches

    @even_batches.setter
    def even_batches(self, is_even: bool) -> None:
        if isinstance(self.sampler, RankSampler):
            self.sampler.even_batches = is_even

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self.sampler, RankSampler):
            return self.sampler.batches()
        return super().__iter__()

    def __len__(self) -> int:
        if isinstance(self.sampler, RankSampler):
            return int(self.sampler.core.num_batches(self.sampler.epoch))
        return super().__len__()
