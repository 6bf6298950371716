"""One scenario of bench_doctor.py in a process of its own: the doctor's answer, and what its fix gives.

python benchmarks/child.py doctor.run "one thread" --images FOLDER --work FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from doctor.scenarios import SCENARIOS, Place, Scenario
from doctor.training import TRAINING
from harness.rounds import skip
from harness.throttle import NoThrottle

from fastload import diagnose
from fastload.backends.stats import batch_length
from fastload.diagnose.doctor import examine
from fastload.diagnose.facts import Stage, Verdict
from fastload.diagnose.feed import copied

ALL: Sequence[Scenario] = (*SCENARIOS, *TRAINING)
SMALL = "resnet8"  # what a CPU trains


class Step:
    """A training step: it waits as for a GPU, and computes on the CPU besides if told to."""

    alone_steps = 10

    def __init__(self, rate: float, compute: float) -> None:
        self._seconds = 1 / rate
        self._compute = compute

    def __call__(self, batch: Any) -> None:
        """One step."""
        samples = batch_length(batch, 1)
        end = time.thread_time() + self._compute * samples
        begin = time.perf_counter()
        while time.thread_time() < end:
            pass
        rest = self._seconds * samples - (time.perf_counter() - begin)
        if rest > 0:
            time.sleep(rest)

    def finish(self) -> None:
        """Wait until nothing of it goes on."""

    def alone(self, batch: Any) -> Stage:
        """Its capacity, measured on a batch of the loader's."""
        batch = copied(batch)
        self(batch)
        self.finish()
        begin, cpu = time.perf_counter(), time.thread_time()
        for _ in range(self.alone_steps):
            self(batch)
        self.finish()
        seconds, count = time.perf_counter() - begin, self.alone_steps * batch_length(batch, 1)
        rate, cpu = count / seconds, (time.thread_time() - cpu) / count
        return Stage("step", rate, cpu, f"{self.alone_steps} steps on a batch that was there already.")


class TrainingStep(Step):
    """A network that is trained on a device, on a GPU with bf16."""

    def __init__(self, model: str, device: str) -> None:
        from starvation.training_step import Trainer

        self.alone_steps = 3 if device == "cpu" else 40
        self._trainer = Trainer(model, device, amp="off" if device == "cpu" else "bf16")

    def __call__(self, batch: Any) -> None:
        """One step."""
        self._trainer.step(*self._trainer.place(*batch))

    def finish(self) -> None:
        """Wait for the device."""
        from starvation.training_step import synchronize

        synchronize(self._trainer.device)


def step_of(scenario: Scenario, place: Place) -> Step:
    """A scenario's step. A network has had some batches, so that cuDNN has chosen its algorithms."""
    if not scenario.model:
        return Step(scenario.step_rate, scenario.compute)
    step = TrainingStep(SMALL if place.device == "cpu" else scenario.model, place.device)
    loop = Loop(scenario.before(place), step)
    loop.run(0.0, 0.5)
    loop.close()
    return step


class Loop:
    """A loader and a step."""

    def __init__(self, loader: Any, step: Step) -> None:
        self.loader = loader
        self.batch: Any = None
        self._step = step
        self._batches = self._endless()

    def _endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def run(self, seconds: float, warm_up: float) -> float:
        """Samples a second, after a warm-up."""
        begin = time.perf_counter()
        while time.perf_counter() - begin < warm_up:
            self.batch = next(self._batches)
            self._step(self.batch)
        self._step.finish()
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            self.batch = next(self._batches)
            self._step(self.batch)
            count += batch_length(self.batch, 1)
        self._step.finish()
        return count / (time.perf_counter() - begin)

    def close(self) -> None:
        """End its threads."""
        self._batches.close()  # type: ignore[attr-defined]
        if hasattr(self.loader, "close"):
            self.loader.close()


def _examined(scenario: Scenario, place: Place, step: Step, seconds: float, limit: float) -> Verdict:
    with ExitStack() as stack:
        stack.enter_context(scenario.trouble(place))
        scenario.prepare(place)
        loop = Loop(scenario.before(place), step)
        with diagnose(loop.loader) as found:
            loop.run(seconds, seconds / 4)
        verdict = examine(loop.loader, found.loop, step.alone(loop.batch), seconds=limit)
        loop.close()
    return verdict


def _reached(
    scenario: Scenario, place: Place, step: Step, seconds: float, rounds: int
) -> tuple[list[float], list[float]]:
    """Rates as it is and with the fix, in turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for number, (make, trouble) in enumerate(
            [
                (scenario.before, scenario.trouble),
                (scenario.after, scenario.mended or scenario.trouble),
            ]
        ):
            if make is None:
                continue
            with trouble(place):
                if number == 0 or scenario.fix == "block":
                    scenario.prepare(place)
                loop = Loop(make(place), step)
                found[number].append(loop.run(seconds, max(scenario.warm_up, seconds / 4)))
                loop.close()
    return found


def _named(verdict: Verdict, name: str) -> float:
    return next((fix.rate for fix in verdict.fixes if fix.name == name), 0.0)


def measured(scenario: Scenario, place: Place, seconds: float, rounds: int, limit: float) -> dict[str, Any]:
    """Everything about one scenario."""
    step = step_of(scenario, place)
    began = time.monotonic()
    verdict = _examined(scenario, place, step, seconds, limit)
    took = time.monotonic() - began
    before, after = _reached(scenario, place, step, seconds, rounds)
    return {
        "name": scenario.name,
        "cause": verdict.limit,
        "right": verdict.limit in scenario.limits,
        "fix": scenario.fix,
        "fixes": {fix.name: fix.rate for fix in verdict.fixes},
        "watched": verdict.rate,
        "predicted": _named(verdict, scenario.fix),
        "before": statistics.median(before),
        "reached": statistics.median(after) if after else 0.0,
        "before_rates": before,
        "reached_rates": after,
        "seconds": took,
        "words": str(verdict),
        "verbose": verdict.verbose,
    }


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", choices=[scenario.name for scenario in ALL])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that the doctor may take")
    parser.add_argument("--device", default="cpu", help="that trains, in the scenarios with a network")
    given = parser.parse_args()
    scenario = next(one for one in ALL if one.name == given.name)
    try:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as cache:
            os.environ["FASTLOAD_CACHE_DIR"] = cache
            place = Place(given.images, given.work, device=given.device)
            row = measured(scenario, place, given.seconds, given.rounds, given.limit)
    except (NoThrottle, ImportError) as error:
        skip(str(error))
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
