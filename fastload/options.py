"""The DataLoader's options, checked once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastload.faults import ON_ERROR

__all__ = ["Options", "warn_ignored"]

PADDINGS = ("mark", "repeat")


@dataclass(frozen=True)
class Options:
    """What a DataLoader was asked for; see :class:`fastload.DataLoader` for the meanings."""

    batch_size: int
    drop_last: bool
    shuffle: bool
    seed: int
    num_workers: int | None
    prefetch_factor: int
    collate_fn: Callable[[list[Any]], Any] | None
    pin_memory: bool
    timeout: float
    persistent_workers: bool
    on_error: str
    error_log: str | os.PathLike[str] | None
    padding: str
    max_pixels: int

    def __post_init__(self) -> None:
        _at_least("batch_size", self.batch_size, 1)
        _at_least("prefetch_factor", self.prefetch_factor, 1)
        _at_least("timeout", self.timeout, 0)
        _at_least("max_pixels", self.max_pixels, 1)
        if self.num_workers is not None:
            _at_least("num_workers", self.num_workers, 0)
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be in [0, 2**64). Found: {self.seed}.")
        if self.on_error not in ON_ERROR:
            raise ValueError(f"on_error must be one of {', '.join(ON_ERROR)}. Found: {self.on_error!r}.")
        if self.padding not in PADDINGS:
            raise ValueError(f"padding must be one of {', '.join(PADDINGS)}. Found: {self.padding!r}.")


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
