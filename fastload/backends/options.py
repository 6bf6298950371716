"""The DataLoader's options as back ends get them, checked by fastload.loader.options."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from fastload.backends.values import Block, Dali, Device, Fields, OnError, Ranks, Tokenizers
from fastload.cache.settings import CacheSetting
from fastload.sample.layout import Sizes
from fastload.sampler import KeyedSampler

if TYPE_CHECKING:
    from fastload.dataset.windows import WindowPlan

#: Bytes of batches in work ahead of the consumer, if they differ in size and no number was given. With masks
#: of 1024x1024 one has 130 MB: eight would be a gigabyte of fresh pages before the first step is done.
AHEAD_BYTES = 256 << 20


def default_prefetch(threads: int, batch_size: int) -> int:
    """Return the default number of batches in work ahead: 2 to 8, about 64 samples per thread.

    While a sample that takes 100 times as long occupies one thread, each other one decodes 100 samples; if
    fewer are in work, the other threads wait (``benchmarks/bench_prefetch.py``).
    """
    return min(max(2, -(-64 * threads // batch_size)), 8)


def least_prefetch(threads: int, batch_size: int) -> int:
    """Return the least number of batches in work, however large: at least two, and two samples per thread."""
    return max(2, -(-2 * threads // batch_size))


@dataclass(frozen=True)
class Order:
    """The part of a DataLoader's parameters that says which samples come when.

    Args:
        shuffle: a new order every epoch; None: the user said nothing, which torch tells from False.
        block: the shape of an order by blocks, instead of a uniform one; None: uniform.
        sampler, batch_sampler: the user's, or None.
        drop_last: leave out an epoch's last, partial batch.
        padding: what fills the last batch of several ranks; see ``fastload.sampler.Partition``.
    """

    shuffle: bool | None = None
    block: Block | None = None
    sampler: Any = None
    batch_sampler: Any = None
    drop_last: bool = False
    padding: str = "mark"

    @property
    def is_given(self) -> bool:
        """Whether the user's sampler decides."""
        return self.sampler is not None or self.batch_sampler is not None

    @property
    def in_packs(self) -> bool:
        """Whether batches have packs of samples, of which the batch size is the number."""
        return isinstance(self.sampler, KeyedSampler) and self.sampler.in_packs

    def samples_of(self, batch_size: int) -> int:
        """Return about how many samples a batch has."""
        keyed = isinstance(self.sampler, KeyedSampler)
        return int(self.sampler.samples_of(batch_size)) if keyed else batch_size

    @property
    def in_words(self) -> bool | str:
        """``shuffle`` as the user may have written it: True, False or "block"."""
        return "block" if self.block is not None else bool(self.shuffle)


@dataclass(frozen=True)
class Options:
    """The resolved parameters of a DataLoader, without those of :class:`Order`; see
    :class:`fastload.DataLoader` for the meanings."""

    batch_size: int  # 1 for samples one by one, and with a batch sampler
    unbatched: bool = False  # samples one by one
    num_workers: int | None = None
    prefetch_factor: int = 2
    ahead_bytes: int = 0  # limit for batches in work, if they differ in size; 0: prefetch_factor was given
    collate_fn: Callable[[list[Any]], Any] | None = None
    pin_memory: bool = False
    timeout: float = 0
    persistent_workers: bool = False
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: Any = None
    generator: torch.Generator | None = None
    in_order: bool = True
    snapshot_every_n_steps: int | None = 1
    seed: int = 0
    ranks: Ranks = field(default_factory=Ranks)
    local_ranks: tuple[int, int] = (0, 1)  # rank and number of ranks on this node
    errors: OnError = field(default_factory=OnError)
    device: Device = field(default_factory=lambda: Device(None))
    batch_transform: Any = None
    autotune: bool = False
    cache: CacheSetting = field(default_factory=CacheSetting)
    dali: Dali | None = None  # None: the native back end
    fields: Fields = field(default_factory=Fields)
    pictures: Sizes = field(default_factory=Sizes)  # of pictures that differ in size
    collate: Any = None  # what is made of each batch, after everything else
    text: Tokenizers | None = None
    origins: bool = False  # batches say where samples come from, and have their numbers on the host, too
    windows: WindowPlan | None = None  # which rows stand around each sample

    @property
    def collates_freely(self) -> bool:
        """Whether ``collate`` is the user's function, which takes batches as they are."""
        return callable(self.collate) and not hasattr(self.collate, "planned")

    @property
    def most_prefetch(self) -> int:
        """The most batches in work ahead of the consumer."""
        if not self.autotune:
            return self.prefetch_factor
        from fastload.prefetch.autotune import EXTRA_DEPTH

        return self.prefetch_factor + EXTRA_DEPTH

    def most_ahead(self, nbytes: int, threads: int) -> int:
        """Return ``most_prefetch`` limited by bytes, for batches of at most ``nbytes``; there may be more
        smaller ones, but not more bytes."""
        if not self.ahead_bytes:
            return self.most_prefetch
        least = least_prefetch(threads, self.batch_size)
        return min(self.most_prefetch, max(least, self.ahead_bytes // nbytes + 2))


_warned: set[str] = set()

_WHY_IGNORED = {
    "worker_init_fn": "a packed dataset is decoded by threads of this process, there are no worker processes",
    "multiprocessing_context": "a packed dataset is decoded by threads of this process",
    "in_order": "batches always come in order, and a slow sample stalls nobody",
    "pin_memory_device": "memory is pinned for the current accelerator",
}


def warn_ignored(given: dict[str, bool]) -> None:
    """Warn once per process of each given torch option that has no meaning here."""
    for name, is_given in given.items():
        if is_given and name not in _warned:
            _warned.add(name)
            warnings.warn(f"DataLoader ignores {name}: {_WHY_IGNORED[name]}.", stacklevel=3)
