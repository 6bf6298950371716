"""``with fastload.diagnose(loader) as d``: watches a training loop while it runs, then judges it."""

from __future__ import annotations

import multiprocessing
import os
import sys
import sysconfig
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from fastload.backends.stats import batch_length
from fastload.dataset.views import TorchDataLoader
from fastload.diagnose.attribution import attributed
from fastload.diagnose.facts import Loop, Verdict
from fastload.diagnose.listening import Pass, is_torch_s, listen, ready_batches, stop_listening
from fastload.diagnose.ranks import gathered_of, rank_of, with_ranks
from fastload.diagnose.sampling import Profile
from fastload.diagnose.step import OptimizerSteps, StepFacts, is_in_use
from fastload.diagnose.usage import Meter, Usage
from fastload.errors import StateError
from fastload.machine.cpu import cgroup_quota

if TYPE_CHECKING:
    from typing_extensions import Self


# ---- Record of a watched loader ---------------------------------------------------------------------

_EVERY = 0.5  # seconds between two readings of the system's counters ...
_SHARE = 200  # ... or this many times as long as one reading takes, if that is more
_LEAST = 2  # batches that a judgement needs
_FEW = 2  # batches of a pass
_WARM_PASSES = 2  # of those that have so few
_WORKERS_LOOKED_AT = 2  # for their memory: reading it takes milliseconds
_PARTS = 8  # of a batch that are looked through for pictures


@dataclass
class _Window:
    """The first and the last counters of a stretch of the loop."""

    first: Usage
    last: Usage


class Record:
    """One loader's batches: the waiting for each, its step, and what the system counted.

    The first batch of a pass, for which workers and threads start, is kept apart, unless a pass has hardly
    more.

    Args:
        loader: torch's or ours; held, so that experiments can use it afterwards.
        where: the place in the user's code that asks for batches.
        meter: reads the system's counters.
        clock: returns seconds.
        warm_up: further batches at the beginning that do not count.
        optimizers: counts the optimisers' steps, in all loops.
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
        self.ready: list[int] = []  # batches that were ready when one was asked for
        self.first_batches: list[float] = []
        self.with_grad = 0  # batches asked for with gradients on
        self.batch: Any = None  # the second of all batches, for its size
        self.next_cpu = 0.0
        self.shm_free: int | None = None
        self.last_asked = 0.0
        self.facts: StepFacts | None = None  # of the first step that is looked at
        self.optimizer_steps = 0
        self._meter = meter
        self._clock = clock
        self._warm_up = warm_up
        self._optimizers = optimizers or OptimizerSteps()
        self._steps_before = 0
        self.passes = 0
        self.all_batches = -1  # that came, after the very first one
        self.first_came = self.last_came = 0.0
        self.began = time.monotonic()  # the first batch came, once there is one
        self._memory: list[Mapping[int, tuple[int, int]]] = []  # of workers, at two moments
        self._memory_when: list[float] = []
        self._windows: list[_Window] = []
        self._open = False
        self._pass: Any = lambda: None  # a weak reference: passes hold their loaders
        self._waited: float | None = None  # for the loop's current batch; None: that is the first one
        self._arrived: float | None = None
        self._look_again = 0.0
        self._has_few = _has_few(loader)
        self._in_process = is_torch_s(loader) and loader.num_workers == 0
        self._cpu = time.process_time if self._in_process else time.thread_time

    def next(self, iterator: Any, of: Any, proceed: Callable[[], Any]) -> Any:
        """Call ``proceed()``, and time it."""
        self.asked(of, iterator)
        return self.got(iterator, proceed)

    def got(self, iterator: Any, proceed: Callable[[], Any]) -> Any:
        """Call ``proceed()`` after :meth:`asked`, and time it."""
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
        """Note that the loop asks for a batch, so that its step with the previous one is over."""
        now = self._clock()
        if of is not self._pass():
            self.end(iterator)
            self._pass, self.last_asked = weakref.ref(of), now
            self.passes += 1
            if self._has_few and self.passes > _WARM_PASSES:
                self._begin(iterator)
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
        elif not self._open:
            self._begin(iterator)
        elif now >= self._look_again:
            self._windows[-1].last = self._read(iterator)

    def _begin(self, iterator: Any) -> None:
        """Let batches count from here on."""
        usage = self._read(iterator)
        self._windows.append(_Window(usage, usage))
        self._open = True
        if not self._memory or not self._memory[0].keys() & set(worker_pids(iterator)):
            self._memory, self._memory_when = [], []  # other workers
            self._look_at_memory(iterator)

    def _look_at_step(self) -> None:
        """Look at the first pass's second step; called before it and after it."""
        if self.facts is None:
            self.facts = StepFacts()
            self.facts.begin()
        else:
            self.facts.end()

    def came(self, waited: float, batch: Any) -> None:
        """Note that the loop has its batch."""
        self.all_batches += 1
        self.last_came = self._clock()
        if self.all_batches == 0:
            self.first_came = self.last_came
        if self._arrived is None:
            if not self.first_batches:
                self.began = time.monotonic()
            self.first_batches.append(waited)
        if self._open:
            self._waited = waited
            self.batch = batch if self.batch is None else self.batch
            self.with_grad += _grad_enabled()
        else:
            self._waited = None
        self._arrived = self._clock()

    def _look_at_memory(self, iterator: Any) -> None:
        """Note the memory of a few workers: at first, and now."""
        pids = worker_pids(iterator)[:_WORKERS_LOOKED_AT]
        self._memory = [*self._memory[:1], self._meter.memory(pids)]
        self._memory_when = [*self._memory_when[:1], self._clock()]

    def _copied(self) -> float:
        """Return the bytes a second that all workers copy of what they share with the main process."""
        if len(self._memory) < 2:
            return 0.0
        first, last = self._memory
        both = [(first[pid], last[pid]) for pid in first if pid in last]
        grown = [max(0, min(now[0] - then[0], then[1] - now[1])) for then, now in both]
        seconds = self._memory_when[1] - self._memory_when[0]
        workers = int(getattr(self.loader, "num_workers", 0) or 0)
        return workers * sum(grown) / len(grown) / seconds if grown and seconds > 0 else 0.0

    def end(self, iterator: Any = None) -> None:
        """Note that the pass is over, or was left."""
        late = self._clock() - self.last_asked > 2 * _EVERY  # something else followed the loop
        if self._open and self._memory_when and self._clock() - self._memory_when[-1] > _EVERY:
            self._look_at_memory(iterator)
        if self._open and not (late and self._windows[-1].last is not self._windows[-1].first):
            self._windows[-1].last = self._read(iterator)
        if self.facts is not None:
            self.facts.end()
        self._open = False
        self._arrived = self._waited = None

    def _read(self, iterator: Any) -> Usage:
        usage = self._meter.read(worker_pids(iterator))
        self._look_again = usage.when + max(_EVERY, _SHARE * (time.perf_counter() - usage.when))
        least = [free for free in (self.shm_free, usage.shm_free) if free is not None]
        self.shm_free = min(least, default=None)
        return usage

    @property
    def batches(self) -> int:
        """Number of batches that count."""
        return len(self.wait)

    @property
    def seconds(self) -> float:
        """Total time of the batches that count."""
        return sum(self.wait) + sum(self.step)

    @property
    def is_enough(self) -> bool:
        """Whether there are enough batches for :meth:`loop`."""
        return self.batches >= _LEAST

    @property
    def batch_size(self) -> int:
        """Samples per batch."""
        known = getattr(self.loader, "batch_size", None)
        known = known or getattr(getattr(self.loader, "batch_sampler", None), "batch_size", None)
        return int(known) if isinstance(known, int) else length_of(self.batch)

    def loop(self) -> Loop:
        """Return the record as a Loop."""
        used, seconds = self._used()
        share = self.seconds / seconds if seconds > 0 else 1.0  # the windows' ends differ a little
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
            copied_bytes=self._copied_to_device(),
            notes=self._notes(used, seconds),
        )

    def _used(self) -> tuple[Usage, float]:
        """Return the sum of the windows' counts, and their seconds."""
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

    def at_work(self) -> float:
        """Return the share of the time that threads had a CPU when they wanted one."""
        used, _ = self._used()
        wanted = used.process_cpu + used.workers_cpu
        return wanted / (wanted + (used.waited or 0.0)) if wanted > 0 else 1.0

    def _threads(self) -> int:
        if is_torch_s(self.loader):
            return int(self.loader.num_workers)
        return int(self.loader.stats()["threads"]) or int(self.loader.num_workers or 0)

    def _copied_to_device(self) -> int | None:
        """Return the bytes copied to the device for batches that count; None: not by our transfer."""
        if is_torch_s(self.loader):
            return None
        moved = self.loader.stats()["stages"].get("transfer")
        if moved is None or "bytes" not in moved or not moved.get("count"):
            return None
        return int(moved["bytes"] * self.batches / moved["count"])

    def _notes(self, used: Usage, seconds: float) -> dict[str, object]:
        others = None
        if used.busy is not None:
            others = max(0.0, used.busy - used.process_cpu - used.workers_cpu)
        notes: dict[str, object] = {
            "watched_seconds": seconds,
            "first_batch_seconds": list(self.first_batches),
            "next_cpu_seconds": self.next_cpu,
            "passes": self.passes,
            "all_batches": max(0, self.all_batches),
            "all_seconds": self.last_came - self.first_came,
            "batch_side": side_of(self.batch),
            "memory_copied_per_second": self._copied(),
            "swapped_bytes": used.swapped,
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


def _has_few(loader: Any) -> bool:
    """Whether a pass has so few batches that its first one has to count, too."""
    try:
        return len(loader) <= _FEW
    except (TypeError, NotImplementedError):
        return False


def _start_method(context: Any) -> str:
    """Return the start method of a loader's workers, without fixing the process's default."""
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def worker_pids(iterator: Any) -> list[int]:
    """Return the process ids of a torch iterator's workers."""
    return [worker.pid for worker in getattr(iterator, "_workers", ()) if worker.pid is not None]


def length_of(batch: Any) -> int:
    """Return the samples in a batch: the length of its first tensor, at any depth."""
    if isinstance(batch, dict):
        batch = tuple(batch.values())
    while isinstance(batch, (tuple, list)) and batch and not hasattr(batch[0], "shape"):
        if not isinstance(batch[0], (tuple, list, dict)):
            return len(batch)
        batch = tuple(batch[0].values()) if isinstance(batch[0], dict) else batch[0]
    return batch_length(batch, 1) if not hasattr(batch, "shape") else int(batch.shape[0])


def side_of(batch: Any) -> int:
    """Return the longer side of a batch's pictures: of its first tensor with four dimensions; 0: none."""
    if isinstance(batch, dict):
        batch = tuple(batch.values())
    if isinstance(batch, (tuple, list)):
        return max((side_of(part) for part in batch[:_PARTS]), default=0)
    shape = tuple(getattr(batch, "shape", ()))
    if len(shape) != 4:
        return 0
    return int(max(shape[1:3] if shape[3] in (1, 3, 4) else shape[2:]))


def bytes_of(batch: Any) -> int:
    """Return the bytes of all tensors and arrays in a batch."""
    if isinstance(batch, dict):
        return sum(bytes_of(value) for value in batch.values())
    if isinstance(batch, (tuple, list)):
        return sum(bytes_of(value) for value in batch)
    return int(getattr(batch, "nbytes", 0))


def cpus() -> float:
    """Return the CPUs that this process may use: its affinity mask, or its cgroup's quota if lower."""
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
    """Return file and line of the code that asks for a batch: the innermost frame outside ``skip``."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(("<", *skip)):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


# ---- The context manager ----------------------------------------------------------------------------


def diagnose(loader: Any = None, *, seconds: float = 60.0) -> Diagnosis:
    """Watch a training loop, and say why it waits: ``with fastload.diagnose(loader) as d: ...``.

    Args:
        loader: fastload's DataLoader or torch's, or a subclass; None: all whose iteration begins inside.
        seconds: time limit of the experiments, which begin when ``d.verdict`` is first read.

    Returns:
        A context manager. Loops inside it run as usual. Afterwards ``d.loop`` is the watched loop, and
        ``d.verdict`` says what limits it.

    Raises:
        TypeError: ``loader`` is not a DataLoader.
    """
    if loader is not None and not isinstance(loader, TorchDataLoader):
        raise TypeError(
            f"diagnose takes a fastload.DataLoader or a torch.utils.data.DataLoader, or nothing for all "
            f"that are iterated inside. Found: {type(loader).__name__}."
        )
    return Diagnosis(loader, seconds)


class Diagnosis:
    """The context manager of :func:`diagnose`, with the loop that was watched and the verdict.

    Args:
        loader: the loader to watch; None: every loader.
        seconds: time limit of the experiments.
        meter: reads the system's counters.
        clock: returns seconds.
        warm_up: batches of each loader, besides the first one of a pass, that do not count.
    """

    def __init__(
        self,
        loader: Any = None,
        seconds: float = 60.0,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.perf_counter,
        warm_up: int = 0,
    ) -> None:
        self._loader = loader
        self._seconds = seconds
        self.meter = meter or Meter()
        self._warm_up = warm_up
        self._optimizers = OptimizerSteps()
        self._clock = clock
        self._records: dict[int, Record] = {}
        self._verdict: Verdict | None = None
        self._profile = Profile()

    def __enter__(self) -> Self:
        listen(self)
        self._profile.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_listening(self)
        self._profile.stop()
        self.close()
        if error is None and self.records:
            gathered_of(self.loader)  # for the other ranks' verdicts

    def close(self) -> None:
        """Stop watching; idempotent."""
        self._optimizers.end()
        for record in self._records.values():
            record.end()

    def next(self, iterator: Any, of: Pass, proceed: Callable[[], Any]) -> Any:
        """See :class:`fastload.diagnose.listening.Listener`."""
        loader = of.loader
        if loader is None or (self._loader is not None and loader is not self._loader):
            return proceed()
        return self.record_of(loader).next(iterator, of, proceed)

    def record_of(self, loader: Any) -> Record:
        """Return the record of ``loader``; the first call makes it."""
        record = self._records.get(id(loader))
        if record is None:
            for known in list(self._records.values()):
                if self.takes_over(loader, known):
                    return known
            where = asked_where(_LIBRARIES)
            record = Record(loader, where, self.meter, self._clock, self._warm_up, self._optimizers)
            self._optimizers.begin()
            self._records[id(loader)] = record
        return record

    def takes_over(self, loader: Any, record: Record) -> bool:
        """Give a record ``loader`` if that replaces its own: some scripts make one for each epoch.

        Both are asked at the same place and made in the same way, and only the record still holds the first.
        """
        alike = record.where == asked_where(_LIBRARIES) and all(
            getattr(record.loader, name, None) == getattr(loader, name, None)
            for name in ("__class__", "batch_size", "num_workers")
        )
        if not alike or sys.getrefcount(record.loader) > _HELD_BY_RECORD:
            return False
        del self._records[id(record.loader)]
        record.loader = loader
        self._records[id(loader)] = record
        return True

    @property
    def records(self) -> list[Record]:
        """A record of each watched loader: training before validation, then the busiest first."""
        records = [record for record in self._records.values() if record.is_enough]
        return sorted(records, key=lambda each: (each.with_grad * 2 <= each.batches, -each.seconds))

    @property
    def all_records(self) -> list[Record]:
        """A record of every loader that was asked for a batch, however few."""
        return list(self._records.values())

    @property
    def loader(self) -> Any:
        """The loader of :attr:`loop`.

        Raises:
            StateError: as for :attr:`loop`.
        """
        return self._busiest().loader

    @property
    def loop(self) -> Loop:
        """The watched loop; if there are several, the busiest one that trains.

        Raises:
            StateError: too few batches were asked for.
        """
        record = self._busiest()
        loop = record.loop()
        others = [other.loop() for other in self.records if other is not record]
        return loop if not others else _with_note(loop, "other_loops", others)

    @property
    def loops(self) -> list[Loop]:
        """The loops of all loaders with enough batches; :attr:`loop` is the first."""
        return [record.loop() for record in self.records]

    @property
    def verdict(self) -> Verdict:
        """What limits the loop, and what would help. Reading it first runs the experiments.

        Raises:
            StateError: as for :attr:`loop`.
        """
        if self._verdict is None:
            loop = self.loop
            from fastload.diagnose.doctor import examine  # experiments and packing, only if asked for

            record, profile = self._busiest(), self._profile
            seen = attributed(profile.seen, record.began, profile.ended, record.at_work())
            self._verdict = examine(self.loader, loop, None, self._seconds, seen)
            ranks = gathered_of(self.loader)  # by now the others have left their loops, too
            if ranks is not None:
                self._verdict = with_ranks(self._verdict, ranks, rank_of(self.loader))
        return self._verdict

    def _busiest(self) -> Record:
        if records := self.records:
            return records[0]
        what = "this loader" if self._loader is not None else "any loader"
        most = max((record.batches for record in self._records.values()), default=0)
        raise StateError(
            f"Too few batches of {what} were asked for inside diagnose(): {most} counted, and at least 2 are "
            f"needed, without the first batch of an epoch and any that no next() follows. Run the training "
            f"loop inside the with block, from its for statement on."
        )


def _with_note(loop: Loop, name: str, value: object) -> Loop:
    return replace(loop, notes={**loop.notes, name: value})


def _folder(path: str) -> str:
    return os.path.join(os.path.abspath(path), "")


_HELD_BY_RECORD = 2  # references: the record's, and getrefcount()'s own

# Folders whose code is not the user's: torch and other packages, the standard library, and fastload.
_LIBRARIES = tuple(
    {
        _folder(sysconfig.get_path("purelib")),
        _folder(sysconfig.get_path("platlib")),
        _folder(sysconfig.get_path("stdlib")),
        _folder(os.path.dirname(sys.modules["torch"].__path__[0])),
        _folder(os.path.dirname(os.path.dirname(__file__))),
    }
)
