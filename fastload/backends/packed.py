"""The native back end: batches of a packed dataset."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from fastload._native import _C
from fastload.backends.callables import InlineStage, Parts
from fastload.backends.faults import FaultPolicy
from fastload.backends.options import Options
from fastload.backends.render import Renderer
from fastload.backends.tail import Tail
from fastload.backends.worker_stage import WorkerStage, slots_for, workers_for
from fastload.cache.decoded import tier_of
from fastload.cache.opening import CacheUse, PartUse, open_cache
from fastload.cache.tables import start_copies
from fastload.cache.tier import bounded_sizes, decoded_side
from fastload.dataset.mixture import Packed
from fastload.dataset.pil import decode_with_pil
from fastload.machine.cpu_budget import ThreadPlan
from fastload.prefetch.autotune import Autotuner, Bounds, Setting
from fastload.prefetch.fault import Fault
from fastload.prefetch.feeder import BatchKey, Feeder, Pending
from fastload.prefetch.filling import Filling
from fastload.prefetch.read_ahead import plan_read_ahead
from fastload.prefetch.shared_slots import SharedSlots
from fastload.prefetch.slots import SlotPool, Slots, SlotShape
from fastload.sample.delivery import Delivery
from fastload.sample.layout import SampleLayout
from fastload.sampler import Sampler
from fastload.transforms.plan import Plan

__all__ = ["PackedBackend", "memory_plan", "planned_shape", "python_workers", "runs_python"]


def output_size(dataset: Packed, plan: Plan, options: Options) -> tuple[int, int] | None:
    """(height, width) of every sample, or None if they may differ and Python callables will see to it.

    Raises:
        ValueError: samples of different sizes, and nothing in the transform to make them equal.
    """
    if plan.output_size is not None:
        return plan.output_size
    if plan.tail or options.unbatched or (options.collate_fn and not _same_sizes(dataset, plan)):
        return None
    firsts = [part.record(0) for part in dataset.parts]
    bounds = [bounded_sizes(first["width"], first["height"], options.cache_decoded) for first in firsts]
    sizes = {(int(height), int(width)) for width, height in bounds}
    size = sizes.pop()
    if plan.geometry_spec().kind != "none" or 0 in size or sizes:
        raise ValueError(
            "The transform leaves pictures of different sizes, which cannot be stacked: Resize(int) keeps "
            "the aspect ratio. Add CenterCrop(size), or use RandomResizedCrop(size) or Resize((h, w)), "
            "or a collate_fn that makes a list of them."
        )
    return size


def _same_sizes(dataset: Packed, plan: Plan) -> bool:
    """Whether all pictures have one size, which the transform leaves as it is."""
    if plan.kind != "none":
        return False
    for name in ("width", "height"):
        sizes = [part.records[name] for part in dataset.parts]
        found = {int(extreme) for size in sizes for extreme in (size.min(), size.max())}
        if len(found) != 1 or 0 in found:
            return False
    return True


def runs_python(plan: Plan, options: Options) -> bool:
    """Whether a part of each batch is made by Python callables."""
    return bool(plan.tail) or options.collate_fn is not None


def planned_shape(dataset: Packed, plan: Plan, options: Options) -> SlotShape:
    """The shape of the batches.

    Raises:
        ValueError: it is not known before samples are decoded.
    """
    size = output_size(dataset, plan, options)
    if size is None:
        raise ValueError(
            "Samples differ in size until a Python callable has seen them: memory cannot be planned."
        )
    return SlotShape(options.batch_size, *size, getattr(torch, plan.dtype))


def memory_plan(shape: SlotShape, options: Options, workers: int = 0) -> dict[str, int]:
    """See :meth:`fastload.DataLoader.memory_plan`; batches on the host, for worker processes if any."""
    slots = options.most_prefetch + 2  # in work, at the consumer, and one it has not let go of yet
    if workers:
        slots = slots_for(workers, options.prefetch_factor)
    pinned = 0
    if options.pin_memory and not workers and torch.cuda.is_available():
        pinned = slots * (1 << (shape.nbytes - 1).bit_length())  # torch's allocator rounds to powers of two
    return {
        "slots": slots,
        "slot_bytes": shape.nbytes,
        "total": max(slots * shape.nbytes, pinned),
        "pinned_bytes": pinned,
        "device_bytes": 0,
    }


def python_workers(plan: Plan, options: Options, threads: ThreadPlan) -> int:
    """Processes that run Python callables; 0: there are none, or the consumer's thread runs them."""
    return workers_for(options, threads.threads) if runs_python(plan, options) else 0


class PackedBackend:
    """Threads, slots and error policy of one loader over one packed dataset.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform.
        options: the loader's options.
        threads: decoding threads.
        slots: to fill; None: memory that the consumer may keep.
        parameters: numbers of augmentation on a device, for each sample.
    """

    def __init__(
        self,
        dataset: Packed,
        sampler: Sampler,
        plan: Plan,
        options: Options,
        threads: ThreadPlan,
        slots: Slots | None = None,
        parameters: int = 0,
    ) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._plan = plan
        self._options = options
        self._policy = FaultPolicy(dataset, options.on_error, options.error_log, sampler, options.seed)
        self._shape = self._slot_shape()
        self._delivery = Delivery(self._shape.layout(parameters), True) if self._shape else None
        self._cache = self._open_cache()
        #: The dataset as this loader alone reads it, through its caches.
        self.cached = self._read_through()
        self._ahead = plan_read_ahead(self.cached, sampler)
        self._engine = self._make_engine(threads) if self._shape else None
        in_python = runs_python(plan, options)
        self._workers = python_workers(plan, options, threads)
        self._shared: SharedSlots | None = None
        self._feeder = self._make_feeder(slots) if self._engine is not None else None
        self._python = self._make_stage() if in_python else None
        self._tuner = self._make_tuner(threads) if options.autotune and self._engine is not None else None

    @property
    def errors(self) -> list[Any]:
        """Reports of the bad samples met so far."""
        return self._policy.reports

    def _open_cache(self) -> CacheUse:
        parts, options = self._dataset.parts, self._options
        if options.cache_decoded is None:
            return open_cache(parts, options.cache)
        tier = tier_of(options.cache_decoded)
        if self._shape is None:
            reason = "no cache: samples of different sizes are decoded one by one, for the Python callables"
            return CacheUse([PartUse(None, reason) for _ in parts], tier.name)
        return open_cache(parts, options.cache, tier)

    def _read_through(self) -> Packed:
        if self._options.cache_decoded is not None:
            return self._dataset
        cached = self._dataset.with_caches(self._cache.files)
        for part, file in zip(cached.parts, self._cache.files, strict=True):
            if file is not None:
                start_copies(file, part.folder)
        return cached

    def _slot_shape(self) -> SlotShape | None:
        size = output_size(self._dataset, self._plan, self._options)
        if size is None:
            return None
        return SlotShape(self._options.batch_size, *size, getattr(torch, self._plan.dtype))

    def _make_engine(self, threads: ThreadPlan) -> Any:
        assert self._shape is not None
        limit = self._options.max_pixels
        return _C.Engine(
            sources=self.cached.sources,
            geometry=self._plan.geometry_spec(),
            store=self._plan.store_spec(),
            out_height=self._shape.height,
            out_width=self._shape.width,
            seed=self._options.seed,
            threads=threads.threads,
            most_threads=threads.most,
            cpus=list(threads.cpus),
            max_pixels=limit,
            fallback=partial(decode_with_pil, max_pixels=limit),
            read_ahead=self._ahead.buffer_bytes,
            keep=self._ahead.keep,
            decoded_side=decoded_side(self._options.cache_decoded),
            operations=self._plan.pixel_spec(),
            pixels=self._cache.files if self._options.cache_decoded is not None else [],
        )

    def _make_feeder(self, slots: Slots | None) -> Feeder:
        assert self._delivery is not None
        layout, depth = self._delivery.layout, self._options.prefetch_factor
        if self._workers:
            depth = 1  # the workers have the others
        filling = Filling(self._engine, layout, self._delivery.is_pair)
        return Feeder(filling, self._sampler, slots or self._own_slots(layout), depth, self._ahead.samples)

    def _own_slots(self, layout: SampleLayout) -> Slots:
        if self._workers:
            self._shared = SharedSlots(layout, slots_for(self._workers, self._options.prefetch_factor))
            return self._shared
        pin = self._options.pin_memory and torch.cuda.is_available()
        return SlotPool(keep=self._options.most_prefetch + 2, pin=pin)

    def _make_stage(self) -> InlineStage | WorkerStage:
        plan, options = self._plan, self._options
        tail = Tail(plan.tail, plan.picture, options.collate_fn, options.seed, self._delivery)
        renderer = None
        if self._shape is None:
            limits = options.max_pixels, options.on_error, options.cache_decoded
            renderer = Renderer(self.cached, plan, options.seed, *limits)
        parts = Parts(
            self._dataset,
            self._sampler,
            options,
            self._policy,
            tail,
            renderer,
            self._feeder,
            self._complete,
        )
        return WorkerStage(parts, self._workers, self._shared) if self._workers else InlineStage(parts)

    def _make_tuner(self, threads: ThreadPlan) -> Autotuner:
        setting = Setting(threads.threads, self._options.prefetch_factor)
        bounds = Bounds(threads.most, self._options.prefetch_factor, self._options.most_prefetch)
        return Autotuner(setting, bounds, self._measure, self._apply)

    def _measure(self) -> tuple[float, float]:
        waiting = self._python or self._feeder
        assert waiting is not None
        return waiting.waited, float(sum(thread["seconds"]["idle"] for thread in self.thread_stats()))

    def _apply(self, setting: Setting) -> None:
        assert self._feeder is not None
        assert self._engine is not None
        self._engine.set_threads(setting.threads)
        if not self._workers:
            self._feeder.depth = setting.depth

    @property
    def feeder(self) -> Feeder:
        """The queue of host batches, for a transfer that takes them before the consumer does."""
        assert self._feeder is not None
        return self._feeder

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key``: images and labels, or what ``collate_fn`` made of them.

        Blocks until it is complete; the batches after it are in work when it returns.
        """
        with self.tuning(key):
            return self._take_batch(key)

    def tuning(self, key: BatchKey) -> AbstractContextManager[None]:
        """Around what delivers the batch ``key`` to the consumer: measures for autotune, if that is on."""
        if self._tuner is None:
            return nullcontext()
        return self._tuner.waiting(self._options.batch_size, first=key.step == 0)

    def _take_batch(self, key: BatchKey) -> Any:
        if self._python is not None:
            return self._python.take(key)
        assert self._feeder is not None
        assert self._delivery is not None
        pending = self._feeder.take(key)
        self._complete(pending)
        return self._delivery.batch(pending.slot.fields, pending.slot.layout.nbytes)

    def _complete(self, pending: Pending) -> None:
        self.resolve(pending, self.wait(pending))

    def wait(self, pending: Pending) -> list[Fault]:
        """Block until it is complete; its faults."""
        return self.feeder.wait(pending, self._options.timeout)

    def resolve(self, pending: Pending, faults: list[Fault]) -> None:
        """Apply the error policy to the faults of a complete batch."""
        if faults:
            self._policy.apply(self.feeder, pending, faults)

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        if self._python is not None:
            self._python.cancel()
        if self._feeder is not None:
            self._feeder.cancel()

    def close(self) -> None:
        """End all threads, and let go of the caches. Idempotent."""
        if self._engine is not None:
            self._engine.close()  # first: the Python stage's threads then have nothing to wait for
        if self._python is not None:
            self._python.close()
        self._cache.close()
        self.cached = self._dataset

    def thread_stats(self) -> list[dict[str, Any]]:
        """Each decoding thread's clocks."""
        return list(self._engine.stats()) if self._engine is not None else []

    def read_ahead_stats(self) -> dict[str, int]:
        """What was read ahead of decoding; empty where no engine decodes."""
        return dict(self._engine.read_ahead()) if self._engine is not None else {}

    def cache_stats(self) -> dict[str, Any]:
        """The node cache's counts; see :meth:`fastload.cache.opening.CacheUse.stats`."""
        return self._cache.stats()
