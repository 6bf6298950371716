"""A loop in phases: watched, fed with a batch that is there already, left."""

from __future__ import annotations

import contextlib
from collections import namedtuple
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from watched_loops import FakeClock, FakeMeter, Slow

from fastload.diagnose.feed import Feed, copied
from fastload.diagnose.listening import listen, stop_listening
from fastload.diagnose.script_child import Limits, Phases, Stopped
from fastload.diagnose.usage import Meter
from fastload.diagnose.watch import Diagnosis

LIMITS = Limits(batches=6, seconds=5, most=40, fed=4, fed_seconds=3, fed_most=12, rest=6, patience=100)


class Script:
    """Runs loops under :class:`Phases` on a clock of its own."""

    def __init__(self, stops: bool = True) -> None:
        self.clock = FakeClock()
        self.meter = FakeMeter(self.clock)
        self.said: list[str] = []
        self.enough: list[bool] = []  # whether the loop had not been fed yet
        watching = Diagnosis(None, meter=cast(Meter, self.meter), clock=self.clock, warm_up=1)
        self.phases = Phases(
            LIMITS,
            lambda: self.said.append("began"),
            lambda: self.said.append("watched"),
            stops=stops,
            watching=watching,
            clock=self.clock,
            sleep=self.clock.sleep,
            enough=lambda: self.enough.append(self.phases.step is None),
        )

    def loader(self, samples: int) -> DataLoader[Any]:
        return DataLoader(Slow(samples, self.clock), batch_size=4)

    def stopped(self, loader: DataLoader[Any], step: float) -> int:
        """Steps of ``step`` seconds until the loop is left."""
        steps = 0
        try:
            for _ in loader:
                self.clock.sleep(step)
                steps += 1
        except Stopped:
            return steps
        raise AssertionError("The loop ended by itself.")

    def __enter__(self) -> Script:
        listen(self.phases)
        return self

    def __exit__(self, *exception: object) -> None:
        stop_listening(self.phases)


def test_a_loop_is_watched_fed_and_left() -> None:
    batches: list[list[int]] = []
    left = False
    with Script() as script:
        script.meter.rest_from = script.clock.now
        try:
            for _, labels in script.loader(400):
                batches.append(labels.tolist())
                script.clock.sleep(0.5)
        except Stopped:
            left = True
    assert left
    assert script.enough == [True]
    assert script.said == ["began", "watched"]
    record, step = script.phases.record, script.phases.step
    assert record is not None
    assert step is not None
    # One batch begins the pass, one is warm-up, six are watched; then the ninth, again and again: the first
    # step with it is apart, and six of 0.5 s make 3 s. Then it comes four times as large, for 3 s.
    ninth = [32, 33, 34, 35]
    own = [list(range(4 * n, 4 * n + 4)) for n in range(8)]
    assert batches == own + [ninth] * 7 + [ninth * 4] * 6
    assert script.phases.larger == {
        "fixed_share": 1.0,
        "larger_step_rate": pytest.approx(32),
        "larger_step_gains": (pytest.approx(3), pytest.approx(3)),
    }
    np.testing.assert_allclose(record.loop().wait, [1.0] * 6)
    np.testing.assert_allclose(record.loop().step, [0.5] * 6)
    assert step.rate == pytest.approx(8)
    assert step.evidence == (
        "6 steps of 4 samples on a batch that was already loaded: 0.5 s each, the loader at rest."
    )


def test_a_loader_that_never_rests_is_said() -> None:
    with Script() as script:
        script.stopped(script.loader(400), 0.5)
    assert script.phases.step is not None
    assert script.phases.step.evidence.endswith("while the loader still prepared batches.")


def test_slow_steps_are_watched_as_long_as_there_is_time() -> None:
    with Script() as script:
        steps = script.stopped(script.loader(400), 7)
    assert script.phases.record is not None
    assert script.phases.record.batches == 5  # of 8 s, in at most 40 s
    assert script.phases.step is not None
    assert script.phases.step.rate == pytest.approx(4 / 7)
    assert steps == 2 + 5 + 3  # fed for at most 12 s, but twice besides the first


def test_a_script_that_goes_on_is_told_again() -> None:
    told = 0
    with Script() as script:
        for _ in range(3):
            try:
                for _ in script.loader(400):
                    script.clock.sleep(1)
            except BaseException:
                told += 1
    assert told == 3
    assert script.said == ["began", "watched"]


def test_validation_is_not_taken_for_training() -> None:
    with Script() as script:
        with torch.no_grad():
            for _ in script.loader(48):
                script.clock.sleep(1)
        train = script.loader(400)
        script.stopped(train, 1)
    assert script.phases.record is not None
    assert script.phases.record.loader is train


def test_a_loop_without_gradients_is_watched_when_nothing_else_comes() -> None:
    with Script() as script, torch.no_grad():
        script.stopped(script.loader(4000), 1)
    assert script.phases.record is not None
    assert script.phases.record.batches == 48  # of 2 s: a hundred seconds


@pytest.mark.parametrize("anew", [False, True])
def test_short_epochs_add_up(anew: bool) -> None:
    """Also of scripts that make a loader for each."""
    epochs = 0
    with Script() as script:
        loader = script.loader(16)
        while not script.phases.is_over and epochs < 20:
            with contextlib.suppress(Stopped):
                for _ in script.loader(16) if anew else loader:
                    script.clock.sleep(1)
            epochs += 1
    assert epochs == 3  # each has three whole steps besides its first; one was warm-up; in the last it is fed
    assert script.phases.record is not None
    assert script.phases.record.batches == 6


@pytest.mark.parametrize("samples", range(12, 44, 4))
def test_enough_at_the_end_of_a_loader_s_only_epoch(samples: int) -> None:
    """The next epoch's loader is fed in its place."""
    epochs = 0
    with Script() as script:
        while not script.phases.is_over and epochs < 20:
            with contextlib.suppress(Stopped):
                for _ in script.loader(samples):
                    script.clock.sleep(1)
            epochs += 1
    assert epochs <= 5
    assert script.phases.step is not None
    assert script.phases.record is not None
    assert script.phases.record.batches == 6


def test_a_rank_that_follows_is_fed_until_somebody_ends_it() -> None:
    with Script(stops=False) as script:
        for steps, _ in enumerate(script.loader(80)):
            script.clock.sleep(1)
            if steps == 100:
                break
    assert steps == 100
    assert script.said == ["began"]


def test_a_batch_that_is_changed_in_place_comes_as_it_was() -> None:
    feed = Feed({"x": torch.ones(2), "y": [torch.zeros(1)], "words": ["a"]}, 2, at_rest=True)
    seen = []
    for _ in range(3):
        batch = feed.give()
        seen.append((batch["x"].tolist(), batch["words"]))
        batch["x"].mul_(5)
        batch["x"].requires_grad_()
        batch["words"] = None
    assert seen == [([1.0, 1.0], ["a"])] * 3
    first, second = feed.give(), feed.give()
    assert first["x"].data_ptr() == second["x"].data_ptr()  # not copied where nothing was changed
    first["y"][0].add_(1)
    assert feed.give()["y"][0].item() == 0


def test_any_batch_can_be_copied() -> None:
    pair = namedtuple("pair", "x y")
    array = np.zeros(3)
    batch = pair(torch.zeros(2), (array, {"k": torch.ones(1)}))
    copy = copied(batch)
    assert isinstance(copy, pair)
    copy.x.add_(1)
    copy.y[0][:] = 7
    assert batch.x.tolist() == [0, 0]
    assert array.tolist() == [0, 0, 0]
    lock = open
    assert copied([lock, iter([])])[0] is lock
