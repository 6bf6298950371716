"""The DataLoader's options, checked once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastload.backends.faults import ON_ERROR
from fastload.cache.settings import CacheSetting
from fastload.cache.tier import check_decoded
from fastload.prefetch.autotune import EXTRA_DEPTH

__all__ = ["Options", "default_prefetch", "warn_ignored"]

PADDINGS = ("mark", "repeat", "end")
HANDSHAKES = ("warn", "raise", "off")
AUTO = CacheSetting()
BACKENDS = ("native", "dali")
DEVICE_MEMORY = ("fresh", "reuse", "poison")  # fastload.transfer.outputs says what they mean


def default_prefetch(threads: int, batch_size: int) -> int:
    """Batches in work ahead of the consumer where none are asked for: 2 to 8, about 64 samples a thread.

    A sample that takes 100 times as long as the others occupies one thread while each other one decodes 100
    samples; if so many are not in work, the other threads wait (``benchmarks/bench_prefetch.py``).
    """
    return min(max(2, -(-64 * threads // batch_size)), 8)


@dataclass(frozen=True)
class Options:
    """What a DataLoader was asked for; see :class:`fastload.DataLoader` for the meanings."""

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
    unbatched: bool = False  # samples one by one; batch_size is 1
    drop_padding: bool = False

    @property
    def most_prefetch(self) -> int:
        """Batches that may be in work ahead of the consumer."""
        return self.prefetch_factor + (EXTRA_DEPTH if self.autotune else 0)

    def __post_init__(self) -> None:
        _integer("batch_size", self.batch_size, 1)
        if self.shuffle not in (True, False, "block"):
            raise ValueError(f"shuffle must be True, False or 'block'. Found: {self.shuffle!r}.")
        for name in ("shuffle_block", "shuffle_window"):
            if getattr(self, name) is not None:
                if self.shuffle != "block":
                    raise ValueError(f"{name} is for shuffle='block'. Found: shuffle={self.shuffle!r}.")
                _integer(name, getattr(self, name), 1)
        _integer("prefetch_factor", self.prefetch_factor, 1)
        _at_least("timeout", self.timeout, 0)
        _integer("max_pixels", self.max_pixels, 1)
        check_decoded(self.cache_decoded)
        if self.num_workers is not None:
            _integer("num_workers", self.num_workers, 0)
        _integer("seed", self.seed)
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be in [0, 2**64). Found: {self.seed}.")
        if self.on_error not in ON_ERROR:
            raise ValueError(f"on_error must be one of {', '.join(ON_ERROR)}. Found: {self.on_error!r}.")
        if self.padding not in PADDINGS:
            raise ValueError(f"padding must be one of {', '.join(PADDINGS)}. Found: {self.padding!r}.")
        if self.handshake not in HANDSHAKES:
            raise ValueError(f"handshake must be one of {', '.join(HANDSHAKES)}. Found: {self.handshake!r}.")
        if self.device_memory not in DEVICE_MEMORY:
            raise ValueError(
                f"device_memory must be one of {', '.join(DEVICE_MEMORY)}. Found: {self.device_memory!r}."
            )
        if self.device_memory != "fresh" and self.batch_transform is not None:
            raise ValueError(
                f"device_memory={self.device_memory!r} and batch_transform exclude each other: transforms of "
                f"batches make memory of their own."
            )
        _check_backend(self)


def _check_backend(options: Options) -> None:
    share, limit = options.decode_share, options.gpu_memory_limit
    if options.backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}. Found: {options.backend!r}.")
    if share != "auto":
        if isinstance(share, str):
            raise ValueError(f"decode_share must be 'auto' or a number in [0, 1]. Found: {share!r}.")
        _at_least("decode_share", share, 0)
        if share > 1:
            raise ValueError(f"decode_share must be <= 1. Found: {share}.")
    if limit is not None:
        _at_least("gpu_memory_limit", limit, 1)
    if options.backend == "native" and (share != 0 or limit is not None):
        raise ValueError("decode_share and gpu_memory_limit are for backend='dali'.")
    if options.backend == "dali" and options.cache_decoded is not None:
        raise ValueError("cache_decoded is for backend='native': DALI decodes records as they are.")
    if options.backend == "dali" and options.autotune:
        raise ValueError(
            "autotune moves the threads of backend='native'; DALI's number is fixed. With backend='dali' use "
            "decode_share='auto'."
        )


def _integer(name: str, value: Any, least: int | None = None) -> None:
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} must be an integer. Found: {value!r}.")
    if least is not None:
        _at_least(name, int(value), least)


def _at_least(name: str, value: float, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number. Found: {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be >= {least}. Found: {value}.")


_warned: set[str] = set()

_WHY_IGNORED = {
    "worker_init_fn": "a packed dataset is decoded by threads of this process, there are no worker processes",
    "multiprocessing_context": "a packed dataset is decoded by threads of this process",
    "in_order": "batches always come in order, and a slow sample stalls nobody",
    "pin_memory_device": "memory is pinned for the current accelerator",
}


def warn_ignored(given: dict[str, bool]) -> None:
    """Warn once a process for each torch option that was given and has no meaning here."""
    for name, is_given in given.items():
        if is_given and name not in _warned:
            _warned.add(name)
            warnings.warn(f"DataLoader ignores {name}: {_WHY_IGNORED[name]}.", stacklevel=3)
