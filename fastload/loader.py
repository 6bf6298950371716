"""DataLoader: joins sampler, back end, state and clocks. It computes nothing itself."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import torch

from fastload.backends import check_placement, is_packed, is_stream, make_backend, plan_memory
from fastload.cache.settings import parse_setting
from fastload.cpu_budget import find_budget
from fastload.epochs import EpochIterator, Epochs
from fastload.faults import SampleReport
from fastload.handshake import Handshake, describe
from fastload.mixture import MixedFiles
from fastload.options import Options, default_prefetch, warn_ignored
from fastload.pictures import PackedDataset, given_transform
from fastload.preemption import Callbacks
from fastload.sampler import (
    BatchSampler,
    BlockOrder,
    BlockSampler,
    Partition,
    Sampler,
    default_blocks,
    make_sampler,
    order_name,
)
from fastload.shard.dataset import PackedFiles
from fastload.state import LoaderState
from fastload.stats import stage_stats
from fastload.transforms.plan import compile_plan
from fastload.world import find_world

__all__ = ["DataLoader"]


class DataLoader:
    """Feeds a training loop with batches: ``torch.utils.data.DataLoader``'s parameters, packed data, threads.

    Args:
        dataset: a folder made by ``fastload pack`` (or an open ``PackedDataset``), several of them by
            :func:`fastload.mix`, or any torch Dataset. A torch Dataset runs in torch's own workers; order,
            ranks and state are ours all the same.
        batch_size: samples a batch of this rank.
        shuffle: a new uniform order every epoch. "block", for packed data on storage that is slow at random
            reads: a new order of blocks of ``shuffle_block`` consecutive records, mixed within windows of
            ``shuffle_window`` records (``docs/reading.md``); ``fastload shuffle`` shows how well.
        shuffle_block, shuffle_window: records; None: about 1 MiB and 256 MiB of them.
        sampler: ``fastload.WeightedSampler``, ``fastload.SubsetSampler``, or any iterable of sample ids (a
            torch Sampler), asked once an epoch; divided among ranks unless it is a rank's share already
            (``DistributedSampler``).
        batch_sampler: any iterable of lists of sample ids; excludes batch_size, shuffle, sampler, drop_last.
        num_workers: decoding threads at once, of the pool that all loaders of the process share; None: this
            rank's CPU budget (:func:`fastload.cpu_budget.find_budget`); 0 counts as 1. For a torch Dataset:
            torch's worker processes.
        collate_fn: called with the list of (image, label) of a batch instead of stacking them.
        pin_memory: batches lie in pinned memory, where there is CUDA.
        drop_last: leave out an epoch's last, partial batch.
        timeout: seconds to wait for a batch before RuntimeError; 0: no bound.
        worker_init_fn, multiprocessing_context: for torch Datasets; ignored, with a warning, for packed ones.
        generator: its initial seed is the seed, if ``seed`` is None.
        prefetch_factor: batches in work ahead of the consumer (in all, not for each thread); None: 2 to 8,
            by :func:`fastload.options.default_prefetch` (2 for a batch_sampler).
        persistent_workers: for torch Datasets; threads always persist.
        pin_memory_device, in_order: accepted for compatibility; ignored, with a warning.
        transform: ``fastload.transforms`` (also torchvision's, where they are the same); None decodes to
            uint8. Other callables run afterwards, on decoded (3, H, W) tensors, in Python threads.
        seed: order and augmentation depend on it, on the epoch and on the sample, and on nothing else.
        rank, world_size: default: the process group, torchrun's or SLURM's variables, else one process.
        process_group: rank and world size are those in this group of torch.distributed (where tensor or
            pipeline parallelism leaves data parallelism to a part of the ranks).
        handshake: the ranks of a process group compare dataset, options and version before the first batch,
            and all raise WorldError where they differ. If some have not come after 60 s (or the group's
            timeout, if less): "warn" and go on, "raise" WorldError; "off": compare nothing.
        on_error: a bad sample is an error ("raise"), a black image with label -100, which torch's
            cross_entropy ignores ("skip"), or replaced by another sample of the epoch ("replace").
        error_log: path of a JSONL file that gets a line for each bad sample.
        padding: the last batch of several ranks is filled with marked entries, label -100 ("mark", the
            default without shuffle: every sample counts once) or with samples from the epoch's beginning
            ("repeat", the default with shuffle, torch's rule).
        max_pixels: larger pictures are bad samples.
        device: where batches shall be: None or "cpu", or a CUDA device. Packed data are decoded into pinned
            slots, cross the bus as uint8 on a stream of the loader's own, and are normalised on the device;
            batches of a torch Dataset, or of Python callables, are moved. Without CUDA: a warning, and the
            CPU. ``docs/transfer.md`` has the details.
        device_memory: "fresh": tensors that may be kept. "reuse": always the same device memory, valid until
            the next batch. "poison": as "reuse", and what is no longer valid is overwritten, for tests.
        batch_transform: of ``fastload.transforms.batch``, or a callable (images, labels), or a sequence of
            them: augmentation of whole batches, on the device.
        autotune: move threads (up to this rank's CPU budget) and prefetch (up to 4 batches more) by what is
            measured; the logger "fastload" says why (INFO). Batches stay the same. For packed datasets.
        cache: keep the set, or the part that fits, once in the node's memory, for all processes and later
            jobs (``docs/cache.md``): "auto" where that is of use; "off"; a size, "64GB"; a share of the
            available memory, "50%"; or a folder in memory: all that fits there. Ranks may differ in it.
            What happens is in ``stats()["cache"]``. For packed datasets.
        backend: what decodes packed data: "native", or "dali" (NVIDIA DALI; ``docs/dali.md``). Samples,
            crops, flips, labels, state and error policy are the same, pixels nearly so.
        decode_share: with "dali", the share of samples that the native decoder takes, in [0, 1]; "auto":
            moved while running to whichever decoder is idle.
        gpu_memory_limit: with "dali" on a GPU, bytes that it may use there; pictures beyond it are decoded by
            the native decoder.
        cache_decoded: crops are cut from pictures whose longer side was scaled to this many pixels at most,
            or that are not scaled ("full"), and the node cache keeps those, decoded (``docs/cache.md``).

    Iterating gives ``(images, labels)``: images (batch, 3, height, width) in the transform's dtype, with
    channels_last strides; labels (batch,) int64.

    Raises:
        ValueError, TypeError: options out of range.
        ImportError: backend="dali", and DALI is not installed.
        FormatError, ShardError: the dataset cannot be opened.
        WorldError: rank and world size are half set.
        CacheError: at the first batch: an explicit ``cache`` that cannot be had.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | str | None = None,
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
        shuffle_block: int | None = None,
        shuffle_window: int | None = None,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        on_error: str = "raise",
        error_log: str | os.PathLike[str] | None = None,
        padding: str | None = None,
        max_pixels: int = 89_478_485,
        process_group: Any = None,
        handshake: str = "warn",
        device: str | torch.device | None = None,
        device_memory: str = "fresh",
        batch_transform: Any = None,
        autotune: bool = False,
        cache: Any = "auto",
        backend: str = "native",
        decode_share: float | str = 0.0,
        gpu_memory_limit: int | None = None,
        cache_decoded: int | str | None = None,
    ) -> None:
        self._arguments = {
            name: value for name, value in locals().items() if name not in ("self", "__class__")
        }
        if batch_sampler is not None and (
            batch_size not in (None, 1) or shuffle or sampler is not None or drop_last
        ):
            raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last.")
        if batch_size is None and batch_sampler is None:
            raise ValueError("batch_size=None (no batches) is not supported. Pass batch_size=1.")
        if seed is None:
            seed = generator.initial_seed() if generator is not None else 0
        self._world = find_world(rank, world_size, group=process_group)
        budget = find_budget(self._world.local_rank, self._world.local_size)
        self._threads = budget.plan(num_workers, autotune)
        if prefetch_factor is None:
            prefetch_factor = 2
            if batch_sampler is None and isinstance(batch_size, int) and batch_size > 0:
                prefetch_factor = default_prefetch(self._threads.threads, batch_size)
        given = {field.name: self._arguments[field.name] for field in fields(Options)}
        given |= {
            "batch_size": 1 if batch_size is None else batch_size,
            "shuffle": shuffle if isinstance(shuffle, str) else bool(shuffle),
            "seed": seed,
            "prefetch_factor": prefetch_factor,
            "padding": padding or ("repeat" if shuffle else "mark"),
            "cache": parse_setting(cache),
        }
        self._options = Options(**given)
        self.dataset = PackedDataset(dataset) if isinstance(dataset, (str, os.PathLike)) else dataset
        self._plan = compile_plan(given_transform(self.dataset, transform))
        check_placement(self.dataset, self._plan, self._options)
        self.sampler = self._make_sampler(sampler, batch_sampler)
        self.batch_sampler = BatchSampler(self.sampler)
        parts = self.dataset, self.sampler, self._plan, self._options
        start = partial(make_backend, *parts, self._threads, self._arguments)
        meeting = Handshake(self._world, process_group, handshake, self._described())
        self._epochs = Epochs(self.sampler, start, is_stream(self.dataset), self._options.batch_size, meeting)
        self._callbacks = Callbacks()
        self._warn(dict(self._arguments))

    def _warn(self, given: dict[str, Any]) -> None:
        if is_packed(self.dataset):
            warn_ignored(
                {
                    "worker_init_fn": given["worker_init_fn"] is not None,
                    "multiprocessing_context": given["multiprocessing_context"] is not None,
                    "in_order": not given["in_order"],
                    "pin_memory_device": bool(given["pin_memory_device"]),
                }
            )
        elif given["transform"] is not None or self._options.on_error != "raise" or given["autotune"]:
            raise ValueError(
                "transform, on_error and autotune are for packed datasets; a torch Dataset has its own "
                "transform. Pack the images ('fastload pack') to use these."
            )
        elif self._options.cache.mode == "on":
            warnings.warn(
                f"DataLoader ignores cache={given['cache']!r}: it keeps records of packed datasets, and a "
                "torch Dataset reads what it likes. Pack the images ('fastload pack') to use it.",
                stacklevel=3,
            )

    def _make_sampler(self, sampler: Iterable[int] | None, batch_sampler: Iterable[Any] | None) -> Sampler:
        options, world = self._options, self._world
        marks = is_packed(self.dataset) and options.padding == "mark"  # a torch Dataset has no labels to mark
        partition = Partition(
            options.batch_size, world.rank, world.size, options.drop_last, "mark" if marks else "repeat"
        )
        if options.shuffle == "block":
            if sampler is not None or batch_sampler is not None or not isinstance(self.dataset, PackedFiles):
                raise ValueError(
                    "shuffle='block' is for one packed dataset, without a sampler. Pass shuffle=True."
                )
            n, data_bytes = len(self.dataset), self.dataset.manifest.data_bytes
            shape = default_blocks(n, data_bytes, options.shuffle_block, options.shuffle_window)
            return BlockSampler(BlockOrder(n, options.seed, *shape), partition)
        return make_sampler(
            0 if is_stream(self.dataset) else len(self.dataset),
            partition,
            shuffle=bool(options.shuffle),
            seed=options.seed,
            sampler=sampler,
            batch_sampler=batch_sampler,
            own_order=self.dataset.order if isinstance(self.dataset, MixedFiles) else None,
        )

    def _described(self) -> Callable[[int], dict[str, Any]]:
        length = 0 if is_stream(self.dataset) else len(self.dataset)
        return partial(describe, self.dataset, length, self.sampler, self._plan, self._options, self._world)

    @property
    def batch_size(self) -> int:
        """Samples a batch of this rank."""
        return self._options.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an epoch's last, partial batch is left out."""
        return self._options.drop_last

    @property
    def num_workers(self) -> int:
        """Decoding threads at first (torch's worker processes for a torch Dataset)."""
        return self._threads.threads if is_packed(self.dataset) else self._options.num_workers or 0

    @property
    def errors(self) -> list[SampleReport]:
        """The bad samples met so far (the first 10,000)."""
        backend = self._epochs.backend
        return list(backend.errors) if backend is not None else []

    def __len__(self) -> int:
        """Batches of this rank in an epoch; the same on all ranks."""
        if is_stream(self.dataset):
            return len(self._epochs.started())  # type: ignore[arg-type]
        return self.sampler.num_batches(self.sampler.epoch)

    def __iter__(self) -> EpochIterator:
        """The batches of the next epoch. Nothing starts before the first ``next()``."""
        return EpochIterator(self._epochs, self.__len__)

    def set_epoch(self, epoch: int) -> None:
        """Run ``epoch`` next; not needed, epochs advance by themselves."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """What the consumer has received so far; see :class:`fastload.state.LoaderState`."""
        return self._state(*self._epochs.place).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was saved, on this or any other number of ranks; O(1).

        Raises:
            StateError: not a loader state, or one of another dataset, seed or order.
        """
        loaded = LoaderState.from_dict(state)
        self._state(0, 0).check_fits(loaded)
        self._epochs.resume_at(loaded.epoch, loaded.position)

    def on_preemption(self, callback: Callable[[], Any]) -> None:
        """After SIGTERM call ``callback``, once, when the next batch is asked for; then end by the signal.

        All batches received so far have been trained on then, so that ``state_dict()`` and the model belong
        together. Handlers that were installed before are called when the signal arrives; where there is one,
        the process goes on after the callback. A second SIGTERM ends it at once. No collective may be called:
        other ranks may be a batch behind.

        Raises:
            RuntimeError: not in the main thread.
        """
        self._callbacks.add(callback)

    def stats(self) -> dict[str, Any]:
        """Clocks and counts since the loader was made; see :func:`fastload.stats.stage_stats`."""
        backend = self._epochs.backend
        threads = backend.thread_stats() if backend is not None else []
        transfer = backend.transfer_stats() if backend is not None else {}
        parts = self.dataset.parts if is_packed(self.dataset) else ()
        damaged = sum(part.entries.damaged for part in parts if part.entries is not None)
        ahead = backend.read_ahead_stats() if backend is not None else {}
        cache = backend.cache_stats() if backend is not None else {}
        clocks = stage_stats(self._epochs.clock, threads, damaged, transfer)
        found = {**clocks, "read_ahead": ahead, "cache": cache}
        decoders: dict[str, Any] = getattr(backend, "decoder_stats", dict)()
        return {**found, "decoders": decoders} if decoders else found

    def memory_plan(self) -> dict[str, int]:
        """Bytes that iterating allocates: ``slot_bytes`` each for at most ``slots`` batches,
        ``read_ahead_bytes`` at most for records that are not in memory, and ``total``.

        ``pinned_bytes`` of these are page-locked. On a device, for the loader's whole life: ``device_slots``
        and ``device_bytes``; ``batch_bytes`` is what each batch takes besides, of torch's allocator.
        ``cache_bytes``: of the node cache, once for all processes of the node, and not in ``total``.

        Raises:
            ValueError: for a torch Dataset, whose workers allocate as they like.
            CacheError: an explicit ``cache`` that cannot be had.
        """
        if not is_packed(self.dataset):
            raise ValueError("memory_plan() is for packed datasets.")
        return plan_memory(self.dataset, self.sampler, self._plan, self._options)

    def close(self) -> None:
        """End all threads and let go of the cache now; the loader cannot be used afterwards. Idempotent."""
        self._callbacks.clear()
        self._epochs.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": self._arguments, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["arguments"])  # type: ignore[misc]
        self.load_state_dict(state["state"])

    def _state(self, epoch: int, position: int) -> LoaderState:
        return LoaderState(
            dataset=self.dataset.id if is_packed(self.dataset) else "",
            length=self.sampler.total(0) if is_packed(self.dataset) else 0,
            seed=self._options.seed,
            shuffle=order_name(self.sampler.order, self._options.shuffle),
            epoch=epoch,
            position=position,
        )
