"""Python callables on pictures that the core decoded, run in the consumer or ahead in worker processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from fastload.backends.batch_form import batches_each, by_threads, python_workers, slots_for
from fastload.backends.faults import SampleReport
from fastload.backends.native import BatchMemory, NativeBackend, host_memory
from fastload.backends.options import Options
from fastload.backends.planned_batches import batch_form
from fastload.backends.stats import Counts
from fastload.backends.tail import CallableError, Tail, failed
from fastload.backends.tail_parts import TailParts
from fastload.backends.worker_processes import (
    FORKED,
    Parent,
    WorkerInit,
    disown,
    has_dead_worker,
    named_shortage,
    raise_if_not_delivered,
    share,
    shared_memory_error,
)
from fastload.dataset.mixture import Packed
from fastload.dataset.views import TorchDataLoader
from fastload.errors import StateError
from fastload.machine.cpu import ThreadPlan
from fastload.machine.generators import kept
from fastload.machine.interrupts import interrupts_kept
from fastload.machine.threads import started_pool
from fastload.prefetch.feeder import BatchKey, Pending
from fastload.prefetch.slots import SharedSlot, SharedSlots
from fastload.sampler import Sampler
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.callable_threads import ThreadStage

# ---- Callables in the consumer's thread -------------------------------------------------------------
# Here as in worker processes, callables have the process's random generators to themselves while they run
# (``fastload.machine.generators``), so each sample's draws are the same in every run, and the model's draws
# go on as if there were no callables.


class InlineStage:
    """The stage for ``num_workers=0``: the consumer's thread runs the callables when it asks for a batch."""

    def __init__(self, parts: TailParts) -> None:
        self._parts = parts

    @property
    def waited(self) -> float:
        """Seconds for which decoding blocked the consumer."""
        return self._parts.source.feeder.waited

    def take(self, key: BatchKey) -> Any:
        """Return the batch ``key``."""
        parts = self._parts
        try:
            pending = parts.source.feeder.take(key)
            parts.source.complete(pending)
            with kept():
                ids, draws = pending.batch.ids, pending.batch.draws
                return parts.tail.batch(pending.slot.fields, key.epoch, ids, draws)
        except CallableError as error:
            cause = error.__cause__
            assert cause is not None
            raise failed(error.sample, parts.dataset, cause) from cause

    def cancel(self) -> None:
        """Do nothing: no batches are in work."""

    close = cancel


# ---- Callables in worker processes ------------------------------------------------------------------

_PARENT_SECONDS = 5.0  # how often a worker that waits for decoding checks that its parent lives


class _Work(NamedTuple):
    """A batch for a worker: the number of its shared slot, and what its samples' randomness depends on."""

    slot: int
    epoch: int
    ids: npt.NDArray[np.int64]
    draws: npt.NDArray[np.uint32] | None


class _Done(NamedTuple):
    """A worker's result for a batch."""

    batch: Any
    failure: _Failure | None = None
    lack: str = ""  # torch's message if shared memory had no room for the batch


class _Failure(NamedTuple):
    """A callable's error, as far as it can be pickled."""

    sample: int
    error: bytes  # pickled; empty if it cannot be
    name: str
    message: str
    where: str  # traceback

    @classmethod
    def of(cls, error: CallableError) -> _Failure:
        cause = error.__cause__
        assert cause is not None
        try:
            pickled = bytes(ForkingPickler.dumps(cause))
            ForkingPickler.loads(pickled)
        except Exception:
            pickled = b""
        where = "".join(traceback.format_exception(cause))
        return cls(error.sample, pickled, type(cause).__name__, str(cause), where)

    def cause(self) -> BaseException:
        """Return the error, or one that looks like it, with its traceback as cause."""
        if self.error:
            error: BaseException = ForkingPickler.loads(self.error)
        else:
            error = type(self.name, (Exception,), {})(self.message)
        error.__cause__ = RuntimeError(f"in a worker process:\n{self.where}")
        return error


class _Bench(Dataset[Any]):
    """The torch Dataset of the worker processes, whose "samples" are whole batches, by their work."""

    def __init__(self, tail: Tail, slots: SharedSlots, ready: list[Any], parent: Parent) -> None:
        self._parent = parent
        self._tail = tail
        self._slots = slots
        self._ready = ready

    def __getitem__(self, work: _Work) -> _Done | None:
        """Return the batch; None if it has been given up."""
        try:
            slot = self._wait(work)
            if slot is None:
                return None
            batch = self._tail.batch(slot.fields, *work[1:])
            share(batch)
            return _Done(batch)
        except CallableError as error:
            if error.__cause__ is not None and shared_memory_error(error.__cause__) is not None:
                return _Done(None, lack=str(error.__cause__))
            return _Done(None, _Failure.of(error))
        except RuntimeError as error:
            if shared_memory_error(error) is None:
                raise
            return _Done(None, lack=str(error))

    def _wait(self, work: _Work) -> SharedSlot | None:
        while not self._ready[work.slot].acquire(timeout=_PARENT_SECONDS):
            if self._parent.is_gone():
                return None
        return self._slots.view(work.slot, len(work.ids))


def _as_is(batch: Any) -> Any:
    return batch


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # There are as many workers as decoding threads: the user's number, or the CPU budget.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        # At a fork our threads hold no lock that a worker would want: they never run a worker's code.
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork")
        yield


# Stages whose worker processes belong to this process; a forked child must not end its parent's.
_stages: weakref.WeakSet[WorkerStage] = weakref.WeakSet()


def _forget_workers() -> None:
    for stage in list(_stages):
        stage.disown()


os.register_at_fork(after_in_child=_forget_workers)


class WorkerStage:
    """The stage with worker processes, torch's own, that run the callables ahead of the consumer.

    The core's threads decode in this process, into shared memory. Unless ``persistent_workers``, workers live
    for an epoch; as torch's do, they see callables as they are when the workers start.

    Args:
        parts: what to do.
        workers: number of processes.
        slots: what the feeder's engine writes into.
    """

    def __init__(self, parts: TailParts, workers: int, slots: SharedSlots) -> None:
        self._parts = parts
        self._slots = slots
        context = parts.options.multiprocessing_context
        if isinstance(context, str) or context is None:
            context = multiprocessing.get_context(context or "fork")
        parts.source.policy.holds = True
        with named_shortage():
            self._ready = [context.Semaphore(0) for _ in range(slots.count)]
        # Waits for the engine, so that neither the consumer nor a worker has to.
        self._watcher = started_pool(1, "fastload-watcher")
        self._works = _Works(self)
        self._first: BatchKey | None = None
        options, parent = parts.options, Parent.by(context)
        with _quiet():
            self._loader = TorchDataLoader(
                _Bench(parts.tail, slots, self._ready, parent),
                sampler=self._works,
                batch_size=None,
                collate_fn=_as_is,
                num_workers=workers,
                prefetch_factor=batches_each(workers, options.prefetch_factor),
                persistent_workers=options.persistent_workers,
                pin_memory=options.pin_memory and torch.cuda.is_available(),
                timeout=options.timeout,
                worker_init_fn=WorkerInit(parent, options.worker_init_fn),
                multiprocessing_context=context,
                generator=torch.Generator(),  # else it would draw from the model's
            )
        self._iterator: Iterator[Any] | None = None
        self._next: BatchKey | None = None
        self._pending: dict[BatchKey, tuple[Pending, Future[None]]] = {}
        self._pid = os.getpid()
        self.waited = 0.0  # seconds in which the consumer was blocked
        _stages.add(self)

    def take(self, key: BatchKey) -> Any:
        """Return the batch ``key``; the next ones are in work by then.

        Raises:
            SampleError: a callable failed, or a sample was bad.
            StateError: after fork().
            NotDelivered: a worker process died, or took more than ``timeout`` seconds.
        """
        if os.getpid() != self._pid:
            raise StateError(FORKED)
        if self._iterator is None or self._next != key:
            self.cancel()
            self._begin(key)
        assert self._iterator is not None
        began = time.perf_counter()
        try:
            done = next(self._iterator)
        except Exception as error:
            raise_if_not_delivered(self._iterator, error)
            raise
        finally:
            self.waited += time.perf_counter() - began
        self._next = self._parts.following(key)
        try:
            self._release(key)
        finally:
            if self._next is None:
                self._end()
        return self._delivered(done)

    def _begin(self, key: BatchKey) -> None:
        self._first = key
        try:
            with _quiet(), interrupts_kept(), named_shortage():
                self._iterator = iter(self._loader)
        except BaseException as error:  # torch has asked persistent workers whether they are alive
            asked, self._loader._iterator = self._loader._iterator, None  # the next one would get the answers
            if isinstance(error, Exception):
                raise_if_not_delivered(asked, error)
            raise

    def _end(self) -> None:
        """Let torch see the end of the epoch, so that it ends workers that do not persist."""
        assert self._iterator is not None
        next(self._iterator, None)
        self._iterator = None

    def _delivered(self, done: _Done) -> Any:
        lack = shared_memory_error(RuntimeError(done.lack))
        if lack is not None:
            raise lack from RuntimeError(done.lack)
        if done.failure is None:
            return done.batch
        cause = done.failure.cause()
        raise failed(done.failure.sample, self._parts.dataset, cause) from cause

    def works(self) -> Iterator[_Work]:
        """Yield work; torch asks for the next when it has room for one more batch."""
        for ready in self._ready:  # what a cancelled epoch left
            while ready.acquire(block=False):
                pass
        key = self._first
        while key is not None:
            yield self._work(key)
            key = self._parts.following(key)

    def _work(self, key: BatchKey) -> _Work:
        pending = self._parts.source.feeder.take(key)
        assert isinstance(pending.slot, SharedSlot)
        self._pending[key] = pending, self._watcher.submit(self._watch, pending)
        return _Work(pending.slot.number, key.epoch, pending.batch.ids, pending.batch.draws)

    def _watch(self, pending: Pending) -> None:
        source = self._parts.source
        try:
            source.resolve(pending, source.wait(pending))
        finally:
            assert isinstance(pending.slot, SharedSlot)
            self._ready[pending.slot.number].release()

    def _release(self, key: BatchKey) -> None:
        """Give back the slot that a worker is done with; raise what went wrong while it was filled."""
        if key in self._pending:
            pending, watched = self._pending.pop(key)
            self._slots.give_back(pending.slot)
            try:
                watched.result()
            finally:
                self._parts.source.policy.publish(pending)

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        if os.getpid() != self._pid:
            return
        for pending, watched in self._pending.values():
            if watched.cancel():
                self._ready[pending.slot.number].release()  # type: ignore[attr-defined]
                with suppress(StateError):  # closed already, at exit
                    self._parts.source.feeder.drop(pending)
            elif not self._in_watcher():
                watched.exception()  # wait for it; its outcome is not wanted
        self._iterator, self._next = None, None  # torch ends its workers when the iterator is gone
        if has_dead_worker(self._loader._iterator):
            self._loader._iterator = None
        for pending, _ in self._pending.values():
            self._slots.give_back(pending.slot)
        self._pending.clear()

    def disown(self) -> None:
        """Let go of threads and workers in a forked child: they belong to the parent and go on."""
        for iterator in (self._iterator, getattr(self._loader, "_iterator", None)):
            if iterator is not None:
                disown(iterator)
        self._iterator, self._next = None, None
        self._pending.clear()

    def close(self) -> None:
        """End the processes and the thread. Idempotent; does nothing after fork()."""
        if os.getpid() != self._pid:
            return
        self.cancel()
        self._loader._iterator = None
        self._watcher.shutdown(wait=not self._in_watcher())

    def _in_watcher(self) -> bool:
        """Whether this is the watcher's own thread: the garbage collector may close a loader there."""
        return threading.current_thread() in self._watcher._threads


class _Works:
    """The sampler of torch's DataLoader, which yields work."""

    def __init__(self, stage: WorkerStage) -> None:
        self._stage = weakref.ref(stage)

    def __iter__(self) -> Iterator[_Work]:
        stage = self._stage()
        assert stage is not None
        return stage.works()


# ---- The back end -----------------------------------------------------------------------------------


def _stage(
    parts: TailParts, workers: int, slots: SharedSlots | None
) -> InlineStage | WorkerStage | ThreadStage:
    """Make what runs the callables; ``slots``: what worker processes share with this one, None: none do."""
    if slots is not None:
        return WorkerStage(parts, workers, slots)
    if not workers:
        return InlineStage(parts)
    from fastload.backends.callable_threads import ThreadStage

    return ThreadStage(parts, workers)


class PythonBackend:
    """Batches by callables and ``collate_fn`` on decoded samples: in processes, threads or :meth:`batch`.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform.
        options: the loader's options.
        threads: decoding threads, and as many worker processes or threads for callables.
    """

    def __init__(
        self, dataset: Packed, sampler: Sampler, plan: Plan, options: Options, threads: ThreadPlan
    ) -> None:
        workers = python_workers(plan, options, threads)
        form = batch_form(dataset, plan, options)
        slots, memory = None, host_memory(form, options)
        if workers and not by_threads(options):
            slots = SharedSlots(form.delivery.layout, slots_for(workers, options.prefetch_factor))
            memory = BatchMemory(form, slots)
        depth = 1 if workers else None  # the workers have the other batches
        self._decoding = NativeBackend(dataset, sampler, plan, options, threads, memory, depth)
        moves = any(one.moves or one.takes == "sample" for one in plan.called)
        tail = Tail(form.adapter(), options.collate_fn, options.seed, form.delivery, moves)
        parts = TailParts(dataset, sampler, options, tail, self._decoding)
        self._stage = _stage(parts, workers, slots)
        self._goes_on = bool(workers) and options.unbatched
        self._decoding.tune_by(lambda: self._stage.waited, moves_depth=not workers)

    @property
    def errors(self) -> list[SampleReport]:
        """Reports of the bad samples met so far."""
        return self._decoding.policy.reports

    @property
    def goes_on(self) -> bool:
        """Whether work goes on after an error: without batches each bad sample is an error, and worker
        processes take longer to start than to make a sample. An error of a batch mostly ends the program,
        which must then leave no processes behind."""
        return self._goes_on

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key`` as the callables made it; blocks.

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
        """End all threads and processes, and release the caches. Idempotent."""
        self._decoding.end_threads()  # first: the stage's threads then have nothing to wait for
        self._stage.close()
        self._decoding.close()

    def counts(self) -> Counts:
        """Return what was counted so far."""
        return self._decoding.counts()
