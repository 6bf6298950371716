"""Shares of time, from ticks that are given."""

from __future__ import annotations

from typing import Any

import pytest

from fastload.diagnose.attribution import WAITS, Attribution, Place, attributed, kind_of
from fastload.diagnose.sampling import FAULT, RUNNING, Seen
from fastload.diagnose.spots import Spot


def waiting_for(what: str) -> int:
    """A system call's number on this machine."""
    return next(number for number, name in WAITS.items() if name == what)


PYTHON = Spot("sample", "python", "/home/user/data.py", 41, "df[df.id == i]", "Data.__getitem__", "pandas")
DECODE = Spot("sample", "decode", "/home/user/data.py", 44, "image.load()", "Data.__getitem__", "PIL")
LOCK = Spot("sample", "lock", "/home/user/data.py", 39, "with self.lock", "Data.__getitem__")
READ = Spot("sample", "reading", "/home/user/data.py", 40, "open(path)", "Data.__getitem__", "io")
IDLE = Spot("idle", "idle")
STEP = Spot("loop", "step", "/home/user/train.py", 9, "loss.backward()", "main", "torch")
ITEM = Spot("loop", "sync", "/home/user/train.py", 12, "loss.item()", "main", "torch")
WAITING = Spot("waiting", "waiting")


def seen(process: str, ticks: dict[tuple[Spot, int], int], begin: float = 0.0, thread: str = "") -> Seen:
    made = Seen(process, begin, begin + 1)
    for (spot, state), count in ticks.items():
        made.ticks[thread, spot, state] += count
    return made


def two_workers(**more: Any) -> Attribution:
    worker = {(PYTHON, RUNNING): 60, (DECODE, RUNNING): 20, (IDLE, waiting_for("network")): 20}
    main = {(STEP, RUNNING): 30, (ITEM, RUNNING): 10, (WAITING, waiting_for("network")): 60}
    return attributed([seen("main", main), seen("7", worker), seen("8", worker)], 0.0, 1.0, **more)


def test_shares_are_of_those_who_make_samples_and_of_the_loop() -> None:
    of = two_workers()
    assert of.makers == {"python": pytest.approx(0.75), "decode": pytest.approx(0.25)}
    assert of.loop == {"waiting": pytest.approx(0.6), "step": pytest.approx(0.3), "sync": pytest.approx(0.1)}
    assert of.busy == pytest.approx(0.8)
    assert (of.workers, of.ticks) == (2, 100)
    assert [(place.spot.line, place.share) for place in of.places] == [(41, 0.75), (44, 0.25)]
    assert [place.spot.line for place in of.steps] == [9, 12]
    assert of.place("decode", "python") is of.places[0]
    assert of.step_place("sync") is of.steps[1]
    assert of.place("lock") is None
    assert str(of.places[0]) == "data.py line 41 (`df[df.id == i]`)"


def test_without_workers_the_loop_makes_the_samples() -> None:
    main = {(PYTHON, RUNNING): 60, (STEP, RUNNING): 40}
    of = attributed([seen("main", main)], 0.0, 1.0)
    assert of.makers == {"python": 1.0}
    assert of.loop == {"python": pytest.approx(0.6), "step": pytest.approx(0.4)}
    assert (of.busy, of.workers) == (1.0, 0)


def test_waits_for_a_cpu_are_taken_out() -> None:
    """Half of what looks like running waits for a CPU: a lock's share is then higher."""
    worker = {(PYTHON, RUNNING): 80, (LOCK, waiting_for("lock")): 20}
    crowded = [seen("main", {(STEP, RUNNING): 10}), seen("7", worker)]
    assert attributed(crowded, 0.0, 1.0).share("lock") == pytest.approx(0.2)
    assert attributed(crowded, 0.0, 1.0, at_work=0.5).share("lock") == pytest.approx(20 / 60)


def test_what_a_thread_waits_for_says_what_it_does() -> None:
    assert kind_of(LOCK, waiting_for("lock")) == "lock"
    assert kind_of(LOCK, RUNNING) == "python"
    assert kind_of(PYTHON, waiting_for("read")) == "reading"
    assert kind_of(PYTHON, waiting_for("sleep")) == "sleep"
    assert kind_of(PYTHON, waiting_for("lock")) == "python"  # the GIL
    assert kind_of(DECODE, FAULT) == "reading"  # a page of a mapped file
    assert kind_of(STEP, waiting_for("read")) == "step"
    assert kind_of(Spot("passing", "shared-memory"), waiting_for("network")) == "waiting"
    assert kind_of(Spot("passing", "shared-memory"), RUNNING) == "shared-memory"


def test_waits_are_shares_of_the_time_at_work() -> None:
    worker = {
        (READ, waiting_for("open")): 50,
        (READ, RUNNING): 10,
        (DECODE, FAULT): 10,
        (PYTHON, waiting_for("lock")): 30,
    }
    of = attributed([seen("main", {(STEP, RUNNING): 1}), seen("7", worker)], 0.0, 1.0)
    assert of.waits == {"open": pytest.approx(0.5), "fault": pytest.approx(0.1)}


def test_threads_that_pass_batches_count_while_they_run() -> None:
    feeder = Spot("passing", "pickling", function="ForkingPickler.dumps", library="multiprocessing")
    ticks = {(feeder, RUNNING): 30, (feeder, waiting_for("write")): 70}
    worker = [seen("7", {(PYTHON, RUNNING): 70}), seen("7", ticks, thread="QueueFeederThread")]
    of = attributed([seen("main", {(STEP, RUNNING): 1}), *worker], 0.0, 1.0)
    assert of.makers == {"python": pytest.approx(0.7), "pickling": pytest.approx(0.3)}


def test_what_lies_outside_of_the_time_is_left_out() -> None:
    early = seen("main", {(PYTHON, RUNNING): 1000}, begin=-5.0)
    of = attributed([early, seen("main", {(STEP, RUNNING): 10})], 0.0, 1.0)
    assert of.loop == {"step": 1.0}
    assert attributed([], 0.0, 1.0).makers == {}


def test_a_place_without_a_line_is_a_librarys_function() -> None:
    inside = Spot("collate", "shared-memory", function="collate_tensor_fn", library="torch")
    assert str(Place("shared-memory", inside, 0.5)) == "torch's collate_tensor_fn"
    cell = Spot("sample", "python", "/tmp/ipykernel_17/3.py", 4, "f(x)", "D.__getitem__")
    assert str(Place("python", cell, 0.5)) == "a notebook's cell, line 4 (`f(x)`)"


def test_bins_are_the_timeline() -> None:
    of = two_workers()
    processes = [process for process, *_ in of.bins]
    assert processes == ["main", "7", "8"]
    assert of.bins[1][3] == {
        "python": pytest.approx(0.6), "decode": pytest.approx(0.2), "waiting": pytest.approx(0.2)
    }  # fmt: skip
