"""Trials: loaders in turns, alone and with a step's time behind each batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fastload.diagnose.facts import Stage
from fastload.diagnose.trial import PacedStep, Runner, in_turns

SECONDS = 0.02
RUN = 0.24  # a dozen steps


class Slow:
    """A loader whose batches of four take so long in the thread that asks for them."""

    num_workers = 0

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(10):
            time.sleep(self._seconds)
            yield torch.zeros(4, 1), torch.zeros(4)


def test_a_paced_step_computes_and_waits() -> None:
    step = PacedStep(Stage("step", rate=100.0, cpu=0.004))
    began, cpu = time.perf_counter(), time.thread_time()
    step(5)
    assert time.perf_counter() - began >= 5 / 100
    assert time.thread_time() - cpu >= 5 * 0.004


def test_no_more_than_its_whole_time_is_computed() -> None:
    step = PacedStep(Stage("step", rate=100.0, cpu=1.0))  # many threads at once
    cpu = time.thread_time()
    step(1)
    assert 0.01 <= time.thread_time() - cpu < 1.0


def test_every_batch_is_followed_by_a_step() -> None:
    taken: list[int] = []
    trial = Runner(Slow(0.0), 1).run(0.0, taken.append)
    assert set(taken) == {4}
    assert sum(taken) > trial.samples == 4 * len(trial.gaps)


@pytest.mark.parametrize(
    ("rate", "run", "tried"),
    [
        (0.5, 1.0, True),
        (0.5, 0.1, False),  # five steps
        (2.0, 1.0, True),
        (100.0, 1.0, False),
        (0.01, 100.0, False),
        (None, 1.0, False),
    ],
)
def test_a_step_that_is_about_as_fast_is_tried_with_the_loaders(
    rate: float | None, run: float, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast, slow = 400.0, 200.0  # what the runs are said to reach

    def reached(self: Runner, seconds: float, step: Any = None, former: Any = Runner.run) -> Any:
        loader: Any = self._loader
        return replace(
            former(self, 0.0),
            rate=(50.0 if isinstance(step, PacedStep) else 1.0) * (fast if loader is first else slow),
        )

    first, second = Slow(0.0), Slow(0.0)
    monkeypatch.setattr(Runner, "run", reached)
    step = None if rate is None else Stage("step", rate * fast)
    found = in_turns({"first": lambda: first, "second": lambda: second}, 4, run, step=step)
    assert (found["first"].rate, found["second"].rate) == (fast, slow)
    expected = (50 * fast, 50 * slow) if tried else (0.0, 0.0)
    assert (found["first"].with_step, found["second"].with_step) == expected


def test_a_pace_follows_the_batches_of_all_runs() -> None:
    taken: list[int] = []
    found = in_turns({"one": lambda: Slow(0.0)}, 4, 0.0, rounds=2, pace=taken.append)["one"]
    assert set(taken) == {4}
    assert sum(taken) >= 2 * found.samples


def test_a_loader_and_a_step_in_one_thread_take_the_sum_of_their_times() -> None:
    step = Stage("step", 4 / SECONDS)
    found = in_turns({"one": lambda: Slow(SECONDS)}, 4, RUN, rounds=1, step=step)["one"]
    assert 0 < found.with_step <= 4 / (2 * SECONDS)
