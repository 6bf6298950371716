"""autotune: the rules on simulated loaders, and a real one that is starved, then fed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from epochs import all_batches, same
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.backends import native as engines
from fastload.loader import assembly as arrangement
from fastload.machine.cpu import CpuBudget
from fastload.prefetch import autotune
from fastload.prefetch.autotune import Autotuner, Bounds, Policy, Setting, Window

BOUNDS = Bounds(most_threads=16, least_depth=2, most_depth=6)
Machine = Callable[[Setting], Window]


def machine(work: float, consumer: float, useful: int = 64, even_depth: int = 1) -> Machine:
    """A loader whose batches take ``work`` thread-seconds and whose consumer takes ``consumer`` seconds.

    ``useful``: more threads than these are no faster. Below a prefetch depth of ``even_depth`` a third of the
    time is lost waiting for slow samples while the threads are idle.
    """

    def run(setting: Setting) -> Window:
        produce = work / min(setting.threads, useful)
        period = max(produce, consumer)
        busy = produce / period
        if setting.depth < even_depth:
            period *= 1.5
            busy /= 1.5
        return Window(1.0, max(0.0, 1 - consumer / period), 1 - busy, 256 / period)

    return run


def settle(policy: Policy, run: Machine, windows: int = 60) -> list[Setting]:
    """The settings after each window."""
    found = []
    for _ in range(windows):
        policy.decide(run(policy.setting))
        found.append(policy.setting)
    return found


@pytest.mark.parametrize(("work", "consumer", "threads"), [(1.0, 0.1, 10), (1.0, 0.3, 4), (0.5, 0.1, 5)])
@pytest.mark.parametrize("start", [1, 2, 8, 16])
def test_it_finds_the_threads_that_are_needed_and_stays(
    work: float, consumer: float, threads: int, start: int
) -> None:
    found = settle(Policy(Setting(start, 2), BOUNDS), machine(work, consumer))
    assert len(set(found[30:])) == 1
    assert threads <= found[-1].threads <= threads + 2
    assert found[-1].depth == 2


def test_it_takes_all_there_are_where_that_is_not_enough() -> None:
    found = settle(Policy(Setting(2, 2), BOUNDS), machine(10.0, 0.1))
    assert {setting.threads for setting in found[20:]} == {16}


def test_it_goes_to_one_thread_where_that_is_enough() -> None:
    assert settle(Policy(Setting(16, 2), BOUNDS), machine(0.01, 1.0))[-1] == Setting(1, 2)


def test_threads_that_make_nothing_faster_are_given_back() -> None:
    """A disk that feeds six threads: seven are tried now and then, ever more rarely."""
    found = settle(Policy(Setting(2, 2), BOUNDS), machine(10.0, 0.1, useful=6), 400)
    assert max(setting.threads for setting in found[10:]) <= 8
    tries = [sum(setting.threads > 6 for setting in found[a : a + 100]) for a in (0, 300)]
    assert tries[1] < tries[0]
    assert found[-1].threads == 6


def test_idle_threads_and_a_waiting_consumer_ask_for_depth() -> None:
    found = settle(Policy(Setting(8, 2), BOUNDS), machine(1.0, 0.15, even_depth=4))
    assert found[2].depth == 4
    assert max(setting.depth for setting in found) <= 6


def test_depth_has_a_bound_and_goes_back_when_the_consumer_is_slow() -> None:
    policy = Policy(Setting(8, 2), BOUNDS)
    assert settle(policy, machine(1.0, 0.15, even_depth=99))[-1].depth == 6
    assert settle(policy, machine(1.0, 5.0), 200)[-1] == Setting(1, 2)


def test_what_was_given_back_too_early_comes_back_at_once_and_stays() -> None:
    """Windows that say two threads are idle, and a consumer that waits as soon as one is gone."""

    def treacherous(setting: Setting) -> Window:
        starved = setting.threads < 6
        return Window(1.0, 0.2 if starved else 0.0, 0.05 if starved else 0.4, 1000)

    found = settle(Policy(Setting(6, 2), BOUNDS), treacherous, 200)
    lower = sum(setting.threads < 6 for setting in found)
    assert 1 <= lower <= 6
    assert sum(setting.threads < 6 for setting in found[100:]) <= 2


def test_one_odd_window_lowers_nothing() -> None:
    policy = Policy(Setting(8, 2), BOUNDS)
    fed, neutral = Window(1.0, 0.0, 0.5, 900), Window(1.0, 0.02, 0.5, 900)
    for window in (fed, fed, neutral) * 5:
        assert policy.decide(window) is None
    assert [policy.decide(fed) is None for _ in range(3)] == [True, True, False]
    assert policy.setting.threads == 6


def test_reasons_are_words() -> None:
    policy = Policy(Setting(4, 2), BOUNDS)
    assert policy.decide(Window(1.0, 0.4, 0.02, 500)) == "the consumer waits and the threads are busy"
    assert policy.decide(Window(1.0, 0.4, 0.02, 501)) is None  # one noisy window is no proof
    assert policy.decide(Window(1.0, 0.4, 0.02, 501)) == "5 threads were no faster than 4"


class Meter:
    """An Autotuner whose clock and threads are made up."""

    def __init__(self) -> None:
        self.now = self.waited = self.idle = 0.0
        self.applied: list[Setting] = []
        self.tuner = Autotuner(
            Setting(4, 2),
            BOUNDS,
            lambda: (self.waited, self.idle),
            self.applied.append,
            clock=lambda: self.now,
        )

    def batch(self, wait: float, consumer: float, first: bool = False) -> None:
        self.now += consumer
        with self.tuner.waiting(32, first):
            self.now += wait
            self.waited += wait


def test_the_meter_cuts_windows_and_applies() -> None:
    meter = Meter()
    meter.batch(5.0, 0.0, first=True)
    for _ in range(2):
        meter.batch(0.0, 0.1)  # prefetched at the beginning
    for _ in range(8):
        meter.batch(0.1, 0.1)
    assert meter.applied == [Setting(5, 2)]


def test_the_beginning_of_an_epoch_and_pauses_do_not_count() -> None:
    meter = Meter()
    for _ in range(20):
        meter.batch(0.5, 60.0, first=True)
        for _ in range(7):
            meter.batch(0.5, 0.0)
    assert meter.applied == []
    for _ in range(20):
        meter.batch(0.0, 60.0)  # validation in the middle
        for _ in range(7):
            meter.batch(0.0, 0.1)
    assert meter.applied == []


def test_epochs_shorter_than_a_window_are_one_stretch() -> None:
    meter = Meter()
    for _ in range(5):
        for step in range(4):
            meter.batch(0.1, 0.0, first=step == 0)
    assert meter.applied == [Setting(5, 2)]


@pytest.fixture
def gifs(tmp_path: Path) -> PackedDataset:
    return plain_pack(tmp_path / "gifs", [encoded(picture(i, 40, 40), "GIF") for i in range(16)], range(16))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of a few hundredths of a second, and four threads to move in."""
    monkeypatch.setattr(autotune, "WINDOW_SECONDS", 0.02)
    monkeypatch.setattr(arrangement, "find_budget", lambda *_: CpuBudget(4, "made up"))


@pytest.mark.usefixtures("quick")
def test_a_starved_loader_gets_threads_and_a_slow_consumer_gives_them_back(
    gifs: PackedDataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sleep = 0.004

    def decode(data: bytes, max_pixels: int) -> np.ndarray[Any, Any]:
        time.sleep(sleep)
        return np.zeros((40, 40, 3), np.uint8)

    monkeypatch.setattr(engines, "decode_with_pil", decode)
    caplog.set_level(logging.INFO, "fastload")
    data = DataLoader(
        gifs,
        1,
        transform=T.CenterCrop(40),
        num_workers=1,
        autotune=True,
        sampler=[i % 16 for i in range(12_000)],
    )
    assert data.num_workers == 1
    for _ in data:
        if data.stats()["threads"] >= 3:
            break
    assert data.stats()["threads"] >= 3
    assert "the consumer waits and the threads are busy" in caplog.text
    assert "threads 1 -> 2" in caplog.text
    sleep = 0.0
    for _ in data:
        time.sleep(0.01)
        if data.stats()["threads"] == 1:
            break
    assert data.stats()["threads"] == 1
    assert "less does as well" in caplog.text
    assert all(record.name == "fastload" and "\n" not in record.message for record in caplog.records)
    data.close()


@pytest.mark.usefixtures("quick")
def test_batches_are_the_same_and_memory_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "WINDOW_BATCHES", 1)
    monkeypatch.setattr(autotune, "WINDOW_SECONDS", 0.0)
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "transform": T.RandomResizedCrop(32)}
    with DataLoader(folder, 4, **options) as plain, DataLoader(folder, 4, autotune=True, **options) as tuned:
        for _ in range(4):
            assert same(all_batches(tuned), all_batches(plain))
        assert tuned.memory_plan()["slots"] == plain.memory_plan()["slots"] + 4


def test_it_is_for_packed_datasets() -> None:
    with pytest.raises(ValueError, match="autotune are for packed datasets"):
        DataLoader([1, 2, 3], autotune=True)


def test_the_budget_is_the_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangement, "find_budget", lambda *_: CpuBudget(4, "made up", (0, 1)))
    for wanted, tune, plan in (
        (None, True, (4, 4)),
        (1, True, (1, 4)),
        (9, True, (9, 9)),
        (2, False, (2, 2)),
    ):
        data = DataLoader(folder, num_workers=wanted, autotune=tune, transform=T.RandomResizedCrop(8), seed=0)
        assert (data._loader_plan.threads.threads, data._loader_plan.threads.most) == plan
        assert data._loader_plan.threads.cpus == ((0, 1) if wanted is None else ())
