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

_COUNTING = 0.1  # seconds in which another thread counts beside a function


@dataclass(frozen=True)
class Function:
    """One function.

    Args:
        name: as ``explain()`` names it, and where it is defined.
        given: itself.
        collates: whether it gets whole batches.
        seconds: a sample.
        cpu: of these of this thread's CPU time.
        lock: share of its time in which it keeps Python's lock; None: could not be measured.
        keep: what would keep it in the core, where anything is known to.
    """

    name: str
    given: Any
    collates: bool
    seconds: float
    cpu: float
    lock: float | None
    keep: str = ""


class _Timed:
    """A function with clocks."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function  # so that its parameters are seen
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
    """How many samples are in Python at once: worker processes, or the consumer's thread."""
    arranged = subject.loader._loader_plan
    return max(1, python_workers(subject.plan, subject.options, arranged.threads))


def python_functions(subject: LoaderUnderTest, seconds: float) -> tuple[Function, ...]:
    """All of them, the slowest first; none where the core does everything."""
    plan, collate = subject.plan, subject.arguments["collate_fn"]
    if not plan.tail and collate is None:
        return ()
    items = list(flattened(given_transform(subject.dataset, subject.arguments["transform"])))
    timed = [_Timed(one) if any(one is other for other in plan.tail) else one for one in items]
    collated = _Timed(collate) if collate is not None else None
    changes: dict[str, Any] = {"num_workers": 0, "collate_fn": collated}
    if plan.tail and any(isinstance(one, _Timed) for one in timed):
        changes |= _transformed(subject, timed)
    with quiet():
        runner = Runner(subject.make(**changes), subject.trial_batch)
        try:
            runner.run(seconds)
        finally:
            runner.close()
    kept = {step.name: step.keep for step in plan.steps if not step.native}
    found = [(one, False) for one in timed if isinstance(one, _Timed)]
    found += [(collated, True)] if collated is not None else []
    functions = [_function(one, collates, kept) for one, collates in found if one.calls]
    return tuple(sorted(functions, key=lambda function: -function.seconds))


def without(subject: LoaderUnderTest, function: Function) -> dict[str, Any]:
    """The changes of a loader's arguments that leave a function out."""
    if function.collates:
        return {"collate_fn": None}
    items = flattened(given_transform(subject.dataset, subject.arguments["transform"]))
    return _transformed(subject, [one for one in items if one is not function.given])


def _transformed(subject: LoaderUnderTest, items: list[Any]) -> dict[str, Any]:
    if getattr(subject.dataset, "transform", None) is None:
        return {"transform": Compose(items)}
    import copy

    changed = copy.copy(subject.dataset)
    changed.__dict__["transform"] = Compose(items)
    return {"dataset": changed}


def _function(one: _Timed, collates: bool, kept: dict[str, str]) -> Function:
    given, samples = one.__wrapped__, max(1, one.samples)
    name = name_of(given)
    lock = None if collates else _lock_share(given, one.sample)
    return Function(
        f"{name}{_where(given)}",
        given,
        collates,
        one.seconds / samples,
        one.cpu / samples,
        lock,
        kept.get(name, ""),
    )


def _where(function: Any) -> str:
    called = function if hasattr(function, "__code__") else type(function).__dict__.get("__call__")
    code = getattr(called, "__code__", None)
    return f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})" if code is not None else ""


def _lock_share(function: Callable[[Any], Any], sample: Any) -> float | None:
    """How much another thread's Python is held up while a function runs: 1 where it gets half of the time.

    Of a time slice each the thread with the lock gives way when it is asked, so who never gives it up
    otherwise leaves half of the time to the other. What the other waits for a CPU is not the lock's.
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
    """Seconds in which this thread ran, and in which it waited for Python's lock, while it counted."""
    ran, delayed, began = time.thread_time(), cpu_delay(), time.perf_counter()
    while (wall := time.perf_counter() - began) < _COUNTING:
        pass
    ran = time.thread_time() - ran
    return ran, max(0.0, wall - ran - (cpu_delay() - delayed))
