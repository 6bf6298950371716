"""The native back end: batches of a packed dataset."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch

from fastload._native import _C
from fastload.faults import FaultPolicy
from fastload.options import Options
from fastload.pil import decode_with_pil
from fastload.prefetch import BatchKey, Feeder, Pending, SlotPool, SlotShape
from fastload.sampler import Sampler
from fastload.shard.dataset import PackedDataset
from fastload.shard.index import RECORD
from fastload.tail import SampleKey, Tail, failed, render
from fastload.transforms.plan import Plan

__all__ = ["PackedBackend", "memory_plan"]


def output_size(dataset: PackedDataset, plan: Plan) -> tuple[int, int] | None:
    """(height, width) of every sample, or None if they may differ and a Python callable will see to it.

    Raises:
        ValueError: samples of different sizes, and nothing in the transform to make them equal.
    """
    if plan.output_size is not None:
        return plan.output_size
    if plan.tail:
        return None
    first = dataset.index.records().view(RECORD)[0, 0]
    size = int(first["height"]), int(first["width"])
    if plan.geometry_spec().kind != "none" or 0 in size:
        raise ValueError(
            "The transform leaves pictures of different sizes, which cannot be stacked: Resize(int) keeps "
            "the aspect ratio. Add CenterCrop(size), or use RandomResizedCrop(size) or Resize((h, w))."
        )
    return size


def memory_plan(dataset: PackedDataset, plan: Plan, options: Options) -> dict[str, int]:
    """See :meth:`fastload.DataLoader.memory_plan`."""
    size = output_size(dataset, plan)
    if size is None:
        raise ValueError(
            "Samples differ in size until a Python callable has seen them: memory cannot be planned."
        )
    shape = SlotShape(options.batch_size, *size, getattr(torch, plan.dtype))
    slots = options.prefetch_factor + 2  # in work, at the consumer, and one it has not let go of yet
    return {"slots": slots, "slot_bytes": shape.nbytes, "total": slots * shape.nbytes}


class PackedBackend:
    """Threads, slots and error policy of one loader over one packed dataset.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform.
        options: the loader's options.
        threads: decoding threads to start.
    """

    def __init__(
        self, dataset: PackedDataset, sampler: Sampler, plan: Plan, options: Options, threads: int
    ) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._plan = plan
        self._options = options
        self._tail = Tail(plan.tail) if plan.tail else None
        self._policy = FaultPolicy(dataset, options.on_error, options.error_log, sampler, options.seed)
        self._shape = self._slot_shape()
        self._engine = self._make_engine(threads) if self._shape else None
        self._feeder = self._make_feeder() if self._shape else None
        self._python: _PythonStage | None = None
        if self._shape is None or self._tail is not None or options.collate_fn is not None:
            self._python = _PythonStage(self._finish_in_python, min(threads, options.prefetch_factor + 1))

    @property
    def errors(self) -> list[Any]:
        """Reports of the bad samples met so far."""
        return self._policy.reports

    def _slot_shape(self) -> SlotShape | None:
        size = output_size(self._dataset, self._plan)
        if size is None:
            return None
        return SlotShape(self._options.batch_size, *size, getattr(torch, self._plan.dtype))

    def _make_engine(self, threads: int) -> Any:
        assert self._shape is not None
        limit = self._options.max_pixels
        return _C.Engine(
            reader=self._dataset.reader,
            geometry=self._plan.geometry_spec(),
            store=self._plan.store_spec(channels_last=self._shape.channels_last),
            out_height=self._shape.height,
            out_width=self._shape.width,
            seed=self._options.seed,
            threads=threads,
            max_pixels=limit,
            fallback=partial(decode_with_pil, max_pixels=limit),
            entries=self._dataset.entries,
        )

    def _make_feeder(self) -> Feeder:
        assert self._shape is not None
        depth = self._options.prefetch_factor
        pin = self._options.pin_memory and torch.cuda.is_available()
        return Feeder(self._engine, self._sampler, SlotPool(self._shape, keep=depth + 2, pin=pin), depth)

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key``: images and labels, or what ``collate_fn`` made of them.

        Blocks until it is complete; the batches after it are in work when it returns.
        """
        if self._python is not None:
            return self._python.take(key, self._following, self._take, self._options.prefetch_factor)
        assert self._feeder is not None
        pending = self._feeder.take(key)
        self._complete(pending)
        return pending.slot.images, pending.slot.labels

    def _complete(self, pending: Pending) -> None:
        assert self._feeder is not None
        faults = self._feeder.wait(pending, self._options.timeout)
        if faults:
            self._policy.apply(self._feeder, pending, faults)

    def _following(self, key: BatchKey) -> BatchKey | None:
        if key.step + 1 < self._sampler.num_batches(key.epoch, key.start):
            return key._replace(step=key.step + 1)
        return None

    def _take(self, key: BatchKey) -> Pending | BatchKey:
        return self._feeder.take(key) if self._feeder is not None else key

    def _finish_in_python(self, work: Pending | BatchKey) -> Any:
        """A thread of the Python stage: samples one by one through the callables, then collated."""
        if isinstance(work, Pending):
            self._complete(work)
            ids, draws, epoch = work.batch.ids, work.batch.draws, work.key.epoch
            images: list[Any] = list(work.slot.images)
            labels = work.slot.labels
        else:
            batch = self._sampler.batch(*work)
            ids, draws, epoch = np.maximum(batch.ids, 0), batch.draws, work.epoch
            images = [None] * len(ids)
            labels = torch.from_numpy(np.where(batch.ids < 0, _C.IGNORE_LABEL, self._dataset.labels[ids]))
        keys = [
            SampleKey(self._options.seed, epoch, int(sample), 0 if draws is None else int(draws[i]))
            for i, sample in enumerate(ids)
        ]
        samples = [self._one(key, image) for key, image in zip(keys, images, strict=True)]
        return self._collate(samples, labels, keys)

    def _one(self, key: SampleKey, image: Any) -> Any:
        if image is None:
            image = render(self._dataset, self._plan, key, self._options.max_pixels)
        if self._tail is None:
            return image
        try:
            return self._tail(image, key)
        except Exception as error:
            raise failed(key.sample, self._dataset, error) from error

    def _collate(self, samples: list[Any], labels: torch.Tensor, keys: list[SampleKey]) -> Any:
        if self._options.collate_fn is not None:
            return self._options.collate_fn(list(zip(samples, labels.tolist(), strict=True)))
        try:
            return torch.utils.data.default_collate(samples), labels
        except Exception as error:
            raise failed(keys[0].sample, self._dataset, error) from error

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        if self._python is not None:
            self._python.cancel()
        if self._feeder is not None:
            self._feeder.cancel()

    def close(self) -> None:
        """End all threads. Idempotent."""
        if self._python is not None:
            self._python.close()
        if self._engine is not None:
            self._engine.close()

    def thread_stats(self) -> list[dict[str, Any]]:
        """Each decoding thread's clocks."""
        return list(self._engine.stats()) if self._engine is not None else []


class _PythonStage:
    """A few threads that finish batches in Python, in order, ahead of the consumer."""

    def __init__(self, finish: Callable[[Any], Any], threads: int) -> None:
        self._finish = finish
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="fastload-python")
        self._pid = os.getpid()
        self._queue: deque[tuple[BatchKey, Future[Any]]] = deque()

    def take(
        self,
        key: BatchKey,
        following: Callable[[BatchKey], BatchKey | None],
        start: Callable[[BatchKey], Any],
        depth: int,
    ) -> Any:
        if self._queue and self._queue[0][0] != key:
            self.cancel()
        upcoming: BatchKey | None = following(self._queue[-1][0]) if self._queue else key
        while len(self._queue) <= depth and upcoming is not None:
            self._queue.append((upcoming, self._executor.submit(self._finish, start(upcoming))))
            upcoming = following(upcoming)
        return self._queue.popleft()[1].result()

    def cancel(self) -> None:
        while self._queue:
            _, future = self._queue.pop()
            if not future.cancel():
                future.exception()  # wait for it; its outcome is not wanted

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # after fork the threads are the parent's
        self.cancel()
        self._executor.shutdown(wait=True)
