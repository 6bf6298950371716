"""The Python functions of a loader, timed one by one: the transform's callables and the collate function."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastload.backends.batch_form import python_workers
from fastload.dataset.views import given_transform
from fastload.diagnose.trial import LoaderUnderTest, Runner, quiet
from fastload.diagnose.usage import cpu_delay
from fastload.transforms import Compose
from fastload.transforms.compiler import flattened, name_of

_COUNTING = 0.1  # seconds for which another thread counts beside a function


@dataclass(frozen=True)
class Function:
    """A Python function of a loader, and what it takes.

    Args:
        name: its name in ``explain()``, and where it is defined.
        given: the function itself.
        collates: whether it gets whole batches.
        seconds: per sample.
        cpu: CPU seconds per sample, in its own thread.
        lock: share of its time in which it holds Python's lock; None: could not be measured.
        keep: what would keep its work in the core; "": nothing is known to.
    """

    name: str
    given: Any
    collates: bool
    seconds: float
    cpu: float
    lock: float | None
    keep: str = ""


class _Timed:
    """A function that times its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function  # shows its parameters
        self.seconds = self.cpu = 0.0
        self.calls = self.samples = 0
        self.sample: Any = None

    def __call__(self, sample: Any, **named: Any) -> Any:
        self.sample = sample
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            return self.__wrapped__(sample, **named)
        finally:
            self.seconds += time.perf_counter() - began
            self.cpu += time.thread_time() - cpu
            self.calls += 1
            self.samples += len(sample) if isinstance(sample, list) else 1


def lanes(subject: LoaderUnderTest) -> int:
    """Return how many samples are in Python at once: as many as workers, or 1 for the consumer's thread."""
    return max(1, python_workers(subject.plan, subject.options, subject.loader.threads))


def python_functions(subject: LoaderUnderTest, seconds: float) -> tuple[Function, ...]:
    """Time the loader's Python functions, and return them, the slowest first."""
    plan, collate = subject.plan, subject.arguments.collate_fn
    if not plan.tail and collate is None:
        return ()
    items = list(flattened(given_transform(subject.dataset, subject.arguments.transform)))
    timed = [_Timed(item) if any(item is other for other in plan.tail) else item for item in items]
    collated = _Timed(collate) if collate is not None else None
    changes: dict[str, Any] = {"num_workers": 0, "collate_fn": collated}
    if plan.tail and any(isinstance(item, _Timed) for item in timed):
        changes |= with_transform(subject, Compose(timed))
    with quiet():
        runner = Runner(subject.make(**changes), subject.trial_batch)
        try:
            runner.run(seconds)
        finally:
            runner.close()
    kept = {step.name: step.keep for step in plan.steps if not step.native}
    clocks = [(item, False) for item in timed if isinstance(item, _Timed)]
    clocks += [(collated, True)] if collated is not None else []
    functions = [_function(clock, collates, kept) for clock, collates in clocks if clock.calls]
    return tuple(sorted(functions, key=lambda function: -function.seconds))


def without(subject: LoaderUnderTest, function: Function) -> dict[str, Any]:
    """Return the changes of a loader's arguments that leave a function out."""
    if function.collates:
        return {"collate_fn": None}
    items = flattened(given_transform(subject.dataset, subject.arguments.transform))
    return with_transform(subject, Compose([item for item in items if item is not function.given]))


def with_transform(subject: LoaderUnderTest, transform: Any) -> dict[str, Any]:
    """Return the changes of a loader's arguments that put in another transform."""
    if getattr(subject.dataset, "transform", None) is None:
        return {"transform": transform}
    import copy

    changed = copy.copy(subject.dataset)
    changed.__dict__["transform"] = transform
    return {"dataset": changed}


def _function(timed: _Timed, collates: bool, kept: dict[str, str]) -> Function:
    function, samples = timed.__wrapped__, max(1, timed.samples)
    name = name_of(function)
    return Function(
        f"{name}{_where(function)}",
        function,
        collates,
        timed.seconds / samples,
        timed.cpu / samples,
        None if collates else _lock_share(function, timed.sample),
        kept.get(name, ""),
    )


def _where(function: Any) -> str:
    called = function if hasattr(function, "__code__") else type(function).__dict__.get("__call__")
    code = getattr(called, "__code__", None)
    return f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})" if code is not None else ""


def _lock_share(function: Callable[[Any], Any], sample: Any) -> float | None:
    """Measure how much another thread's Python is held up while a function runs; None if the function fails.

    A thread that never releases the lock by itself still hands it over after each time slice, so the other
    thread gets half of the time: that is 1. The other's waits for a CPU do not count.
    """
    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                function(sample)
        except BaseException as error:
            failed.append(error)

    former = sys.getswitchinterval()
    sys.setswitchinterval(0.001)
    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
        ran, waited = _counted()
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(former)
    if failed:
        return None
    return min(1.0, 2 * waited / max(ran + waited, 1e-9))


def _counted() -> tuple[float, float]:
    """Return the seconds in which this thread ran, and in which it waited for Python's lock."""
    ran, delayed, began = time.thread_time(), cpu_delay(), time.perf_counter()
    while (wall := time.perf_counter() - began) < _COUNTING:
        pass
    ran = time.thread_time() - ran
    return ran, max(0.0, wall - ran - (cpu_delay() - delayed))
