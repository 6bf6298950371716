"""The choice of the back end that delivers a DataLoader's batches; it is imported when it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from fastload._native import _C
from fastload.backends.batch_form import batch_parts, of_core, python_workers, runs_python
from fastload.backends.native import NativeBackend, host_memory
from fastload.backends.options import Options, Order
from fastload.backends.planned_batches import batch_form, largest_batch, memory_plan
from fastload.backends.stats import Counts
from fastload.cache.opening import planned_bytes
from fastload.cache.tiers import tier_of
from fastload.dataset import views
from fastload.dataset.mixture import Packed
from fastload.dataset.views import SourceKind
from fastload.errors import StateError
from fastload.machine.cpu import ThreadPlan
from fastload.prefetch.engine_calls import plan_read_ahead
from fastload.prefetch.feeder import BatchKey
from fastload.sampler import Sampler
from fastload.transfer.cuda import find_gpu, goes_to_gpu
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.faults import SampleReport
    from fastload.backends.protocol import Backend
    from fastload.transfer.augment import Augmenter
    from fastload.transfer.convert import Converter
    from fastload.transfer.streams import Gpu


def make_backend(
    dataset: Any,
    kind: SourceKind,
    sampler: Sampler,
    plan: Plan,
    options: Options,
    threads: ThreadPlan,
    order: Order,
) -> Backend:
    """Make the back end for ``dataset``.

    Args:
        dataset: a PackedDataset, several of them mixed, or any torch Dataset.
        kind: which of these it is.
        sampler: which samples each batch has.
        plan: the compiled transform (packed datasets).
        options: the loader's options.
        threads: decoding threads (packed datasets).
        order: the loader's, for torch's own loader over a dataset that decides its order.
    """
    if plan.scheduled:

        def make(of_epoch: Plan) -> Backend:
            return make_backend(dataset, kind, sampler, of_epoch, options, threads, order)

        return ScheduledBackend(make, plan)
    gpu = find_gpu(options.device.name)
    sampler = views.read_by(dataset, sampler)
    parts = batch_parts(dataset, plan, options, gpu is not None)
    plan = of_core(dataset, plan, options, gpu is not None)
    of = dataset if kind is SourceKind.PACKED else None
    augmenter = _augmenter(sampler, parts, plan, options, gpu, of)
    if kind is SourceKind.PACKED:
        backend = _packed(dataset, sampler, plan, options, threads, gpu, augmenter)
        return _with_offsets(backend, sampler, gpu) if order.in_packs else backend
    inner = _of_torch(dataset, kind, sampler, options, order, pin=gpu is not None)
    return _moved(inner, gpu, augmenter, sampler)


def _with_offsets(inner: Backend, sampler: Sampler, gpu: Gpu | None) -> Backend:
    """Wrap ``inner`` in what says where packs begin."""
    from fastload.backends.protocol import PackBackend

    if gpu is None:
        return PackBackend(inner, sampler)
    from fastload.transfer.nested import Mover

    return PackBackend(inner, sampler, Mover(gpu))


def _of_torch(
    dataset: Any,
    kind: SourceKind,
    sampler: Sampler,
    options: Options,
    order: Order,
    pin: bool,
) -> Backend:
    from fastload.backends.torch_workers import StreamBackend, TorchBackend, torch_arguments

    passed = torch_arguments(options)
    if pin:
        passed["pin_memory"] = True
    every = options.snapshot_every_n_steps
    if kind is SourceKind.STREAM:
        size = None if options.unbatched else options.batch_size
        passed |= {"batch_size": size, "drop_last": order.drop_last}
        return StreamBackend(dataset, passed, order.shuffle, every)
    return TorchBackend(dataset, sampler, passed, options.unbatched, every)


def _moved(
    inner: Backend,
    gpu: Gpu | None,
    augmenter: Augmenter | None,
    sampler: Sampler,
    converter: Converter | None = None,
    origins: bool = False,
) -> Backend:
    """Wrap ``inner`` in what is done to its batches."""
    if gpu is None and augmenter is None:
        return inner
    from fastload.backends.device import MovedBackend

    return MovedBackend(inner, gpu, augmenter, sampler, converter, origins)


def _augmenter(
    sampler: Sampler, parts: tuple[Any, ...], plan: Plan, options: Options, gpu: Gpu | None, of: Packed | None
) -> Augmenter | None:
    """Make the augmenter; ``of``: the dataset, if it is packed."""
    if not parts:
        return None
    from fastload.backends.fields import named_of
    from fastload.transfer.augment import Augmenter, host_seeded

    seeded = gpu.seeded if gpu is not None else host_seeded
    return Augmenter(parts, options.seed, sampler, seeded, named_of(of, plan, options))


def makes_empty_batches(options: Options) -> bool:
    """Whether a batch may have no samples: only the native decoder's on the host, unchanged."""
    plain = options.dali is None and options.batch_transform is None and not options.unbatched
    return plain and not goes_to_gpu(options.device.name)


def plan_memory(
    dataset: Packed, sampler: Sampler, plan: Plan, options: Options, threads: ThreadPlan
) -> dict[str, int]:
    """Plan the memory; see :meth:`fastload.DataLoader.memory_plan`."""
    if not sampler.has_one_size:
        options = replace(options, batch_size=max(options.batch_size, sampler.most(0)))
    workers, streams = python_workers(plan, options, threads), batch_form(dataset, plan, options).streams
    memory = _batch_memory(dataset, plan, options, threads.most, workers)
    ahead = plan_read_ahead(dataset, sampler).buffer_bytes
    if options.dali is not None:
        ahead *= 2  # for each of the two decoders
    tiers, waiting = [tier_of(options.cache.decoded)], 0
    if options.cache.format != "jpeg":
        from fastload.cache.tiers import COEFFICIENTS

        tiers = [COEFFICIENTS] if options.cache.format == "coefficients" else [COEFFICIENTS, *tiers]
        waiting = _C.WAITING_BYTES
    cache = max(planned_bytes(dataset.parts, options.cache, tier, streams) for tier in tiers)
    source = 0
    if any(view.source for view in plan.every) or plan.scheduled:
        from fastload.backends.fields import whole_picture_bytes

        source = whole_picture_bytes(dataset, plan, options, threads.most)
    together = 0
    if plan.puts_together:
        from fastload.backends.fields import mosaic_bytes

        together = mosaic_bytes(len(streams), plan, sampler, threads.most)
    total = memory["total"] + ahead + source + together + waiting
    memory = {
        **memory,
        "read_ahead_bytes": ahead,
        "source_bytes": source,
        **({"mosaic_bytes": together} if together else {}),
        **({"waiting_bytes": waiting} if waiting else {}),
        "total": total,
        "cache_bytes": cache,
    }
    if options.cache.disk is not None:
        from fastload.backends.upcoming import disk_plan

        memory |= disk_plan(dataset.parts, sampler, options, streams, memory["total"])
    return memory


def _batch_memory(
    dataset: Packed, plan: Plan, options: Options, threads: int, workers: int
) -> dict[str, int]:
    on_device = goes_to_gpu(options.device.name)
    if on_device and options.dali is not None:
        from fastload.backends.dali.graph import BatchShape, device_plan

        layout = batch_form(dataset, plan, options).delivery.layout
        return device_plan(BatchShape.of(layout, options.batch_size), options)
    if on_device and _is_decoded_there(plan, options):
        from fastload.backends.device import device_memory_plan

        return device_memory_plan(dataset, plan, options)
    return memory_plan(largest_batch(dataset, plan, options), options, threads, workers)


def _is_decoded_there(plan: Plan, options: Options) -> bool:
    """Whether batches for a device are decoded into memory that is copied as it is: nothing in Python needs
    them on the host."""
    return not runs_python(plan, options) and not options.unbatched


def _packed(
    dataset: Packed,
    sampler: Sampler,
    plan: Plan,
    options: Options,
    threads: ThreadPlan,
    gpu: Gpu | None,
    augmenter: Augmenter | None,
) -> Backend:
    if gpu is not None and options.dali is not None:
        from fastload.backends.dali.backend import DaliBackend

        return DaliBackend(dataset, sampler, plan, options, threads, gpu, augmenter)
    if gpu is not None and _is_decoded_there(plan, options):
        from fastload.backends.device import DeviceBackend

        return DeviceBackend(dataset, sampler, plan, options, threads, gpu, augmenter)
    if augmenter is None or not augmenter.jitters:
        inner = _on_host(dataset, sampler, plan, options, threads)
        return _moved(inner, gpu, augmenter, sampler, origins=options.origins)
    from fastload.transfer.convert import Converter, crosses_as

    inner = _on_host(dataset, sampler, crosses_as(plan), options, threads)
    converter = Converter(plan, torch.device("cpu"), from_unit=True)
    return _moved(inner, None, augmenter, sampler, converter)


def _on_host(dataset: Packed, sampler: Sampler, plan: Plan, options: Options, threads: ThreadPlan) -> Backend:
    if options.dali is not None:
        from fastload.backends.dali.backend import DaliBackend

        return DaliBackend(dataset, sampler, plan, options, threads)
    if runs_python(plan, options):
        from fastload.backends.callables import PythonBackend

        return PythonBackend(dataset, sampler, plan, options, threads)
    memory = host_memory(batch_form(dataset, plan, options), options)
    return NativeBackend(dataset, sampler, plan, options, threads, memory)


# ---- Transforms that change with the epoch ----------------------------------------------------------


class ScheduledBackend:
    """Batches of a plan that changes at certain epochs.

    There is one back end at a time, so memory is never more than the largest one's. A change costs what
    an epoch's first batch costs after a restart.

    Args:
        make: makes the back end of one of the plans.
        plan: all of them.
    """

    def __init__(self, make: Callable[[Plan], Backend], plan: Plan) -> None:
        self._make = make
        self._plan = plan
        self._current: tuple[Plan, Backend] | None = None
        self._past = Counts()
        self._errors: list[SampleReport] = []
        self._closed = False

    @property
    def errors(self) -> list[SampleReport]:
        """Reports of the bad samples met so far."""
        now = list(self._current[1].errors) if self._current is not None else []
        return self._errors + now

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key`` by its epoch's plan."""
        return self._of(key.epoch).batch(key)

    def _of(self, epoch: int) -> Backend:
        if self._closed:
            raise StateError("The loader is closed. Create a new DataLoader.")
        plan = self._plan.at(epoch)
        if self._current is None or self._current[0] is not plan:
            self._end()
            self._current = plan, self._make(plan)
        return self._current[1]

    def _end(self) -> None:
        if self._current is None:
            return
        self._errors, self._past = self.errors, self.counts()
        (_, backend), self._current = self._current, None
        backend.close()

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        if self._current is not None:
            self._current[1].cancel()

    def close(self) -> None:
        """End all threads. Idempotent."""
        self._closed = True
        if self._current is not None:
            self._current[1].close()

    def counts(self) -> Counts:
        """Return what was counted so far."""
        if self._current is None:
            return self._past
        return Counts.sum([self._past, self._current[1].counts()])
