"""The back end of Python callables: what they make of the pictures that the core has decoded."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fastload.backends.callables import InlineStage, Parts
from fastload.backends.faults import FaultPolicy, SampleReport
from fastload.backends.native import BatchMemory, NativeBackend, host_memory
from fastload.backends.options import Options
from fastload.backends.reading import Reading
from fastload.backends.render import Renderer
from fastload.backends.shapes import Form, batch_form, python_workers
from fastload.backends.stats import Counts
from fastload.backends.tail import Tail
from fastload.backends.worker_counts import slots_for
from fastload.backends.worker_stage import WorkerStage
from fastload.dataset.mixture import Packed
from fastload.machine.cpu_budget import ThreadPlan
from fastload.prefetch.feeder import BatchKey
from fastload.prefetch.shared_slots import SharedSlots
from fastload.sampler import Sampler
from fastload.transforms.called import calls_v2
from fastload.transforms.plan import Plan

__all__ = ["PythonBackend"]


class PythonBackend:
    """Callables and ``collate_fn`` on decoded samples, in worker processes or within :meth:`batch`.

    Pictures of one size come from a native back end of its own. Where they differ there is no slot to decode
    them into, and each is decoded where its callables run.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform.
        options: the loader's options.
        threads: decoding threads, and as many worker processes.
    """

    def __init__(
        self, dataset: Packed, sampler: Sampler, plan: Plan, options: Options, threads: ThreadPlan
    ) -> None:
        workers = python_workers(plan, options, threads)
        form = batch_form(dataset, plan, options)
        memory, shared = (None, None) if form is None else _memory(form, options, workers)
        self._decoding: NativeBackend | _OneByOne
        if memory is None:
            self._decoding = _OneByOne(dataset, sampler, plan, options)
        else:
            depth = 1 if workers else None  # the workers have the others
            self._decoding = NativeBackend(dataset, sampler, plan, options, threads, memory, depth)
        delivery = memory.delivery if memory is not None else None
        handed = None
        if delivery is not None and not delivery.is_pair and (plan.tail or calls_v2(options.collate_fn)):
            from fastload.backends.handed import HandOver  # pairs need nothing of it

            handed = HandOver(dataset.schema, delivery.layout, plan, options.objects)
        tail = Tail(plan, options.collate_fn, options.seed, delivery, handed)
        source = self._decoding.renderer if isinstance(self._decoding, _OneByOne) else self._decoding
        parts = Parts(dataset, sampler, options, self._decoding.policy, tail, source)
        self._stage = WorkerStage(parts, workers, shared) if workers else InlineStage(parts)
        self._goes_on = bool(workers) and options.unbatched
        if isinstance(self._decoding, NativeBackend):
            self._decoding.tune_by(lambda: self._stage.waited, moves_depth=not workers)

    @property
    def errors(self) -> list[SampleReport]:
        """Reports of the bad samples met so far."""
        return self._decoding.policy.reports

    @property
    def goes_on(self) -> bool:
        """Whether an error leaves what follows in work: without batches each bad sample is an error, and
        worker processes take longer to begin than to make a sample. An error of a batch mostly ends the
        program, which leaves no processes behind then."""
        return self._goes_on

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key``: what the callables made of it; blocks.

        Raises:
            SampleError: a callable failed, or as the error policy says.
        """
        with self._decoding.tuning(key):
            return self._stage.take(key)

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self._stage.cancel()
        self._decoding.cancel()

    def close(self) -> None:
        """End all threads and processes, and let go of the caches. Idempotent."""
        self._decoding.end_threads()  # first: the stage's threads then have nothing to wait for
        self._stage.close()
        self._decoding.close()

    def counts(self) -> Counts:
        """What was counted so far."""
        return self._decoding.counts()


class _OneByOne:
    """Pictures of different sizes, each decoded where it is asked for; in place of a native back end."""

    def __init__(self, dataset: Packed, sampler: Sampler, plan: Plan, options: Options) -> None:
        self.policy = FaultPolicy(dataset, options.on_error, options.error_log, sampler, options.seed)
        self._reading = Reading(dataset, options, by_engine=False)
        limits = options.max_pixels, options.on_error, options.cache_decoded
        self.renderer = Renderer(self._reading.dataset, plan, options.seed, *limits)

    def tuning(self, key: BatchKey) -> AbstractContextManager[None]:
        """There is nothing to tune."""
        return nullcontext()

    def cancel(self) -> None:
        """Nothing is in work here."""

    end_threads = cancel

    def close(self) -> None:
        """Let go of the caches. Idempotent."""
        self._reading.close()

    def counts(self) -> Counts:
        """What was counted so far: no threads."""
        return Counts(cache=self._reading.counts())


def _memory(form: Form, options: Options, workers: int) -> tuple[BatchMemory, SharedSlots | None]:
    """Where batches are decoded into; where worker processes shall see it, also as that."""
    if not workers:
        return host_memory(form, options), None
    shared = SharedSlots(form.delivery.layout, slots_for(workers, options.prefetch_factor))
    return BatchMemory(form.delivery, shared), shared
