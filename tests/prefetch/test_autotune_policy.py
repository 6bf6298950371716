"""autotune's rules on modelled loaders: at the best fixed setting's rate soon, and then at rest.

A model's rate follows from threads and depth; what a window shows of it is noisy.
A window lasts a second or more.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from fastload.prefetch.autotune import Bounds, Policy, Setting, Window

WINDOWS = 90
SOON = 25  # windows
CLOSE = 0.97
FEW = 3  # changes in the last third: a try and its end may fall there


@dataclass(frozen=True)
class Model:
    """A loader.

    Args:
        work: seconds of one thread for a batch.
        consumer: seconds of a step.
        power: so many threads do ``threads ** power`` times the work of one.
        useful: no more than this, in threads' work (a disk, memory).
        uneven: share of the work's speed that is lost at a depth of 1, and in proportion less if deeper.
        noise: the work takes up to this share more or less.
    """

    work: float
    consumer: float
    power: float = 1.0
    useful: float = 99.0
    uneven: float = 0.0
    noise: float = 0.0

    def seconds(self, setting: Setting) -> float:
        """Of a batch, before it is waited for by anybody."""
        return self.work / self._done(setting) / (1 - self.uneven / setting.depth)

    def rate(self, setting: Setting) -> float:
        """Batches a second."""
        return 1 / max(self.seconds(setting), self.consumer)

    def window(self, setting: Setting, draws: random.Random) -> Window:
        """What is measured in one."""
        noise = 1 + draws.uniform(-self.noise, self.noise)
        period = max(self.seconds(setting) * noise, self.consumer)
        busy = min(1.0, self.work / self._done(setting) / period)
        return Window(1.0, 1 - self.consumer / period, 1 - busy, 32 / period)

    def _done(self, setting: Setting) -> float:
        return min(setting.threads**self.power, self.useful)


MODELS = {
    "one thread too few": Model(1.0, 0.51),
    "far too few": Model(1.0, 0.001),
    "a slow step": Model(0.1, 1.0),
    "a step that one thread just feeds": Model(1.0, 1.01),
    "uneven pictures": Model(1.0, 0.001, uneven=0.6),
    "a little uneven": Model(1.0, 0.001, uneven=0.3),
    "uneven, and a step": Model(1.0, 0.08, uneven=1.0),
    "cores that share their units": Model(1.0, 0.001, power=0.6),
    "a disk for two and a half threads": Model(1.0, 0.1, useful=2.5),
    "a disk and uneven pictures": Model(1.0, 0.1, useful=2.5, uneven=0.6),
}


def _judged(model: Model, start: Setting, bounds: Bounds, seed: int) -> tuple[float, int, int]:
    """The steady rate as a share of the best fixed setting's, windows until close to it, late changes."""
    draws, policy = random.Random(seed), Policy(start, bounds)
    fixed = [
        Setting(threads, depth)
        for threads in range(1, bounds.most_threads + 1)
        for depth in range(bounds.least_depth, bounds.most_depth + 1)
    ]
    best = max(map(model.rate, fixed))
    settings = [start]
    for _ in range(WINDOWS):
        policy.decide(model.window(policy.setting, draws))
        settings.append(policy.setting)
    shares = [model.rate(setting) / best for setting in settings]
    late = range(2 * WINDOWS // 3, WINDOWS)
    changes = sum(settings[number] != settings[number + 1] for number in late)
    soon = next((number for number, share in enumerate(shares) if share >= CLOSE), WINDOWS)
    return sum(shares[number] for number in late) / len(late), soon, changes


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("most", [2, 16])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_as_good_as_the_best_fixed_setting(name: str, most: int, noise: float) -> None:
    model = Model(**{**vars(MODELS[name]), "noise": noise})
    for start in (1, most):
        for seed in range(5):
            share, soon, changes = _judged(model, Setting(start, 2), Bounds(most, 2, 6), seed)
            assert share >= CLOSE, (start, seed)
            assert soon <= SOON, (start, seed)
            assert changes <= FEW, (start, seed)


def test_uneven_samples_ask_for_depth_where_there_are_no_more_threads() -> None:
    """Threads that are idle for a quarter of their time: deeper prefetch comes after threads."""
    window = Window(1.0, 0.4, 0.25, 300)
    policy = Policy(Setting(2, 2), Bounds(2, 2, 6))
    assert policy.decide(window) == "the consumer waits although threads are idle"
    assert policy.setting == Setting(2, 3)
    policy = Policy(Setting(2, 2), Bounds(4, 2, 6))
    policy.decide(window)
    assert policy.setting == Setting(3, 2)


def test_threads_come_where_depth_has_reached_its_bound() -> None:
    policy = Policy(Setting(2, 6), Bounds(4, 2, 6))
    policy.decide(Window(1.0, 0.4, 0.5, 300))
    assert policy.setting == Setting(3, 6)


def test_one_window_that_waits_a_little_changes_nothing() -> None:
    policy = Policy(Setting(2, 2), Bounds(4, 2, 6))
    fed, short = Window(1.0, 0.0, 0.1, 300), Window(1.0, 0.06, 0.1, 290)
    for window in (fed, short) * 5:
        assert policy.decide(window) is None
    assert policy.decide(short) is not None  # the second in a row


def test_a_small_gain_of_one_thread_more_is_kept() -> None:
    policy = Policy(Setting(1, 2), Bounds(2, 2, 6))
    policy.decide(Window(1.0, 0.9, 0.0, 300))
    assert policy.decide(Window(1.0, 0.9, 0.0, 330)) is None
    assert policy.setting.threads == 2
