"""What is kept of one loader's passes while they are watched, and the Loop that it comes to."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastload.backends.stats import batch_length
from fastload.diagnose.device import is_in_use
from fastload.diagnose.facts import Loop
from fastload.diagnose.step_facts import OptimizerSteps, StepFacts
from fastload.diagnose.torch_loop import is_torch_s
from fastload.diagnose.usage import Meter, Usage
from fastload.machine.cpu_budget import cgroup_quota

__all__ = ["Record"]

_EVERY = 0.5  # seconds between two looks at the system's counters
_SHARE = 200  # and they take no more than this part of the time
_LEAST = 2  # batches, without which there is nothing to say


@dataclass
class _Window:
    """The counters at the beginning of a stretch of the loop, and the last ones in it."""

    first: Usage
    last: Usage


class Record:
    """One loader's batches: how long each was waited for and worked on, and what the system counted.

    The first batch of a pass, for which workers and threads begin, is kept apart.

    Args:
        loader: torch's or ours; held, so that it is there for experiments afterwards.
        where: the place in the user's code that asks for batches.
        meter: reads the system's counters.
        clock: seconds.
        warm_up: further batches at the beginning that do not count.
        optimizers: counts their steps, of all loops.
    """

    def __init__(
        self,
        loader: Any,
        where: str,
        meter: Meter,
        clock: Callable[[], float] = time.perf_counter,
        warm_up: int = 0,
        optimizers: OptimizerSteps | None = None,
    ) -> None:
        self.loader = loader
        self.where = where
        self.wait: list[float] = []
        self.step: list[float] = []
        self.ready: list[int] = []  # batches that were there when one was asked for
        self.first_batches: list[float] = []
        self.with_grad = 0  # batches asked for with gradients on
        self.batch: Any = None  # the second one of all, for its size
        self.next_cpu = 0.0
        self.shm_free: int | None = None
        self.last_asked = 0.0
        self.facts: StepFacts | None = None  # of one step, the first one that is looked at
        self.optimizer_steps = 0
        self._meter = meter
        self._clock = clock
        self._warm_up = warm_up
        self._optimizers = optimizers or OptimizerSteps()
        self._steps_before = 0
        self._windows: list[_Window] = []
        self._open = False
        self._pass: Any = lambda: None  # a weak reference: passes hold their loaders
        self._waited: float | None = None  # for the batch that the loop has now; None: the first one
        self._arrived: float | None = None
        self._look_again = 0.0
        self._in_process = is_torch_s(loader) and loader.num_workers == 0
        self._cpu = time.process_time if self._in_process else time.thread_time

    def next(self, iterator: Any, of: Any, proceed: Callable[[], Any]) -> Any:
        """``proceed()``, timed."""
        self.asked(of, iterator)
        return self.got(iterator, proceed)

    def got(self, iterator: Any, proceed: Callable[[], Any]) -> Any:
        """``proceed()``, timed, after :meth:`asked`."""
        began, cpu = self._clock(), self._cpu()
        try:
            batch = proceed()
        except BaseException:
            self.end(iterator)
            raise
        ended = self._clock()
        if self._open:
            self.next_cpu += self._cpu() - cpu
        self.came(ended - began, batch)
        return batch

    def asked(self, of: Any, iterator: Any) -> None:
        """The loop asks for a batch: its step with the one before is over."""
        now = self._clock()
        if of is not self._pass():
            self.end(iterator)
            self._pass, self.last_asked = weakref.ref(of), now
            return
        self.last_asked = now
        if self._arrived is None:
            return
        self._look_at_step()
        steps, self._steps_before = self._optimizers.count - self._steps_before, self._optimizers.count
        if self._waited is not None:
            self.optimizer_steps += steps
            self.wait.append(self._waited)
            self.step.append(now - self._arrived)
            ready = ready_batches(iterator)
            if ready is not None:
                self.ready.append(ready)
        if self._warm_up > 0:
            self._warm_up -= 1
        elif not self._open:  # from here on batches count
            usage = self._read(iterator)
            self._windows.append(_Window(usage, usage))
            self._open = True
        elif now >= self._look_again:
            self._windows[-1].last = self._read(iterator)

    def _look_at_step(self) -> None:
        """The pass's second step, of the first pass, is looked at; before it and after it this is called."""
        if self.facts is None:
            self.facts = StepFacts()
            self.facts.begin()
        else:
            self.facts.end()

    def came(self, waited: float, batch: Any) -> None:
        """The loop has its batch."""
        if self._open:
            self._waited = waited
            self.batch = batch if self.batch is None else self.batch
            self.with_grad += _grad_enabled()
        else:
            if self._arrived is None:
                self.first_batches.append(waited)
            self._waited = None
        self._arrived = self._clock()

    def end(self, iterator: Any = None) -> None:
        """The pass is over, or was left."""
        late = self._clock() - self.last_asked > 2 * _EVERY  # something else followed the loop
        if self._open and not (late and self._windows[-1].last is not self._windows[-1].first):
            self._windows[-1].last = self._read(iterator)
        if self.facts is not None:
            self.facts.end()
        self._open = False
        self._arrived = self._waited = None

    def _read(self, iterator: Any) -> Usage:
        usage = self._meter.read(worker_pids(iterator))
        self._look_again = usage.when + max(_EVERY, _SHARE * (time.perf_counter() - usage.when))
        known = [free for free in (self.shm_free, usage.shm_free) if free is not None]
        self.shm_free = min(known, default=None)
        return usage

    @property
    def batches(self) -> int:
        """How many count."""
        return len(self.wait)

    @property
    def seconds(self) -> float:
        """Of the batches that count."""
        return sum(self.wait) + sum(self.step)

    @property
    def is_enough(self) -> bool:
        """Whether :meth:`loop` can say anything."""
        return self.batches >= _LEAST

    @property
    def batch_size(self) -> int:
        """Samples a batch."""
        known = getattr(self.loader, "batch_size", None)
        known = known or getattr(getattr(self.loader, "batch_sampler", None), "batch_size", None)
        return int(known) if isinstance(known, int) else length_of(self.batch)

    def loop(self) -> Loop:
        """What it comes to."""
        used, seconds = self._used()
        share = self.seconds / seconds if seconds > 0 else 1.0  # the windows end a little earlier or later
        own = not is_torch_s(self.loader)
        in_next = self.next_cpu
        in_process = used.our_cpu * share + in_next
        threads = self._threads()
        return Loop(
            loader=f"{'fastload' if own else 'torch'} {type(self.loader).__name__} asked in {self.where}",
            batch_size=self.batch_size,
            wait=np.array(self.wait),
            step=np.array(self.step),
            threads=threads,
            cpus=cpus(),
            loop_cpu=max(0.0, used.process_cpu * share - in_process),
            loader_cpu=in_process + used.workers_cpu * share,
            read_bytes=None if used.read_bytes is None else int(used.read_bytes * share),
            copied_bytes=self._copied(),
            notes=self._notes(used, seconds),
        )

    def _used(self) -> tuple[Usage, float]:
        """The windows' sum, and their seconds."""
        total: dict[str, Any] = {}
        for window in self._windows:
            for each in fields(Usage):
                before, after = getattr(window.first, each.name), getattr(window.last, each.name)
                if before is None or after is None:
                    total[each.name] = None
                else:
                    total[each.name] = (total.get(each.name) or 0) + after - before
        empty = Usage(0.0, 0.0, 0.0, 0.0)
        return replace(empty, **total), float(total.get("when", 0.0))

    def _threads(self) -> int:
        if is_torch_s(self.loader):
            return int(self.loader.num_workers)
        return int(self.loader.stats()["threads"]) or int(self.loader.num_workers or 0)

    def _copied(self) -> int | None:
        """Bytes to the device, of as many batches as count; only our own transfer counts them."""
        if is_torch_s(self.loader):
            return None
        moved = self.loader.stats()["stages"].get("transfer")
        if moved is None or "bytes" not in moved or not moved.get("count"):
            return None
        return int(moved["bytes"] * self.batches / moved["count"])

    def _notes(self, used: Usage, seconds: float) -> dict[str, object]:
        """Further facts."""
        others = None
        if used.busy is not None:
            others = max(0.0, used.busy - used.process_cpu - used.workers_cpu)
        notes: dict[str, object] = {
            "watched_seconds": seconds,
            "first_batch_seconds": list(self.first_batches),
            "next_cpu_seconds": self.next_cpu,
            "ready_batches": list(self.ready),
            "batch_bytes": bytes_of(self.batch),
            "with_grad": self.with_grad > self.batches / 2,
            "optimizer_steps": self.optimizer_steps,
            **(self.facts.notes if self.facts is not None else {}),
            "throttled_seconds": used.throttled,
            "stolen_seconds": used.stolen,
            "others_cpu_seconds": others,
            "run_queue_seconds": used.waited,
            "pressure_seconds": used.pressure,
            "major_faults": used.major_faults,
            "asked_bytes": used.asked_bytes,
            "hot": used.hot,
            "shm_free": self.shm_free,
            "quota": cgroup_quota(),
            "affinity": len(os.sched_getaffinity(0)),
            "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))),
            **_torch_notes(),
        }
        if is_torch_s(self.loader):
            if self.loader.num_workers > 0:
                notes["start_method"] = _start_method(self.loader.multiprocessing_context)
            notes["prefetch_factor"] = self.loader.prefetch_factor
            notes["persistent_workers"] = self.loader.persistent_workers
            notes["pin_memory"] = self.loader.pin_memory
        return {name: value for name, value in notes.items() if value is not None}


def _start_method(context: Any) -> str:
    """How a loader's workers begin; by the process's default, which nothing here fixes."""
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def worker_pids(iterator: Any) -> list[int]:
    """Of the worker processes of a torch iterator."""
    return [worker.pid for worker in getattr(iterator, "_workers", ()) if worker.pid is not None]


def ready_batches(iterator: Any) -> int | None:
    """Batches that could be had at once; None where nobody can say."""
    if hasattr(iterator, "_worker_result_queue"):
        with contextlib.suppress(NotImplementedError, OSError, ValueError):  # ended workers close their queue
            waiting = int(iterator._worker_result_queue.qsize())
            queue = iterator._data_queue
            waiting += int(queue.qsize()) if queue is not iterator._worker_result_queue else 0
            return waiting + sum(len(task) == 2 for task in iterator._task_info.values())
    backend = getattr(getattr(iterator, "_epochs", None), "backend", None)
    feeder = getattr(backend, "feeder", None)
    return None if feeder is None else int(feeder.complete)


def length_of(batch: Any) -> int:
    """Samples in a batch: the first tensor's length, wherever it is."""
    if isinstance(batch, dict):
        batch = tuple(batch.values())
    while isinstance(batch, (tuple, list)) and batch and not hasattr(batch[0], "shape"):
        if not isinstance(batch[0], (tuple, list, dict)):
            return len(batch)
        batch = tuple(batch[0].values()) if isinstance(batch[0], dict) else batch[0]
    return batch_length(batch, 1) if not hasattr(batch, "shape") else int(batch.shape[0])


def bytes_of(batch: Any) -> int:
    """Bytes of all tensors and arrays in a batch."""
    if isinstance(batch, dict):
        return sum(bytes_of(value) for value in batch.values())
    if isinstance(batch, (tuple, list)):
        return sum(bytes_of(value) for value in batch)
    return int(getattr(batch, "nbytes", 0))


def cpus() -> float:
    """CPUs that this process may use: the affinity mask, or the cgroup's quota if that is less."""
    mask = float(len(os.sched_getaffinity(0)))
    quota = cgroup_quota()
    return mask if quota is None else min(mask, quota)


def _grad_enabled() -> bool:
    return bool(sys.modules["torch"].is_grad_enabled())


def _torch_notes() -> dict[str, object]:
    torch: Any = sys.modules["torch"]
    notes: dict[str, object] = {
        "torch_threads": torch.get_num_threads(),
        "cuda": is_in_use(),
    }
    distributed: Any = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        notes["rank"], notes["world_size"] = distributed.get_rank(), distributed.get_world_size()
    return notes


def asked_where(skip: Sequence[str]) -> str:
    """File and line of the code that asks for a batch: the inmost frame outside of the ``skip`` folders."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(("<", *skip)):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
