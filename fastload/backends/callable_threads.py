"""Python callables in threads of this process, where Python threads run at once: no worker processes."""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import deque
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotDone
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from fastload.backends.batch_form import batches_each
from fastload.backends.tail import CallableError, Tail, failed
from fastload.backends.tail_parts import TailParts
from fastload.backends.worker_processes import FORKED
from fastload.errors import NotDelivered, StateError
from fastload.machine.thread_generators import give_way, own_generators
from fastload.machine.threads import started_pool
from fastload.prefetch.feeder import BatchKey, Pending


class _Work(NamedTuple):
    """A batch in work: its decoding, which ``watched`` waits for, and what the callables make of it."""

    key: BatchKey
    pending: Pending
    watched: Future[None]
    made: Future[Any]


class ThreadStage:
    """The stage with threads that run the callables, ahead of the consumer.

    Each thread has random generators of its own, and its own copy of the callables, made when an epoch begins
    (``persistent_workers``: once), as worker processes have.

    Args:
        parts: what to do.
        workers: number of threads.
    """

    def __init__(self, parts: TailParts, workers: int) -> None:
        give_way()
        self._parts = parts
        self._workers = workers
        self._ahead = workers * batches_each(workers, parts.options.prefetch_factor)
        parts.source.policy.holds = True
        self._tails: SimpleQueue[Tail] | None = None
        # Waits for the engine, so that neither the consumer nor the others have to.
        self._watcher = started_pool(1, "fastload-watcher")
        self._pool = started_pool(workers, "fastload-callables")
        self._give_one_core_each()
        self._pins = parts.options.pin_memory and torch.cuda.is_available()
        self._works: deque[_Work] = deque()
        self._coming: BatchKey | None = None  # the next one to be put to work
        self._pid = os.getpid()
        self.waited = 0.0  # seconds in which the consumer was blocked

    def _copies(self) -> SimpleQueue[Tail]:
        """Copies of the callables, one for each thread; whoever works takes one."""
        tails: SimpleQueue[Tail] = SimpleQueue()
        try:
            for _ in range(self._workers):
                tails.put(copy.deepcopy(self._parts.tail))
        except Exception as error:
            raise TypeError(
                "Without the GIL Python callables run in threads, each with a copy of them, and these cannot "
                f"be copied: {type(error).__name__}: {error}. Pass multiprocessing_context='fork' to run "
                "them in worker processes, or num_workers=0."
            ) from error
        return tails

    def _give_one_core_each(self) -> None:
        """Let torch's operations use one core in each thread, as in torch's worker processes."""
        everyone = threading.Barrier(self._workers)
        before = torch.get_num_threads()

        def alone() -> None:
            torch.set_num_threads(1)  # of this thread, and of threads that torch sees for the first time
            everyone.wait()

        for done in [self._pool.submit(alone) for _ in range(self._workers)]:
            done.result()
        torch.set_num_threads(before)

    def take(self, key: BatchKey) -> Any:
        """Return the batch ``key``; the next ones are in work by then.

        Raises:
            SampleError: a callable failed, or a sample was bad.
            StateError: after fork().
            TypeError: a callable cannot be copied.
            NotDelivered: it took more than ``timeout`` seconds.
        """
        if os.getpid() != self._pid:
            raise StateError(FORKED)
        if not self._works or self._works[0].key != key:
            self.cancel()
            if self._tails is None or not self._parts.options.persistent_workers:
                self._tails = self._copies()
            self._coming = key
        self._fill()
        work = self._works.popleft()
        began = time.perf_counter()
        try:
            return self._made(work)
        finally:
            self.waited += time.perf_counter() - began
            self._parts.source.policy.publish(work.pending)

    def _fill(self) -> None:
        assert self._tails is not None
        while self._coming is not None and len(self._works) <= self._ahead:
            key, self._coming = self._coming, self._parts.following(self._coming)
            pending = self._parts.source.feeder.take(key)
            watched = self._watcher.submit(self._watch, pending)
            made = self._pool.submit(_make, self._tails, pending, watched, self._pins)
            self._works.append(_Work(key, pending, watched, made))

    def _watch(self, pending: Pending) -> None:
        source = self._parts.source
        source.resolve(pending, source.wait(pending))

    def _made(self, work: _Work) -> Any:
        wait([work.made], self._parts.options.timeout or None)
        try:
            return work.made.result(0)
        except NotDone:
            raise NotDelivered(
                f"DataLoader timed out after {self._parts.options.timeout} seconds: {work.key}."
            ) from None
        except CallableError as error:
            cause = error.__cause__
            assert cause is not None
            raise failed(error.sample, self._parts.dataset, cause) from cause

    def cancel(self) -> None:
        """Drop the batches that are in work. Callables that run go on to their batch's end."""
        if os.getpid() != self._pid:
            return
        works, self._works, self._coming = self._works, deque(), None
        for work in reversed(works):
            work.made.cancel()
            if work.watched.cancel():
                with suppress(StateError):  # closed already, at exit
                    self._parts.source.feeder.drop(work.pending)
        for work in works:
            if not work.watched.cancelled() and not self._is_inside():
                work.watched.exception()  # wait for it; its outcome is not wanted

    def close(self) -> None:
        """End the threads, after the callables that run. Idempotent; does nothing after fork()."""
        if os.getpid() != self._pid:
            return
        self.cancel()
        inside = self._is_inside()
        for pool in (self._watcher, self._pool):
            pool.shutdown(wait=not inside, cancel_futures=True)

    def _is_inside(self) -> bool:
        """Whether this is one of its own threads: the garbage collector may close a loader there."""
        return threading.current_thread() in self._watcher._threads | self._pool._threads


def _make(tails: SimpleQueue[Tail], pending: Pending, watched: Future[None], pins: bool) -> Any:
    """Wait until a batch is decoded, and run the callables on it; ``pins``: into memory that is pinned."""
    watched.result()
    tail = tails.get()
    try:
        with own_generators():
            made = tail.batch(pending.slot.fields, pending.key.epoch, pending.batch.ids, pending.batch.draws)
        return pin_memory(made) if pins else made  # type: ignore[no-untyped-call]
    finally:
        tails.put(tail)
