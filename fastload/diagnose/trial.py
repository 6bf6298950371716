"""Short runs of loaders without a step: what each of them reaches, measured in turns."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload.backends.callables import InlineStage
from fastload.backends.stats import batch_length
from fastload.diagnose.facts import Stage
from fastload.diagnose.paced import PacedStep

__all__ = ["Budget", "Runner", "Trial", "cpu_seconds", "in_turns", "quiet", "starting_seconds"]

_ROUNDS = 3  # of each loader: the median of fewer follows a disturbance
_WARM_SHARE = 0.25  # of a run, before it is measured
_LEAST_BATCHES = 3
_NEAR = 4.0  # times: a step so much faster or slower than the loader leaves it its own rate
_STEPS = 12  # in a run: fewer say nothing, and longer runs would take the seconds of other trials


@dataclass(frozen=True)
class Trial:
    """What a loader reached when its batches were taken as fast as they came.

    Args:
        rate: samples per second.
        cpu: CPU seconds a sample, of this process and its workers.
        busy: share of the decoding threads' time in which they had work; 0 where there are none.
        threads: decoding threads.
        stages: seconds a sample of one thread, by stage ("shard", "decode", "transform").
        gaps: seconds from batch to batch.
        samples: that were counted.
        serial: seconds a sample in which the thread that asks for batches made them itself.
        with_step: samples per second with the step's time behind each batch; 0: not tried.
    """

    rate: float
    cpu: float
    busy: float = 0.0
    threads: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    gaps: tuple[float, ...] = ()
    samples: int = 0
    serial: float = 0.0
    with_step: float = 0.0

    @property
    def batch(self) -> float:
        """Samples a batch."""
        return self.samples / max(1, len(self.gaps))

    @property
    def seconds(self) -> float:
        """A sample's seconds in one thread."""
        return sum(self.stages.values())


class Budget:
    """The seconds that an examination may take.

    Args:
        seconds: of all of it.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()
        #: What there was no time for, by name.
        self.left_out: list[str] = []
        #: What could not be tried on this machine: name, and why.
        self.failed: list[tuple[str, str]] = []

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.monotonic() - self._began)

    @property
    def run(self) -> float:
        """Seconds of one run."""
        return min(1.0, max(0.15, self.seconds / 60))

    def allows(self, runs: float, name: str) -> bool:
        """Whether there is time for so many runs; ``name`` is noted where there is not."""
        if self.left > runs * self.run * (1 + _WARM_SHARE):
            return True
        self.left_out.append(name)
        return False


class Runner:
    """A loader whose batches are taken, epoch after epoch.

    Args:
        loader: any DataLoader.
        batch_size: of its batches, where they do not say.
    """

    def __init__(self, loader: Any, batch_size: int) -> None:
        self._loader = loader
        self._batch_size = batch_size
        self._batches = self._endless()

    def _endless(self) -> Iterator[int]:
        while True:
            empty = True
            for batch in self._loader:
                empty = False
                yield batch_length(batch, self._batch_size)
            if empty:
                raise ValueError("The loader gives no batches.")

    def run(self, seconds: float, step: Callable[[int], None] = lambda samples: None) -> Trial:
        """Take batches for so long, after a warm-up that uses up what lies ready.

        Args:
            seconds: of the run.
            step: gets the number of samples of each batch.
        """
        ahead = getattr(self._loader, "prefetch_factor", None) or 2
        workers = 1 if self._of_threads() else max(1, getattr(self._loader, "num_workers", 1))
        begin, taken = time.perf_counter(), 0
        while taken <= ahead * workers or time.perf_counter() - begin < _WARM_SHARE * seconds:
            step(next(self._batches))
            taken += 1
        before, cpu, blocked, start = self._clocks(), cpu_seconds(), self._blocked(), time.perf_counter()
        gaps: list[float] = []
        samples, end = 0, start
        while len(gaps) < _LEAST_BATCHES or end - start < seconds:
            size = next(self._batches)
            samples += size
            step(size)
            last, end = end, time.perf_counter()
            gaps.append(end - last)
        cpu = cpu_seconds() - cpu
        found = self._trial(before, self._clocks(), samples, end - start, cpu, gaps)
        if blocked is None:
            return found
        return replace(found, serial=max(0.0, end - start - ((self._blocked() or 0.0) - blocked)) / samples)

    def _blocked(self) -> float | None:
        """Seconds in which the thread that asks for batches waited for others; None: these do it all."""
        if not self._of_threads():
            return 0.0 if getattr(self._loader, "num_workers", 1) == 0 else None
        stages = [getattr(backend, "_stage", None) for backend in self._loader._epochs.lanes.backends]
        inline = [stage for stage in stages if isinstance(stage, InlineStage)]
        return sum(stage.waited for stage in inline) if inline else None

    def _of_threads(self) -> bool:
        return hasattr(self._loader, "explain")

    def _clocks(self) -> dict[str, Any]:
        return self._loader.stats() if self._of_threads() else {}

    @staticmethod
    def _trial(
        before: dict[str, Any],
        after: dict[str, Any],
        samples: int,
        seconds: float,
        cpu: float,
        gaps: list[float],
    ) -> Trial:
        rate = samples / seconds
        if not after or not after["threads"]:
            return Trial(rate, cpu / samples, gaps=tuple(gaps), samples=samples)
        stages = {}
        for name in ("shard", "decode", "transform"):
            then, now = before["stages"][name], after["stages"][name]
            stages[name] = (now["seconds"] - then["seconds"]) / max(1, now["count"] - then["count"])
        idle = after["stages"]["prefetch"]["seconds"] - before["stages"]["prefetch"]["seconds"]
        threads = after["threads"]
        busy = min(1.0, max(0.0, 1 - idle / (threads * seconds)))
        return Trial(rate, cpu / samples, busy, threads, stages, tuple(gaps), samples)

    def close(self) -> None:
        """End its threads or workers."""
        self._batches.close()  # type: ignore[attr-defined]
        if hasattr(self._loader, "close"):
            self._loader.close()


def in_turns(
    makers: Mapping[str, Callable[[], Any]],
    batch_size: int,
    seconds: float,
    rounds: int = _ROUNDS,
    step: Stage | None = None,
    pace: Callable[[int], None] = lambda samples: None,
) -> dict[str, Trial]:
    """The median run of each loader; they take turns, so that a disturbance is everybody's.

    Args:
        makers: of the loaders, by name.
        batch_size: of those whose batches do not say.
        seconds: of each run.
        rounds: of turns.
        step: the loaders are tried with its time behind each batch, too, where it is about as fast as one of
            them: then they hold each other up, and no arithmetic says how much.
        pace: follows each batch of all runs, and gets its samples.
    """
    found: dict[str, list[Trial]] = {name: [] for name in makers}
    together: dict[str, list[float]] = {name: [] for name in makers}
    with quiet():
        runners: dict[str, Runner] = {}
        try:
            for name, make in makers.items():
                runners[name] = Runner(make(), batch_size)
            for _ in range(rounds):
                for name, runner in runners.items():
                    found[name].append(runner.run(seconds, pace))
            if step is not None and _are_near(step, [_median(trials) for trials in found.values()], seconds):
                paced = PacedStep(step)
                for _ in range(rounds):
                    for name, runner in runners.items():
                        together[name].append(runner.run(seconds, paced).rate)
        finally:
            for runner in runners.values():
                with closing(runner):
                    pass
    return {
        name: replace(_median(trials), with_step=statistics.median(together[name] or [0.0]))
        for name, trials in found.items()
    }


def _are_near(step: Stage, trials: Sequence[Trial], seconds: float) -> bool:
    """Whether a step is about as fast as one of the loaders, and a run has several of them."""
    near = any(trial.rate / _NEAR < step.rate < trial.rate * _NEAR for trial in trials)
    return near and all(_STEPS * trial.batch <= step.rate * seconds for trial in trials)


def starting_seconds(make: Callable[[], Any]) -> float:
    """Seconds from a pass's beginning to its first batch, the second time, less those of a later batch."""
    found = []
    with quiet():
        loader = make()
        for _ in range(2):
            began = time.perf_counter()
            iterator = iter(loader)
            next(iterator)
            first = time.perf_counter()
            next(iterator, None)
            found.append(max(0.0, 2 * first - began - time.perf_counter()))
            del iterator
    return found[-1]


def _median(trials: list[Trial]) -> Trial:
    middle = statistics.median_low([trial.rate for trial in trials])
    return next(trial for trial in trials if trial.rate == middle)


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings: the user has met those of the loader already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def cpu_seconds() -> float:
    """CPU seconds of this process, of its children that have ended, and of those that run."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system + _of_children(os.getpid())


def _of_children(process: int) -> float:
    total = 0.0
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            total += _of_process(int(child)) + _of_children(int(child))
    return total


def _of_process(process: int) -> float:
    try:
        numbers = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # has just ended
    return sum(map(int, numbers[11:15])) / os.sysconf("SC_CLK_TCK")
