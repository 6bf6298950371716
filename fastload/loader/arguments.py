"""Arguments: what a DataLoader was made with, exactly as the user wrote it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import torch

from fastload.backends.values import (
    Block,
    Cache,
    ChatLike,
    Dali,
    Device,
    Fields,
    OnError,
    Pad,
    Printed,
    Tokenizers,
)
from fastload.cache.settings import CacheSetting
from fastload.sampler import KeyedSampler

# What each parameter takes: a value, or its short spelling.
Shuffle: TypeAlias = bool | Literal["block"] | Block | None
OnErrorWord: TypeAlias = Literal["raise", "skip", "replace"]
Padding: TypeAlias = Literal["mark", "repeat", "end", "drop"]
CacheLike: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Cache | CacheSetting | None
TextLike: TypeAlias = Mapping[str, Any] | Tokenizers | ChatLike | None
Collate: TypeAlias = (
    Literal["stack", "pad", "ragged", "list", "detr", "yolo"] | Pad | Callable[[Any], Any] | None
)


@dataclass(frozen=True, repr=False)
class Arguments(Printed):
    """A DataLoader's arguments by name; see :class:`fastload.DataLoader` for the meanings."""

    dataset: Any
    batch_size: int | None = 1
    shuffle: Shuffle = None
    sampler: Iterable[int] | KeyedSampler | None = None
    batch_sampler: Iterable[Any] | None = None
    num_workers: int | None = None
    collate_fn: Callable[[list[Any]], Any] | None = None
    pin_memory: bool = False
    drop_last: bool = False
    timeout: float = 0
    worker_init_fn: Callable[[int], None] | None = None
    multiprocessing_context: Any = None
    generator: torch.Generator | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    pin_memory_device: str = ""
    in_order: bool = True
    snapshot_every_n_steps: int | None = 1
    transform: Any = None
    seed: int | None = None
    ranks: Any = None
    on_error: OnErrorWord | OnError = "raise"
    padding: Padding | None = None
    device: str | torch.device | Device | None = None
    batch_transform: Any = None
    autotune: bool = False
    cache: CacheLike = "auto"
    backend: Literal["native", "dali"] | Dali = "native"
    fields: Sequence[str] | Fields | None = None
    collate: Collate = None
    text: TextLike = None
    storage_options: Mapping[str, Any] | None = None

    def as_keywords(self) -> dict[str, Any]:
        """Return them by name, as ``DataLoader(**keywords)`` takes them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def changed(self, **changes: Any) -> Arguments:
        """Return them with some replaced.

        Raises:
            TypeError: there is no such parameter.
        """
        return replace(self, **changes)
