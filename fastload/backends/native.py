"""The native back end: the core alone makes a packed dataset's batches, read through the node's caches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fastload._native import _C
from fastload.backends.batch_form import Form
from fastload.backends.faults import FaultPolicy, SampleReport
from fastload.backends.options import Options, least_prefetch
from fastload.backends.stats import Counts
from fastload.cache.opening import CacheUse, First, Streams, files_there, open_cache, start_copies
from fastload.cache.tiers import decoded_side, tier_of
from fastload.dataset.decoding import decode_with_pil
from fastload.dataset.mixture import Packed
from fastload.machine.cpu import ThreadPlan
from fastload.prefetch.engine_calls import Filling, ReadAheadPlan, plan_read_ahead
from fastload.prefetch.feeder import BatchKey, Fault, Feeder, Pending
from fastload.prefetch.slots import SlotPool, Slots
from fastload.sampler import BatchIds, Sampler, StickyOrder
from fastload.sampler.order import IdArray
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.upcoming import Upcoming
    from fastload.cache.disk import DiskUse
    from fastload.cache.record_format import Choice
    from fastload.prefetch.autotune import Autotuner


# ---- The engine -------------------------------------------------------------------------------------


def make_engine(
    dataset: Packed,
    plan: Plan,
    options: Options,
    threads: ThreadPlan,
    ahead: ReadAheadPlan,
    pixels: list[Any],
    form: Form,
    kept: int = 0,
) -> Any:
    """Make the ``_C.Engine``.

    Args:
        dataset: what to read, through its caches.
        plan, options, threads, ahead: the loader's.
        pixels: cache files of decoded pictures, for each source; none: [].
        form: what batches hold.
        kept: bytes of pictures that are kept for other samples' mosaics.
    """
    parts, views, fields = form.parts_of(dataset)
    return _C.Engine(
        sources=dataset.sources,
        parts=parts,
        views=views,
        fields=fields,
        seed=options.seed,
        threads=threads.threads,
        most_threads=threads.most,
        cpus=list(threads.cpus),
        max_pixels=options.errors.max_pixels,
        fallback=partial(decode_with_pil, max_pixels=options.errors.max_pixels),
        read_ahead=ahead.buffer_bytes,
        keep=ahead.keep,
        decoded_side=decoded_side(options.cache.decoded),
        pixels=pixels,
        mosaic=plan.mosaic.as_tuple() if plan.mosaic is not None else None,
        kept=kept,
    )


# ---- Reading through the node's caches --------------------------------------------------------------

_log = logging.getLogger("fastload")


class Reading:
    """The open caches of a dataset, and the dataset read through them.

    Args:
        dataset: what to read.
        options: the loader's, which choose the caches.
        streams: the records that are read.
        why_records: why records are kept as they are, whatever pays off; "": nothing says so.
        first: which samples a cache in memory has room for before the others; None: all are alike.

    Raises:
        CacheError: an explicit ``cache`` cannot be provided.
    """

    def __init__(
        self,
        dataset: Packed,
        options: Options,
        streams: Streams,
        why_records: str = "",
        first: First | None = None,
    ) -> None:
        self._own, self._first = dataset, first
        self._why_records = why_records
        #: The dataset, read through caches of records.
        self.dataset = dataset
        #: Files of decoded pictures or of coefficients, one for each part of the dataset; empty if records
        #: are cached as they are.
        self.pixels: list[_C.CacheFile | None] = []
        #: The tiers below memory; None: there are none.
        self.disk: DiskUse | None = None
        if options.cache.disk is not None:
            from fastload.cache.disk import open_disk

            self.disk = open_disk(dataset.parts, options.cache.disk, streams)
        self._choice: Choice | None = None
        self._use: CacheUse
        if options.cache.decoded is None:
            if options.cache.format != "jpeg" and self._open_coefficients(options, streams):
                # If records are in memory as they are, coefficients are made from these, without the set.
                self.dataset = self._through_records(streams, files_there(dataset.parts, options.cache))
                self.pixels = self._use.of(None)
                return
            self._use = open_cache(dataset.parts, options.cache, streams=streams, first=first)
            self.dataset = self._through_records(streams, self._use.of(None))
            return
        self._use = open_cache(dataset.parts, options.cache, tier_of(options.cache.decoded), streams, first)
        self.dataset = self._through_records(streams, [])
        self.pixels = self._use.of(None)

    @property
    def keeps_coefficients(self) -> bool:
        """Whether ``pixels`` are files of coefficients."""
        return self._choice is not None and self._choice.format == "coefficients"

    def _open_coefficients(self, options: Options, streams: Streams) -> bool:
        """Whether the cache keeps coefficients; opens it if so. If it gets no file, it keeps JPEGs, of which
        there may be a file."""
        from fastload.cache.record_format import Choice, choose
        from fastload.cache.tiers import COEFFICIENTS

        parts, why_not = self._own.parts, self._why_records
        if options.dali is not None:
            why_not = "DALI decodes JPEGs"
        elif None not in streams:
            why_not = "the loader reads no pictures of the index"
        self._choice = choose(options.cache.format, parts, options.cache, why_not)
        kept = self._choice.format == "coefficients"
        if kept:
            self._use = open_cache(parts, options.cache, COEFFICIENTS, streams, self._first)
            kept = any(file is not None for file in self._use.of(None))
            if not kept:
                self._choice = Choice("jpeg", self._use.stats()["reason"], self._choice.facts)
                self._use.close()
        chosen = self._choice
        _log.info("Cache(format=%r) keeps %s: %s", options.cache.format, chosen.format, chosen.reason)
        return kept

    def _through_records(self, streams: Streams, first: Sequence[_C.CacheFile | None]) -> Packed:
        """Return the dataset with its caches; ``first``: the parts' files of the index's records, or []."""
        parts = self._own.parts
        fields: list[dict[str, _C.CacheFile]] = [{} for _ in parts]
        for stream in streams:
            for held, file in zip(fields, self._use.of(stream), strict=True):
                if stream is not None and file is not None:
                    held[stream] = file
        tiers = self.disk.of(parts) if self.disk is not None else [{} for _ in parts]
        cached = self._own.with_caches(first or [None] * len(parts), fields, tiers)
        for part, file in zip(cached.parts, first, strict=False):
            if file is not None:
                start_copies(file, part.folder, index=part.manifest.index_name)
        return cached

    def counts(self) -> dict[str, Any]:
        """Return :meth:`fastload.cache.opening.CacheUse.stats`, and what concerns format and disk."""
        stats = self._use.stats()
        if self._choice is not None:
            kept, reason, facts = self._choice.format, self._choice.reason, self._choice.facts
            stats = {**stats, "format": kept, "format_reason": reason, "format_facts": facts}
        return stats if self.disk is None else {**stats, "disk": self.disk.stats()}

    def close(self) -> None:
        """Release the caches. Idempotent."""
        self._use.close()
        if self.disk is not None:
            self.disk.close()
        self.dataset = self._own


# ---- The back end -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchMemory:
    """The form of batches, and the memory that they are decoded into, ``slots``."""

    form: Form
    slots: Slots


def host_memory(form: Form, options: Options) -> BatchMemory:
    """Return memory that the consumer may keep."""
    pin = options.pin_memory and torch.cuda.is_available()
    return BatchMemory(form, SlotPool(keep=options.most_prefetch + 2, pin=pin))


def _partners(plan: Plan, sampler: Sampler, options: Options) -> Callable[[int, BatchIds], IdArray] | None:
    """Return the function that finds the other samples of a batch's mosaics or windows; None: it has none."""
    windows, use = options.windows, plan.mosaic
    if windows is not None:
        return lambda _, batch: windows.partners(batch.ids)
    if use is None:
        return None
    from fastload.sampler.partners import Partnering, partners

    of = Partnering(use.tiles, use.p, use.mixup)
    return lambda epoch, batch: partners(sampler, options.seed, epoch, batch, of)


def _kept(form: Form, plan: Plan, sampler: Sampler) -> int:
    if plan.mosaic is None:
        return 0
    from fastload.backends.fields import kept_bytes

    return kept_bytes(len(form.streams), plan.mosaic, sampler)


def _node_part(sampler: Sampler, options: Options) -> First | None:
    """Return which samples this node needs, if they are the same in all epochs."""
    order, part = sampler.order, sampler.partition
    if not isinstance(order, StickyOrder):
        return None
    from fastload.backends.upcoming import node_ranks

    ranks = node_ranks(part.rank, part.world_size, options.local_ranks)
    return lambda dataset: order.samples_of(ranks.start, ranks.stop, part.world_size)


class NativeBackend:
    """Threads, slots and error policy of one loader over one packed dataset.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform; its callables are run elsewhere.
        options: the loader's options.
        threads: decoding threads.
        memory: what batches are decoded into.
        depth: batches in work ahead of the consumer; None: ``prefetch_factor``.
    """

    def __init__(
        self,
        dataset: Packed,
        sampler: Sampler,
        plan: Plan,
        options: Options,
        threads: ThreadPlan,
        memory: BatchMemory,
        depth: int | None = None,
    ) -> None:
        self._options = options
        self._threads = threads
        self._keeps = plan.mosaic is not None or options.windows is not None
        self.policy = FaultPolicy(dataset, options.errors.action, options.errors.log, sampler, options.seed)
        form = memory.form
        why_records = "" if plan.vision is None else f"{plan.vision!r} decodes whole pictures"
        first = _node_part(sampler, options)
        self._reading = Reading(dataset, options, form.streams, why_records, first)
        ahead = plan_read_ahead(self._reading.dataset, sampler)
        self.delivery = form.delivery
        self._engine = make_engine(
            self._reading.dataset,
            plan,
            options,
            threads,
            ahead,
            self._reading.pixels,
            form,
            _kept(form, plan, sampler),
        )
        filling = Filling(self._engine, self.delivery.layout)
        most = options.ahead_bytes if depth is None else 0
        depth = options.prefetch_factor if depth is None else depth
        #: The queue of host batches, for stages between it and the consumer.
        partners = _partners(plan, sampler, options)
        bound = least_prefetch(threads.most, sampler.typical), most
        self.feeder = Feeder(filling, sampler, memory.slots, depth, ahead.samples, partners, *bound)
        self._upcoming: Upcoming | None = None
        if self._reading.disk is not None:
            from fastload.backends.upcoming import Upcoming

            most = ahead.samples + (options.most_prefetch + 1) * sampler.typical
            self._upcoming = Upcoming(self._reading.disk, dataset.parts, sampler, options.local_ranks, most)
            self.feeder.on_take = self._upcoming.at
        self._tuner: Autotuner | None = None
        self.tune_by(lambda: self.feeder.waited)

    def tune_by(self, waited: Callable[[], float], moves_depth: bool = True) -> None:
        """With ``autotune``: adapt the threads and, if ``moves_depth``, the queue's depth.

        Args:
            waited: returns the seconds for which the consumer was blocked, since any fixed moment.
            moves_depth: whether the queue's depth is the loader's.
        """
        if not self._options.autotune:
            return
        from fastload.prefetch.autotune import Autotuner, Bounds, Setting

        def measure() -> tuple[float, float]:
            return waited(), float(sum(thread["seconds"]["idle"] for thread in self._engine.stats()))

        def apply(setting: Setting) -> None:
            self._engine.set_threads(setting.threads)
            if moves_depth:
                self.feeder.depth = setting.depth

        prefetch = self._options.prefetch_factor
        bounds = Bounds(self._threads.most, prefetch, self._options.most_prefetch)
        self._tuner = Autotuner(Setting(self._threads.threads, prefetch), bounds, measure, apply)

    @property
    def cached(self) -> Packed:
        """The dataset as this loader reads it, through its caches."""
        return self._reading.dataset

    @property
    def errors(self) -> list[SampleReport]:
        """Reports of the bad samples met so far."""
        return self.policy.reports

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key``; block until it is complete. The next ones are in work by then."""
        with self.tuning(key):
            pending = self.feeder.take(key)
            self.complete(pending)
            return self.delivery.batch(pending.slot.fields, pending.slot.layout.nbytes)

    def tuning(self, key: BatchKey) -> AbstractContextManager[None]:
        """Measure, around the delivery of the batch ``key``, for autotune if that is on."""
        if self._tuner is None:
            return nullcontext()
        return self._tuner.waiting(self._options.batch_size, first=key.step == 0)

    def complete(self, pending: Pending) -> None:
        """Block until the batch is complete, and apply the error policy."""
        self.resolve(pending, self.wait(pending))

    def wait(self, pending: Pending) -> list[Fault]:
        """Block until the batch is complete, and return its faults."""
        return self.feeder.wait(pending, self._options.timeout)

    def resolve(self, pending: Pending, faults: list[Fault]) -> None:
        """Apply the error policy to the faults of a complete batch."""
        if faults:
            self.policy.apply(self.feeder, pending, faults)

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self.feeder.cancel()

    def go_on_at(self, key: BatchKey) -> None:
        """See :func:`fastload.backends.protocol.go_on_at`."""
        self.feeder.go_on_at(key)

    def end_threads(self) -> None:
        """End the threads, so that nobody waits for a batch any more. Idempotent."""
        self._engine.close()

    def close(self) -> None:
        """End all threads, and release the caches. Idempotent."""
        self.end_threads()
        if self._upcoming is not None:
            self._upcoming.close()
        self._reading.close()

    def _transcoding(self) -> dict[str, int]:
        """Return the counts of making coefficients for the cache, if it keeps them."""
        return dict(self._engine.transcoding()) if self._reading.keeps_coefficients else {}

    def counts(self) -> Counts:
        """Return what was counted so far."""
        return Counts(
            threads=list(self._engine.stats()),
            read_ahead=dict(self._engine.read_ahead()),
            cache=self._reading.counts() | self._transcoding(),
            kept=dict(self._engine.kept()) if self._keeps else {},
        )
