"""DataLoader: joins sampler, back end, state and clocks. It computes nothing itself."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.profiler import record_function

from fastload.errors import StateError
from fastload.options import Options, warn_ignored
from fastload.packed import PackedBackend
from fastload.prefetch import BatchKey
from fastload.sampler import BatchSampler, Partition, make_sampler
from fastload.shard.dataset import PackedDataset
from fastload.state import LoaderState
from fastload.stats import ConsumerClock, stage_stats
from fastload.torch_workers import StreamBackend, TorchBackend
from fastload.transforms.plan import compile_plan
from fastload.world import available_cores, find_world

__all__ = ["DataLoader"]

_LABEL = "enumerate(DataLoader)#fastload.DataLoader.__next__"  # torch.profiler files it under DataLoader


class DataLoader:
    """Feeds a training loop with batches: ``torch.utils.data.DataLoader``'s parameters, packed data, threads.

    Args:
        dataset: a folder made by ``fastload pack`` (or an open ``PackedDataset``), or any torch Dataset. A
            torch Dataset runs in torch's own workers; order, ranks and state are ours all the same.
        batch_size: samples a batch of this rank.
        shuffle: a new uniform order every epoch.
        sampler: any iterable of sample ids (a torch Sampler), asked once an epoch; divided among ranks
            unless it is a rank's share already (``DistributedSampler``).
        batch_sampler: any iterable of lists of sample ids; excludes batch_size, shuffle, sampler, drop_last.
        num_workers: decoding threads; None: the cores that affinity mask and cgroup quota leave this rank; 0
            counts as 1. For a torch Dataset: torch's worker processes.
        collate_fn: called with the list of (image, label) of a batch instead of stacking them.
        pin_memory: batches lie in pinned memory, where there is CUDA.
        drop_last: leave out an epoch's last, partial batch.
        timeout: seconds to wait for a batch before RuntimeError; 0: no bound.
        worker_init_fn, multiprocessing_context: for torch Datasets; ignored, with a warning, for packed ones.
        generator: its initial seed is the seed, if ``seed`` is None.
        prefetch_factor: batches in work ahead of the consumer (in all, not for each thread); None: 2.
        persistent_workers: for torch Datasets; threads always persist.
        pin_memory_device, in_order: accepted for compatibility; ignored, with a warning.
        transform: ``fastload.transforms`` (also torchvision's, where they are the same); None decodes to
            uint8. Other callables run afterwards, on decoded (3, H, W) tensors, in Python threads.
        seed: order and augmentation depend on it, on the epoch and on the sample, and on nothing else.
        rank, world_size: default: the process group, torchrun's or SLURM's variables, else one process.
        on_error: a bad sample is an error ("raise"), a black image with label -100, which torch's
            cross_entropy ignores ("skip"), or replaced by another sample of the epoch ("replace").
        error_log: path of a JSONL file that gets a line for each bad sample.
        padding: the last batch of several ranks is filled with marked entries, label -100 ("mark", the
            default without shuffle: every sample counts once) or with samples from the epoch's beginning
            ("repeat", the default with shuffle, torch's rule).
        max_pixels: larger pictures are bad samples.

    Iterating gives ``(images, labels)``: images (batch, 3, height, width) in the transform's dtype, with
    channels_last strides; labels (batch,) int64.

    Raises:
        ValueError, TypeError: options out of range.
        FormatError, ShardError: the dataset cannot be opened.
        WorldError: rank and world size are half set.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Any = None,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        on_error: str = "raise",
        error_log: str | os.PathLike[str] | None = None,
        padding: str | None = None,
        max_pixels: int = 89_478_485,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        if batch_sampler is not None and (batch_size not in (None, 1) or shuffle or sampler or drop_last):
            raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last.")
        if batch_size is None and batch_sampler is None:
            raise ValueError("batch_size=None (no batches) is not supported. Pass batch_size=1.")
        if seed is None:
            seed = generator.initial_seed() if generator is not None else 0
        self._options = Options(
            batch_size=1 if batch_size is None else batch_size,
            drop_last=drop_last,
            shuffle=bool(shuffle),
            seed=seed,
            num_workers=num_workers,
            prefetch_factor=2 if prefetch_factor is None else prefetch_factor,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            timeout=timeout,
            persistent_workers=persistent_workers,
            on_error=on_error,
            error_log=error_log,
            padding=padding or ("repeat" if shuffle else "mark"),
            max_pixels=max_pixels,
        )
        self._transform = transform
        self._clock = ConsumerClock()
        self._open(dataset)
        self._backend: Any = None
        self._closed = False
        self._iterator: weakref.ref[_Iterator] | None = None
        self._at = LoaderState.begin(self.sampler.epoch)
