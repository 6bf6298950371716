"""One examination: the loader, what was measured of it, and the arithmetic that fixes are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastload.diagnose.facts import Fix, Loop, Stage
from fastload.diagnose.model import together
from fastload.diagnose.python_part import Function, lanes
from fastload.diagnose.storage import Storage
from fastload.diagnose.subject import Subject
from fastload.diagnose.trial import Budget, Trial

__all__ = ["Case", "shown"]

LEAST_GAIN = 0.03  # of a fix that is worth saying


def shown(rate: float) -> str:
    """A rate as it is written: three digits."""
    if rate >= 100:
        return f"{rate:.0f}"
    return f"{rate:.3g}"


@dataclass
class Case:
    """What the fixes know.

    Args:
        subject: the loader.
        budget: of seconds.
        folder: for what experiments write; removed afterwards.
        memory_folder: the same on a file system in memory.
        cpus: that this process may use.
        base: the loader as it is, on records in memory.
        functions: its functions that run in Python, the slowest first.
        storage: what it gives; None: not measured.
        cold: share of the records that come from storage.
        loop: that was watched, or None.
        step: alone, or None: not known.
    """

    subject: Subject
    budget: Budget
    folder: Path
    memory_folder: Path
    cpus: float
    base: Trial
    functions: tuple[Function, ...]
    storage: Storage | None
    cold: float
    loop: Loop | None
    step: Stage | None

    @property
    def step_rate(self) -> float:
        """Samples a second of the step alone; infinite where it is not known."""
        return self.step.rate if self.step is not None else float("inf")

    @property
    def storage_rate(self) -> float:
        """Samples a second that storage lets through, for the share that comes from there."""
        if self.storage is None or self.cold <= 0:
            return float("inf")
        return self.storage.random / self.cold

    def python_rate(self, collates: bool) -> float:
        """Samples a second that the Python functions let through: the collate function, or the others."""
        seconds = sum(one.seconds for one in self.functions if one.collates == collates)
        return lanes(self.subject) / seconds if seconds > 0 else float("inf")

    @property
    def loader_rate(self) -> float:
        """Samples a second of the loader without a step."""
        return min(self.base.rate, self.storage_rate)

    def whole(self, rate: float, cpu: float, storage_rate: float | None = None) -> float:
        """Samples a second of the loop, with a loader that reaches ``rate`` on records in memory."""
        stored = self.storage_rate if storage_rate is None else storage_rate
        step_cpu = self.step.cpu if self.step is not None else 0.0
        return together(min(rate, stored), self.step_rate, cpu, step_cpu, self.cpus)

    @property
    def now(self) -> float:
        """Samples a second of the loop as it is: as watched, else by the same arithmetic as the fixes."""
        return self.loop.rate if self.loop is not None else self._modelled

    @property
    def _modelled(self) -> float:
        return self.whole(self.base.rate, self.base.cpu)

    def fix(
        self,
        name: str,
        words: str,
        rate: float,
        cpu: float,
        evidence: str,
        price: str = "",
        storage_rate: float | None = None,
    ) -> Fix:
        """A fix by which the loader would reach ``rate`` on records in memory, at ``cpu`` seconds a sample.

        What was watched and what the arithmetic says of it differ by a few percent, so its answer is taken
        relative to that for the loop as it is.
        """
        gain = self.whole(rate, cpu, storage_rate) / self._modelled - 1
        return Fix(name, words, min(self.now * (1 + gain), self.step_rate), gain, evidence, price)

    def fix_of(
        self,
        name: str,
        words: str,
        base: Trial,
        trial: Trial,
        evidence: str,
        price: str = "",
        storage_rate: float | None = None,
    ) -> Fix:
        """The same of two trials that took turns: the loader as it is, and with the fix."""
        rate = self.base.rate * trial.rate / base.rate
        cpu = self.base.cpu * trial.cpu / base.cpu if base.cpu > 0 else trial.cpu
        return self.fix(name, words, rate, cpu, evidence, price, storage_rate)
