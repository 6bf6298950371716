"""One examination: what is measured of a loader, and the arithmetic that predicts what a fix gains."""

from __future__ import annotations

import os
import statistics
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from fastload.diagnose.callables import Function, lanes
from fastload.diagnose.facts import Fix, Loop, Stage
from fastload.diagnose.storage import Storage
from fastload.diagnose.trial import Budget, LoaderUnderTest, Trial
from fastload.errors import FastloadError
from fastload.machine.cpu import cgroup_quota

# ---- Loader and step together -----------------------------------------------------------------------


def together(
    loader_rate: float,
    step_rate: float,
    loader_cpu: float,
    step_cpu: float,
    cpus: float,
    serial: float = 0.0,
) -> float:
    """Return the samples per second of a loop whose loader works ahead while the step runs.

    The slower of the two sets the pace, and together they cannot use more CPU time than there is. The latter
    matters if the step computes on the CPU.

    Args:
        loader_rate, step_rate: samples per second of each alone; ``float("inf")`` if it has nothing to do.
        loader_cpu, step_cpu: CPU seconds per sample.
        cpus: CPUs that both share.
        serial: seconds per sample for which the loader works in the loop's thread, while no step runs.
    """
    busy = loader_cpu + step_cpu
    in_thread = serial + 1 / step_rate
    paced = 1 / in_thread if in_thread > 0 else float("inf")
    return min(loader_rate, paced, cpus / busy if busy > 0 else float("inf"))


# ---- One examination --------------------------------------------------------------------------------

ExaminedT = TypeVar("ExaminedT", bound="Examined")

CROWDED = 0.85  # a process that gets a smaller share of its CPUs than this shares them with others
_AT_WORK = 0.9  # share of the threads' time
LEAST_GAIN = 0.03  # the smallest gain of a fix that is worth mentioning


def digits(rate: float) -> str:
    """Write a rate with three digits."""
    if rate >= 100:
        return f"{rate:.0f}"
    return f"{rate:.3g}"


@dataclass
class Examined:
    """What is known of a loader, and the arithmetic that predicts a fix's gain.

    Args:
        budget: the seconds that may be used.
        folder: for what experiments write; removed afterwards.
        cpus: CPUs that this process may use (affinity mask and quota).
        mask: CPUs of the mask.
        spare: CPUs that it got when it asked for all of them.
        base: the loader as it is, on records in memory.
        loop: the watched loop, or None.
        step: the step alone; None: not known.
    """

    budget: Budget
    folder: Path
    cpus: float
    mask: int
    spare: float
    base: Trial
    loop: Loop | None
    step: Stage | None

    @property
    def blocked(self) -> float:
        """Share of the time of making samples in which nothing runs: waits for storage, locks, a network."""
        return 0.0

    @property
    def step_rate(self) -> float:
        """Samples per second of the step alone; infinite if not known."""
        return self.step.rate if self.step is not None else float("inf")

    @property
    def is_crowded(self) -> bool:
        """Whether other processes use these CPUs."""
        return self.spare < CROWDED * self.cpus

    @property
    def storage_rate(self) -> float:
        """Samples per second that storage lets through."""
        return float("inf")

    @property
    def loader_rate(self) -> float:
        """Samples per second of the loader without a step."""
        return min(self.base.rate, self.storage_rate)

    def whole(self, trial: Trial, storage_rate: float | None = None) -> float:
        """Predict the loop's samples per second with a loader that did ``trial`` on records in memory."""
        stored = self.storage_rate if storage_rate is None else storage_rate
        step_cpu = self.step.cpu if self.step is not None else 0.0
        rate = min(trial.rate, stored)
        cpus = max(self.spare, trial.rate * trial.cpu)
        return together(rate, self.step_rate, trial.cpu, step_cpu, cpus, trial.serial)

    @property
    def now(self) -> float:
        """Samples per second of the loop as it is: watched, else predicted as for the fixes."""
        return self.loop.rate if self.loop is not None else self.whole(self.base)

    def fix(
        self,
        name: str,
        words: str,
        trial: Trial,
        evidence: str,
        price: str = "",
        base: Trial | None = None,
        storage_rate: float | None = None,
    ) -> Fix:
        """Make the Fix with which the loader did ``trial``, and predict its gain.

        The prediction for the loop as it is and the watched rate differ by a few percent, so the gain is the
        ratio of two predictions. If storage limits the loop and the fix removes that, the ratio is to the
        loop's actual rate instead, because storage has bursts.

        Args:
            trial: with the fix, on records in memory.
            base: the loader as it is, which took turns with it; None: :attr:`base`.
            storage_rate: samples per second that storage then lets through; None: as now.
        """
        stored = self.storage_rate if storage_rate is None else storage_rate
        freed = self.storage_rate < self.base.rate and stored >= trial.rate
        if base is not None and trial.with_step and base.with_step and not freed:
            gain = min(trial.with_step, stored) / min(base.with_step, self.storage_rate) - 1
            ratios = _ratios(trial.rounds_with_step, base.rounds_with_step)
            evidence += (
                f" With the step's time behind each batch: {digits(trial.with_step)} instead of "
                f"{digits(base.with_step)}."
            )
        else:
            ratios = _ratios(trial.rounds, base.rounds) if base is not None else ()
            if base is not None:
                trial = _scaled(trial, self.base, base, self.is_crowded)
            reached = min(trial.with_step, stored) if freed and trial.with_step else self.whole(trial, stored)
            gain = reached / (self.now if freed else self.whole(self.base)) - 1
        quiet = self.quiet_rate(trial)
        return self.predicted(name, words, gain, evidence, price, _range(gain, ratios), quiet)

    def predicted(
        self,
        name: str,
        words: str,
        gain: float,
        evidence: str,
        price: str = "",
        within: tuple[float, float] = (0.0, 0.0),
        quiet: float = 0.0,
    ) -> Fix:
        """Make a Fix with a gain that is known; the step's rate limits it and its range."""
        most = max(0.0, self.step_rate / self.now - 1) if self.now > 0 else gain
        low, high = min(within[0], most), min(within[1], most)
        gain = min(gain, most)
        return Fix(name, words, self.now * (1 + gain), gain, evidence, price, low, high, quiet)

    def quiet_rate(self, trial: Trial) -> float:
        """Predict the loop's rate if nothing else used the CPUs; 0 if nothing does, or it cannot be known.

        A sample then takes its CPU time and its waits for storage or locks, and a step its time without the
        waits for a CPU.
        """
        if not self.is_crowded or trial.cpu <= 0 or not trial.threads:
            return 0.0
        seconds = trial.cpu / (1 - min(0.95, self.blocked))
        loader = min(trial.threads / seconds, self.cpus / trial.cpu)
        step, step_cpu = float("inf"), 0.0
        if self.step is not None:
            step = 1 / max(1 / self.step.rate - self.step.delay, 1e-9)
            step_cpu = self.step.cpu
        serial = seconds if trial.serial > 0 else 0.0
        return together(loader, step, trial.cpu, step_cpu, self.cpus, serial)


def proposals(registry: Iterable[Callable[[ExaminedT], Iterator[Fix]]], case: ExaminedT) -> list[Fix]:
    """Collect all proposed fixes. One that this machine cannot try (no room in memory or on disk, a missing
    store) is noted in the budget, and the others are still tried."""
    fixes: list[Fix] = []
    for propose in registry:
        try:
            for fix in propose(case):
                fixes.append(fix)
        except (FastloadError, OSError, MemoryError) as error:
            case.budget.failed.append(
                (propose.__name__.replace("_", " "), f"{type(error).__name__}: {error}")
            )
    return fixes


def _ratios(trials: Sequence[float], bases: Sequence[float]) -> tuple[float, ...]:
    """Return the ratios of runs that took turns, sorted."""
    return tuple(sorted(one / other for one, other in zip(trials, bases, strict=False) if other > 0))


def _range(gain: float, ratios: Sequence[float]) -> tuple[float, float]:
    """Return the range of a gain by how much the runs differed; (0, 0) without runs."""
    if not ratios:
        return 0.0, 0.0
    middle = statistics.median(ratios)
    return (1 + gain) * ratios[0] / middle - 1, (1 + gain) * ratios[-1] / middle - 1


def _scaled(trial: Trial, base: Trial, turned: Trial, crowded: bool) -> Trial:
    """Scale ``trial``, which took turns with ``turned``, to what it would have been beside ``base``.

    If other processes take CPUs now and then, equally many threads that were always busy are compared by
    their CPU time, which the others do not affect.
    """
    dearer = trial.cpu / turned.cpu if turned.cpu > 0 else 1.0
    faster = trial.rate / turned.rate
    at_work = min(trial.busy, turned.busy) >= _AT_WORK and trial.threads == turned.threads
    if crowded and at_work and dearer > 0:
        faster = 1 / dearer
    rate = base.rate * faster
    cpu = base.cpu * dearer if turned.cpu > 0 else trial.cpu
    return replace(trial, rate=rate, cpu=cpu, serial=trial.serial * trial.rate / rate)


@dataclass
class Examination(Examined):
    """The examination of a loader of packed data.

    Args:
        subject: the loader.
        memory_folder: like ``folder``, on a file system in memory.
        functions: its functions that run in Python, the slowest first.
        storage: how fast it is; None: not measured.
        cold: share of the records that come from storage.
    """

    subject: LoaderUnderTest
    memory_folder: Path
    functions: tuple[Function, ...]
    storage: Storage | None
    cold: float

    @property
    def storage_rate(self) -> float:
        """Samples per second that storage lets through, for the share that comes from there."""
        if self.storage is None or self.cold <= 0:
            return float("inf")
        return self.storage.random / self.cold

    def python_rate(self, collates: bool) -> float:
        """Return the samples per second that the collate function, or the other Python ones, let through."""
        seconds = sum(each.seconds for each in self.functions if each.collates == collates)
        return lanes(self.subject) / seconds if seconds > 0 else float("inf")


# ---- CPUs that this process gets --------------------------------------------------------------------

_WORK = bytes(1 << 20)  # its checksum is computed without Python's lock


def cpus_here(budget: Budget) -> tuple[float, int, float]:
    """Return the CPUs that this process may use, those of its mask, and those that it gets."""
    mask, quota = len(os.sched_getaffinity(0)), cgroup_quota()
    cpus = float(mask) if quota is None else min(float(mask), quota)
    return cpus, mask, spare_cpus(cpus, budget.run / 2)


def spare_cpus(cpus: float, seconds: float) -> float:
    """Measure how many CPUs ``cpus`` busy threads get; at most ``cpus``."""
    got: list[float] = []

    def work() -> None:
        began, cpu = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds:
            zlib.crc32(_WORK)
        got.append((time.thread_time() - cpu) / (time.perf_counter() - began))

    threads = [threading.Thread(target=work) for _ in range(max(1, round(cpus)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return min(cpus, sum(got))
