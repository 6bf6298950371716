"""The native back end: batches of a packed dataset that the core alone makes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fastload.backends.engines import make_engine
from fastload.backends.faults import FaultPolicy, SampleReport
from fastload.backends.options import Options, least_prefetch
from fastload.backends.reading import Reading
from fastload.backends.shapes import Form
from fastload.backends.stats import Counts
from fastload.dataset.mixture import Packed
from fastload.machine.cpu_budget import ThreadPlan
from fastload.prefetch.fault import Fault
from fastload.prefetch.feeder import BatchKey, Feeder, Pending
from fastload.prefetch.filling import Filling
from fastload.prefetch.read_ahead import plan_read_ahead
from fastload.prefetch.slots import SlotPool, Slots
from fastload.sample.delivery import Delivery
from fastload.sampler import BatchIds, Sampler
from fastload.sampler.order import IdArray
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.upcoming import Upcoming
    from fastload.prefetch.autotune import Autotuner

__all__ = ["BatchMemory", "NativeBackend", "host_memory"]


@dataclass(frozen=True)
class BatchMemory:
    """What batches look like, and the memory that they are decoded into.

    Args:
        delivery: of the batches.
        slots: the memory.
    """

    delivery: Delivery
    slots: Slots


def host_memory(form: Form, options: Options) -> BatchMemory:
    """Memory that the consumer may keep."""
    pin = options.pin_memory and torch.cuda.is_available()
    return BatchMemory(form.delivery, SlotPool(keep=options.most_prefetch + 2, pin=pin))


def _partners(plan: Plan, sampler: Sampler, seed: int) -> Callable[[int, BatchIds], IdArray] | None:
    """What a batch's samples are put together with; None: nothing."""
    use = plan.mosaic
    if use is None:
        return None
    from fastload.sampler.partners import Partnering, partners

    of = Partnering(use.tiles, use.p, use.mixup)
    return lambda epoch, batch: partners(sampler, seed, epoch, batch, of)


def _kept(dataset: Packed, plan: Plan, sampler: Sampler, options: Options) -> int:
    if plan.mosaic is None:
        return 0
    from fastload.backends.kept_pictures import kept_bytes

    return kept_bytes(dataset, plan.mosaic, sampler, options)


class NativeBackend:
    """Threads, slots and error policy of one loader over one packed dataset.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform; its callables are somebody else's.
        options: the loader's options.
        threads: decoding threads.
        memory: that batches are decoded into.
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
        self._mosaics = plan.mosaic is not None
        self.policy = FaultPolicy(dataset, options.on_error, options.error_log, sampler, options.seed)
        self._reading = Reading(dataset, options)
        ahead = plan_read_ahead(self._reading.dataset, sampler)
        self.delivery = memory.delivery
        self._engine = make_engine(
            self._reading.dataset,
            plan,
            options,
            threads,
            ahead,
            self._reading.pixels,
            memory.delivery,
            _kept(dataset, plan, sampler, options),
        )
        filling = Filling(self._engine, self.delivery.layout, self.delivery.is_pair)
        most = options.ahead_bytes if depth is None else 0
        depth = options.prefetch_factor if depth is None else depth
        #: The queue of host batches, for whoever takes them before the consumer does.
        partners = _partners(plan, sampler, options.seed)
        bound = least_prefetch(threads.most, sampler.partition.batch_size), most
        self.feeder = Feeder(filling, sampler, memory.slots, depth, ahead.samples, partners, *bound)
        self._upcoming: Upcoming | None = None
        if self._reading.disk is not None:
            from fastload.backends.upcoming import Upcoming, node_ranks

            part = sampler.partition
            ranks = node_ranks(part.rank, part.world_size, options.local_ranks)
            most = ahead.samples + (options.most_prefetch + 1) * part.batch_size
            self._upcoming = Upcoming(self._reading.disk, dataset.parts, sampler, ranks, most)
            self.feeder.on_take = self._upcoming.at
        self._tuner: Autotuner | None = None
        self.tune_by(lambda: self.feeder.waited)

    def tune_by(self, waited: Callable[[], float], moves_depth: bool = True) -> None:
        """With ``autotune``: move threads, and the queue's depth or not.

        Args:
            waited: the seconds in which the consumer was blocked, since any fixed moment.
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
        """The dataset as this loader alone reads it, through its caches."""
        return self._reading.dataset

    @property
    def errors(self) -> list[SampleReport]:
        """Reports of the bad samples met so far."""
        return self.policy.reports

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key``: images and labels.

        Blocks until it is complete; the batches after it are in work when it returns.
        """
        with self.tuning(key):
            pending = self.feeder.take(key)
            self.complete(pending)
            return self.delivery.batch(pending.slot.fields, pending.slot.layout.nbytes)

    def tuning(self, key: BatchKey) -> AbstractContextManager[None]:
        """Around what delivers the batch ``key`` to the consumer: measures for autotune, if that is on."""
        if self._tuner is None:
            return nullcontext()
        return self._tuner.waiting(self._options.batch_size, first=key.step == 0)

    def complete(self, pending: Pending) -> None:
        """Block until the batch is complete, and apply the error policy."""
        self.resolve(pending, self.wait(pending))

    def wait(self, pending: Pending) -> list[Fault]:
        """Block until it is complete; its faults."""
        return self.feeder.wait(pending, self._options.timeout)

    def resolve(self, pending: Pending, faults: list[Fault]) -> None:
        """Apply the error policy to the faults of a complete batch."""
        if faults:
            self.policy.apply(self.feeder, pending, faults)

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self.feeder.cancel()

    def end_threads(self) -> None:
        """Nobody waits for a batch any more after this. Idempotent."""
        self._engine.close()

    def close(self) -> None:
        """End all threads, and let go of the caches. Idempotent."""
        self.end_threads()
        if self._upcoming is not None:
            self._upcoming.close()
        self._reading.close()

    def _transcoding(self) -> dict[str, int]:
        """Of a cache of coefficients: what waits, and who did the rest."""
        return dict(self._engine.transcoding()) if self._reading.keeps_coefficients else {}

    def counts(self) -> Counts:
        """What was counted so far."""
        return Counts(
            threads=list(self._engine.stats()),
            read_ahead=dict(self._engine.read_ahead()),
            cache=self._reading.counts() | self._transcoding(),
            kept=dict(self._engine.kept()) if self._mosaics else {},
        )
