"""The DataLoader's options as back ends get them, checked by fastload.loader.options."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastload.cache.settings import CacheSetting

AUTO = CacheSetting()
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
class Options:
    """The options of a DataLoader; see :class:`fastload.DataLoader` for the meanings."""

    batch_size: int
    drop_last: bool
    shuffle: bool | str
    shuffle_block: int | None
    shuffle_window: int | None
    seed: int
    num_workers: int | None
    prefetch_factor: int
    collate_fn: Callable[[list[Any]], Any] | None
    pin_memory: bool
    timeout: float
    persistent_workers: bool
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    on_error: str
    error_log: str | os.PathLike[str] | None
    padding: str
    max_pixels: int
    handshake: str
    device: Any = None
    device_memory: str = "fresh"
    batch_transform: Any = None
    autotune: bool = False
    cache: CacheSetting = AUTO
    backend: str = "native"
    decode_share: float | str = 0.0
    gpu_memory_limit: int | None = None
    cache_decoded: int | str | None = None
    cache_format: str = "jpeg"  # what the cache keeps of JPEGs: "jpeg", "coefficients" or "auto"
    unbatched: bool = False  # samples one by one; batch_size is 1
    drop_padding: bool = False
    local_ranks: tuple[int, int] = (0, 1)  # rank and number of ranks on this node
    fields: Sequence[str] | None = None  # None: all; else batches are dicts
    sizes: str | tuple[int, int] = "stack"  # of pictures that differ; see fastload.sample.planned.Sizes
    collate: Any = None  # what is made of each batch, after everything else
    masks: str = "packed"  # outlines and run lengths: as they were packed, or drawn ("dense")
    text: Mapping[str, Any] | None = None  # what is made of texts, by field
    text_threads: int = 1
    ahead_bytes: int = 0  # limit for batches in work, if they differ in size; 0: prefetch_factor alone
    objects: Mapping[str, Sequence[str]] | None = None  # rows that go together, if the schema does not say
    origins: bool = False  # batches say where samples come from, and have their numbers on the host, too

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
