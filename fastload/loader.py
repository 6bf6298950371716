"""DataLoader: joins sampler, back end, state and clocks. It computes nothing itself."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.autograd.profiler import record_function

from fastload.errors import StateError
from fastload.faults import SampleReport
from fastload.options import Options, warn_ignored
from fastload.packed import PackedBackend, memory_plan
from fastload.prefetch import BatchKey
from fastload.sampler import BatchSampler, Partition, Sampler, make_sampler
from fastload.shard.dataset import PackedDataset
from fastload.state import LoaderState
from fastload.stats import ConsumerClock, batch_length, stage_stats
from fastload.torch_workers import StreamBackend, TorchBackend, torch_arguments
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
        self._world = find_world(rank, world_size)
        self._clock = ConsumerClock()
        self._cursor: BatchKey | None = None  # the next batch of an iteration that has begun
        self._resume: tuple[int, int] | None = None  # (epoch, position) of a loaded state
        self._active: weakref.ref[_Iterator] | None = None
        self._backend: Any = None
        self._closed = False
        self._interrupted = False  # by Ctrl-C while an iterator was being dropped
        self.dataset = PackedDataset(dataset) if isinstance(dataset, (str, os.PathLike)) else dataset
        self._plan = compile_plan(transform)
        self.sampler = self._make_sampler(sampler, batch_sampler)
        self.batch_sampler = BatchSampler(self.sampler)
        self._warn(dict(self._arguments))

    @property
    def _is_packed(self) -> bool:
        return isinstance(self.dataset, PackedDataset)

    @property
    def _is_stream(self) -> bool:
        return isinstance(self.dataset, torch.utils.data.IterableDataset)

    def _warn(self, given: dict[str, Any]) -> None:
        if self._is_packed:
            warn_ignored(
                {
                    "worker_init_fn": given["worker_init_fn"] is not None,
                    "multiprocessing_context": given["multiprocessing_context"] is not None,
                    "in_order": not given["in_order"],
                    "pin_memory_device": bool(given["pin_memory_device"]),
                }
            )
        elif given["transform"] is not None or self._options.on_error != "raise":
            raise ValueError(
                "transform and on_error are for packed datasets; a torch Dataset has its own transform. Pack "
                "the images ('fastload pack') to use these."
            )

    def _make_sampler(self, sampler: Iterable[int] | None, batch_sampler: Iterable[Any] | None) -> Sampler:
        options, world = self._options, self._world
        marks = self._is_packed and options.padding == "mark"  # a torch Dataset has no labels to mark
        partition = Partition(
            options.batch_size, world.rank, world.size, options.drop_last, "mark" if marks else "repeat"
        )
        return make_sampler(
            0 if self._is_stream else len(self.dataset),
            partition,
            shuffle=options.shuffle,
            seed=options.seed,
            sampler=sampler,
            batch_sampler=batch_sampler,
        )

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
        """Decoding threads (torch's worker processes for a torch Dataset)."""
        wanted = self._options.num_workers
        if not self._is_packed:
            return wanted or 0
        return max(1, wanted) if wanted is not None else available_cores(self._world.local_size)

    @property
    def errors(self) -> list[SampleReport]:
        """The bad samples met so far (the first 10,000)."""
        return list(self._backend.errors) if self._backend is not None else []

    def __len__(self) -> int:
        """Batches of this rank in an epoch; the same on all ranks."""
        if self._is_stream:
            return len(self._started())
        return self.sampler.num_batches(self.sampler.epoch)

    def __iter__(self) -> _Iterator:
        """The batches of the next epoch. Nothing starts before the first ``next()``."""
        return _Iterator(self)

    def set_epoch(self, epoch: int) -> None:
        """Run ``epoch`` next; not needed, epochs advance by themselves."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """What the consumer has received so far; see :class:`fastload.state.LoaderState`."""
        if self._cursor is not None:
            epoch, start, step = self._cursor
            position = start + step if self._is_stream else self.sampler.consumed(epoch, start, step)
        else:
            epoch, position = self._upcoming()
        return self._state(epoch, position).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was saved, on this or any other number of ranks; O(1).

        Raises:
            StateError: not a loader state, or one of another dataset, seed or order.
        """
        loaded = LoaderState.from_dict(state)
        self._state(0, 0).check_fits(loaded)
        self._resume = (loaded.epoch, loaded.position)
        self._cursor = None
        self.sampler.set_epoch(loaded.epoch)

    def stats(self) -> dict[str, Any]:
        """Clocks and counts since the loader was made; see :func:`fastload.stats.stage_stats`."""
        return stage_stats(self._clock, self._backend.thread_stats() if self._backend is not None else [])

    def memory_plan(self) -> dict[str, int]:
        """Bytes that iterating allocates: ``slot_bytes`` each for at most ``slots`` batches, and ``total``.

        Raises:
            ValueError: for a torch Dataset, whose workers allocate as they like.
        """
        if not self._is_packed:
            raise ValueError("memory_plan() is for packed datasets.")
        return memory_plan(self.dataset, self._plan, self._options)

    def close(self) -> None:
        """End all threads now; the loader cannot be used afterwards. Idempotent."""
        self._closed = True
        if self._backend is not None:
            self._backend.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": self._arguments, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["arguments"])  # type: ignore[misc]
        self.load_state_dict(state["state"])

    def _upcoming(self) -> tuple[int, int]:
        """Epoch and position of the next iteration."""
        epoch = self.sampler.epoch
        return epoch, self._resume[1] if self._resume is not None and self._resume[0] == epoch else 0

    def _state(self, epoch: int, position: int) -> LoaderState:
        return LoaderState(
            dataset=self.dataset.id if self._is_packed else "",
            length=self.sampler.total(0) if self._is_packed else 0,
            seed=self._options.seed,
            shuffle=self._options.shuffle,
            epoch=epoch,
            position=position,
        )

    def _started(self) -> Any:
        if self._closed:
            raise StateError("The loader is closed. Create a new DataLoader.")
        if self._backend is None:
            self._backend = self._make_backend()
            weakref.finalize(self, self._backend.close)
        return self._backend

    def _make_backend(self) -> Any:
        if self._is_packed:
            return PackedBackend(self.dataset, self.sampler, self._plan, self._options, self.num_workers)
        arguments = torch_arguments(self._arguments)
        if self._is_stream:
            return StreamBackend(
                self.dataset, {**arguments, "batch_size": self.batch_size, "drop_last": self.drop_last}
            )
        return TorchBackend(self.dataset, self.sampler, arguments)

    def _begin(self, iterator: _Iterator) -> BatchKey:
        """A new epoch for ``iterator``; one that is still running is cancelled."""
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt
        if self._active is not None and self._active() is not None:
            self._started().cancel()
        epoch, start = self._upcoming()
        self._active = weakref.ref(iterator)
        self._resume = None
        self.sampler.epoch = epoch + 1
        return BatchKey(epoch, start, 0)

    def _next(self, iterator: _Iterator) -> Any:
        if self._active is None or self._active() is not iterator:
            raise StateError("Another iteration of this loader has begun; this one is over.")
        assert self._cursor is not None
        epoch, start, step = self._cursor
        if not self._is_stream and step >= self.sampler.num_batches(epoch, start):
            raise StopIteration
        with record_function(_LABEL), self._clock.waiting():
            batch = self._started().batch(self._cursor)
        self._cursor = BatchKey(epoch, start, step + 1)
        self._clock.delivered(batch_length(batch, self.batch_size))
        return batch

    def _end(self, iterator: _Iterator, exhausted: bool) -> None:
        if self._active is None or self._active() is not iterator:
            return
        self._active = None
        if exhausted:
            self._cursor = None
        elif self._backend is not None and not self._closed:
            self._backend.cancel()


class _Iterator:
    """One pass over an epoch; its batches in work are dropped when it is."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._begun = False
        self._over = False

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        if not self._begun:
            self._loader._cursor = self._loader._begin(self)
            self._begun = True
        try:
            return self._loader._next(self)
        except StopIteration:
            self._finish(exhausted=True)
            raise
        except BaseException:
            self._finish(exhausted=False)
            raise

    def __len__(self) -> int:
        return len(self._loader)

    def _finish(self, exhausted: bool) -> None:
        self._over = True
        self._loader._end(self, exhausted)

    def __del__(self) -> None:
        if not self._begun or self._over:
            return
        try:
            self._finish(exhausted=False)
        except StateError:
            pass  # after fork the threads, and their batches, are the parent's
        except KeyboardInterrupt:
            self._loader._interrupted = True  # Python would lose it here; the next iteration raises it
