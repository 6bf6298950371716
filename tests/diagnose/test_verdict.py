"""What limits, from numbers that are given: nothing is measured here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from doctor_cases import BASE, STORAGE, case, loop

from fastload.diagnose.doctor import measured_stages
from fastload.diagnose.examination import Examination
from fastload.diagnose.facts import Fix, Stage
from fastload.diagnose.fixes.data import in_blocks
from fastload.diagnose.fixes.loader import larger_quota, room_in_shm
from fastload.diagnose.fixes.step import STEP_HINTS, of_the_step
from fastload.diagnose.verdict import gain_words, judge


def limit(of: Examination, *fixes: Fix) -> str:
    return judge(of, measured_stages(of), fixes).limit


def gain(name: str, by: float) -> Fix:
    return Fix(name, f"do {name}", 200 * (1 + by), by, "tried")


@pytest.mark.parametrize(
    ("changes", "fixes", "expected"),
    [
        ({}, [], "decode"),
        ({"base": replace(BASE, stages={"decode": 0.001, "transform": 0.009})}, [], "transform"),
        ({}, [gain("threads", 0.5)], "few-workers"),
        ({}, [gain("threads", 0.02)], "decode"),
        ({}, [gain("quota", 1.0)], "quota"),
        ({}, [gain("prefetch", 0.4)], "prefetch"),
        ({"base": replace(BASE, busy=0.5)}, [gain("batch-size", 0.4), gain("prefetch", 0.2)], "batch-size"),
        ({"base": replace(BASE, busy=0.5)}, [gain("batch-size", 0.4), gain("prefetch", 0.5)], "prefetch"),
        ({"base": replace(BASE, busy=0.5)}, [gain("batch-size", 0.05)], "decode"),
        ({}, [gain("batch-size", 0.4)], "decode"),
        ({"storage": STORAGE, "cold": 1.0}, [], "storage"),
        ({"storage": STORAGE, "cold": 0.1}, [], "decode"),
        ({"step": Stage("step", 50.0)}, [], "step"),
        ({"step": None}, [], "decode"),
        ({"base": replace(BASE, busy=0.1)}, [], "unknown"),
        ({"loop": loop(0.001, 0.1), "step": None}, [], "step"),
        ({"step": Stage("step", 50.0)}, [gain("pin-memory", 0.5)], "transfer"),
        ({"step": Stage("step", 50.0)}, [gain("pin-memory", 0.05)], "step"),
        ({}, [gain("pin-memory", 0.5)], "decode"),
        ({"loop": loop(0.05, 0.05)}, [], "decode"),
        ({"loop": loop(0.05, 0.05), "step": Stage("step", 190.0)}, [], "prefetch"),
    ],
)
def test_the_cause(changes: dict[str, Any], fixes: list[Fix], expected: str) -> None:
    assert limit(case(**changes), *fixes) == expected


def test_the_words_have_the_numbers() -> None:
    of = case()
    said = judge(
        of,
        measured_stages(of),
        [gain("a", 0.5), gain("b", 0.7), gain("c", 0.01), Fix("d", "try d", 0, 0, "")],
    )
    assert str(said) == (
        "The step can take 400 images/s; the loader delivers 200. Decoding is the bottleneck: 2 threads busy "
        "100% of the time, 80% of that in this stage. do b: 340 images/s (+70%). do a: 300 images/s (+50%). "
        "try d."
    )
    assert [fix.name for fix in said.fixes] == ["b", "a", "d"]


def test_where_the_step_limits_nothing_is_to_be_done() -> None:
    of = case(step=Stage("step", 50.0, evidence="Given."))
    said = judge(of, measured_stages(of), [gain("a", 0.5)])
    assert said.fixes == ()
    assert str(said) == (
        "The step can take 50 images/s; the loader can deliver 200: the data pipeline is not the "
        "bottleneck. The training step is the bottleneck."
    )


def test_copies_in_a_step_are_not_called_the_step() -> None:
    of = case(step=Stage("step", 50.0, evidence="Given."))
    copies = Fix("pin-memory", "copy while it runs", 90.0, 0.8, "6 of 10 ms.")
    said = judge(of, measured_stages(of), [gain("a", 0.5), Fix("amp", "bfloat16", 0, 0, ""), copies])
    assert str(said) == (
        "The step can take 50 images/s; the loader can deliver 200. Copying to the device is the "
        "bottleneck. copy while it runs: 90 images/s (+80%). bfloat16."
    )
    assert said.sentences[1].evidence == "6 of 10 ms."


def test_a_fix_cannot_give_more_than_the_step_takes() -> None:
    found = case().fix("x", "do x", replace(BASE, rate=1e6, cpu=1e-6), "tried")
    assert found.rate == 400
    assert found.gain == pytest.approx(1.0)


def test_a_fix_is_taken_relative_to_what_was_watched() -> None:
    watched = case(loop=loop(0.06, 0.04), step=None)  # 100 a second, where the arithmetic says 200
    found = watched.fix("x", "do x", replace(BASE, rate=300.0, cpu=0.005), "tried")
    assert found.rate == pytest.approx(150)


@pytest.mark.parametrize(("spare", "expected"), [(2.0, 300.0), (1.0, 400.0)])
def test_where_others_work_cpu_time_is_compared(spare: float, expected: float) -> None:
    turned, trial = replace(BASE, rate=100.0), replace(BASE, rate=150.0, cpu=0.005)
    of = case(spare=spare, step=None)
    assert of.fix("x", "do x", trial, "tried", base=turned).rate == pytest.approx(expected)


def test_loaders_that_were_tried_with_the_step_are_compared_so() -> None:
    turned, trial = replace(BASE, with_step=150.0), replace(BASE, rate=800.0, with_step=225.0)
    found = case().fix("x", "do x", trial, "Tried.", base=turned)
    assert found.rate == pytest.approx(200 * 225 / 150)
    assert found.evidence == "Tried. With the step's time behind each batch: 225 instead of 150."
    stored = case(storage=STORAGE, cold=1.0).fix(
        "x", "do x", trial, "Tried.", base=turned, storage_rate=120.0
    )
    assert stored.gain == pytest.approx(120 / 80 - 1)  # storage lets no more through, now and then


def test_storage_that_is_out_of_the_way_takes_its_bursts_along() -> None:
    of = case(
        storage=STORAGE, cold=1.0, loop=loop(0.24, 0.01), step=None
    )  # 40 a second, where storage has 80
    freed = of.fix("x", "do x", BASE, "Tried.", storage_rate=float("inf"))
    assert freed.rate == pytest.approx(200)
    assert freed.gain == pytest.approx(200 / 40 - 1)
    tried = of.fix(
        "x", "do x", replace(BASE, with_step=150.0), "Tried.", base=BASE, storage_rate=float("inf")
    )
    assert tried.rate == pytest.approx(150)
    idle = of.fix("x", "do x", replace(BASE, rate=300.0, cpu=0.005), "Tried.")
    assert (idle.rate, idle.gain) == (pytest.approx(40), pytest.approx(0))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"base": replace(BASE, rate=100.0)}, 200.0),  # two threads, 10 ms of CPU time a sample
        ({"base": replace(BASE, rate=100.0, threads=1)}, 100.0),
        ({"base": replace(BASE, rate=100.0, threads=8)}, 200.0),  # the CPUs
        ({"base": BASE, "step": Stage("step", 100.0, delay=0.005)}, 200.0),  # the step waited for a CPU
        ({"base": BASE, "step": Stage("step", 50.0)}, 50.0),
        ({"spare": 2.0}, 0.0),  # the machine is quiet
        ({"base": replace(BASE, threads=0)}, 0.0),
    ],
)
def test_a_quiet_machine_is_computed_from_cpu_time(changes: dict[str, Any], expected: float) -> None:
    of = case(**{"spare": 1.0, "step": None} | changes)
    assert of.quiet_rate(of.base) == pytest.approx(expected)


def test_others_that_use_the_cpus_are_a_note_and_never_the_cause() -> None:
    of = case(spare=0.4)
    said = judge(of, measured_stages(of), [])
    assert said.limit == "decode"
    assert said.quiet_rate > 0
    note = next(sentence.text for sentence in said.sentences if sentence.text.startswith("Note"))
    assert note == "Note: other processes, or guests of the host, use 1.6 of 2 CPUs."
    quiet = judge(case(), measured_stages(case()), [])
    assert not any(sentence.text.startswith("Note") for sentence in quiet.sentences)


def test_runs_that_differ_give_a_range() -> None:
    of = case(step=None)
    base = replace(BASE, rounds=(200.0, 200.0, 200.0))
    even = of.fix(
        "x", "do x", replace(BASE, rate=300.0, cpu=0.005, rounds=(300.0, 300.0, 300.0)), "", base=base
    )
    assert not even.is_range
    trial = replace(BASE, rate=300.0, cpu=0.005, rounds=(260.0, 300.0, 360.0))
    wide = of.fix("x", "do x", trial, "Tried.", base=base)
    assert wide.is_range
    assert (wide.low, wide.gain, wide.high) == (pytest.approx(0.3), pytest.approx(0.5), pytest.approx(0.8))
    assert gain_words(wide) == "260 to 360 images/s (+30% to +80%)"
    assert gain_words(even) == "300 images/s (+50%)"
    limited = case(step=Stage("step", 250.0)).predicted("x", "do x", 0.5, "", within=(0.2, 0.9))
    assert (limited.rate, limited.high) == (pytest.approx(250), pytest.approx(0.25))


def test_work_in_the_loops_own_thread_adds_up() -> None:
    serial = replace(BASE, serial=1 / 200)
    assert case(base=serial).whole(serial) == pytest.approx(1 / (1 / 200 + 1 / 400))


def test_blocks_are_worth_what_storage_gives_in_order() -> None:
    of = case(storage=STORAGE, cold=1.0)
    (found,) = in_blocks(of)
    assert found.rate == pytest.approx(200)
    assert "80 records/s at random and 400 in order" in found.evidence
    of.subject.arguments.shuffle = "block"
    assert list(in_blocks(of)) == []


def test_a_quota_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastload.diagnose.fixes.loader.cgroup_quota", lambda: 2.0)
    watched = loop(0.1, 0.0, throttled_seconds=1.5)
    (quota,) = larger_quota(case(mask=4, loop=watched, step=None))
    assert quota.gain == pytest.approx(1.0)
    assert "held back for 1.5 s" in quota.evidence
    assert list(larger_quota(case(mask=2))) == []


def test_a_step_on_a_gpu_gets_hints() -> None:
    notes: dict[str, object] = {
        "device": "cuda:0",
        "parallel": "DataParallel",
        "parameter_dtype": "torch.float32",
    }
    of = case(loop=loop(0.001, 0.1, **notes, channels_last=False, synchronises=["train.py:12"]))
    hints = tuple(of_the_step(of))
    assert tuple(hint.name for hint in hints) == STEP_HINTS
    assert judge(of, measured_stages(of), hints).fixes == hints
    assert "train.py:12" in hints[-1].words
    assert list(of_the_step(case(loop=loop(0.001, 0.1, device="cpu")))) == []


def test_too_little_room_in_shm_is_said() -> None:
    notes = {"start_method": "fork", "shm_free": 1_000_000, "batch_bytes": 500_000}
    (found,) = room_in_shm(case(loop=loop(0.1, 0.1, **notes)))
    assert "--shm-size" in found.words
    assert list(room_in_shm(case(loop=loop(0.1, 0.1, **notes | {"shm_free": 10**9})))) == []
