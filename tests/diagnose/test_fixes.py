"""Fixes on loaders whose trials are given: what is proposed, when, and in which words. Nothing is timed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import fastload  # noqa: F401 (what the user types is evaluated)
from fastload import Cache, DataLoader, PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.backends.values import cache_setting
from fastload.diagnose.doctor import measured_stages
from fastload.diagnose.examination import Examination, proposals
from fastload.diagnose.facts import Fix, Loop, Stage
from fastload.diagnose.fixes import REGISTRY, data
from fastload.diagnose.fixes import loader as batches
from fastload.diagnose.fixes import loader as delivery
from fastload.diagnose.fixes import loader as threads
from fastload.diagnose.fixes import step as copies
from fastload.diagnose.storage import Storage
from fastload.diagnose.trial import Budget, LoaderUnderTest, Trial
from fastload.diagnose.verdict import judge
from fastload.errors import CacheError
from fastload.loader.arguments import Arguments
from fastload.loader.options import resolve
from fastload.loader.view import view_of, viewed

BASE = Trial(200.0, 0.01, 1.0, 2, {"shard": 0.0, "decode": 0.008, "transform": 0.002}, (0.04,) * 8)
FLOATS = T.Compose([T.RandomResizedCrop(32), T.ToDtype("float32", scale=True)])
STEADY = np.full(40, 0.02)
BURSTS = np.tile([0.08, 0.0, 0.0, 0.0], 10)


def case(dataset: object, **given: Any) -> Examination:
    """An examination of a loader of two threads; ``given``: its arguments, and what else is known."""
    known = {name: given.pop(name) for name in ("loop", "step", "cpus", "base") if name in given}
    with DataLoader(dataset, **({"batch_size": 4, "num_workers": 2, "shuffle": True} | given)) as loader:  # type: ignore[arg-type]
        subject = LoaderUnderTest(viewed(loader, "a test"))
    made = Examination(Budget(60), Path(), 2.0, 2, 2.0, BASE, None, None, subject, Path(), (), None, 0.0)
    return replace(made, **known, spare=known.get("cpus", 2.0))


def loop(wait: Any, step: float = 0.05, **notes: object) -> Loop:
    return Loop("a loader", 4, wait, np.full(len(wait), step), 2, 2.0, 0.1, 0.1, notes=notes)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Takes the place of trials: what each loader reaches is given; the loaders are kept, made."""

    def put(module: ModuleType, **rates: float) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []

        def in_turns(makers: Any, size: int, seconds: float, step: Any = None, pace: Any = None) -> Any:
            made.append({name: make() for name, make in makers.items()})
            made[-1] |= {"pace": pace} if pace is not None else {}
            return {name: replace(BASE, rate=rates[name], cpu=0.0) for name in makers}

        monkeypatch.setattr(module, "in_turns", in_turns)
        return made

    return put


def named(found: list[Fix]) -> dict[str, Fix]:
    return {fix.name: fix for fix in found}


def test_autotune_is_said_with_the_number_of_the_threads(packed: PackedDataset, trials: Any) -> None:
    made = trials(threads, now=100.0, more=150.0)
    of = case(packed, cpus=8.0, num_workers=2)
    found = named(list(threads.more_threads(of)))
    assert len(made) == 1
    assert found["threads"].words == "num_workers=8"
    autotune = found["autotune"]
    assert autotune.words == "autotune=True would raise num_workers from 2 by itself, while the job runs"
    assert (autotune.rate, autotune.gain) == (found["threads"].rate, pytest.approx(0.5))
    assert autotune.evidence.startswith("Not run: the number is that of num_workers=8.")
    said = judge(of, measured_stages(of), list(found.values()))
    assert said.limit == "few-workers"
    assert [fix.name for fix in said.fixes] == ["threads", "autotune"]


@pytest.mark.parametrize(
    ("given", "more"),
    [({"autotune": True}, 150.0), ({}, 101.0), ({"num_workers": None}, 150.0)],
    ids=["it is on", "nothing is gained", "threads are at autotune's own bound"],
)
def test_autotune_is_not_proposed_where_it_would_do_nothing(
    packed: PackedDataset, trials: Any, given: dict[str, Any], more: float
) -> None:
    trials(threads, now=100.0, more=more)
    assert set(named(list(threads.more_threads(case(packed, cpus=64.0, **given))))) == {"threads"}


@pytest.mark.parametrize(
    ("wait", "expected"),
    [(BURSTS, True), (STEADY, False), (BURSTS / 100, False), (np.zeros(8), False), (np.zeros(0), False)],
)
def test_bursts_are_long_waits_among_short_ones(wait: Any, expected: bool) -> None:
    assert batches.waits_in_bursts(loop(wait)) is expected


def test_prefetch_is_tried_with_a_pause_for_the_step_where_waits_come_in_bursts(
    packed: PackedDataset, trials: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trials(batches, now=50.0, more=60.0)
    step = Stage("step", 100.0)
    of = case(packed, prefetch_factor=2, loop=loop(BURSTS), step=step)
    found = named(list(batches.deeper_prefetch(of)))
    pauses: list[float] = []
    monkeypatch.setattr(batches.time, "sleep", pauses.append)
    made[0].pop("pace")(3)
    assert pauses == [pytest.approx(4 / 100)]
    assert {name: loader.arguments.prefetch_factor for name, loader in made[0].items()} == {
        "now": 2,
        "more": 4,
    }
    prefetch = found["prefetch"]
    assert prefetch.words == "prefetch_factor=4"
    assert prefetch.gain == pytest.approx(0.2)
    assert prefetch.rate == pytest.approx(1.2 * of.now)
    assert "25% of the waits make up 100% of the waiting" in prefetch.evidence
    assert "with a pause of 40.0 ms for each step" in prefetch.evidence
    assert (
        found["autotune"].words
        == "autotune=True would raise prefetch by 2 batches by itself, while the job runs"
    )
    assert judge(of, measured_stages(of), list(found.values())).limit == "prefetch"


def test_autotune_goes_no_further_than_four_batches(packed: PackedDataset, trials: Any) -> None:
    trials(batches, now=50.0, more=60.0)
    of = case(packed, prefetch_factor=5, loop=loop(BURSTS), step=Stage("step", 100.0))
    assert set(named(list(batches.deeper_prefetch(of)))) == {"prefetch"}


@pytest.mark.parametrize(
    "known",
    [
        {"loop": loop(STEADY), "step": Stage("step", 100.0)},
        {"loop": loop(BURSTS), "step": Stage("step", 300.0)},
        {"loop": loop(BURSTS), "step": Stage("step", 100.0, cpu=0.01)},
        {"loop": loop(BURSTS)},
    ],
    ids=["always", "the loader is slower", "the step takes CPUs", "the step is not known"],
)
def test_without_bursts_busy_threads_need_no_room(
    packed: PackedDataset, trials: Any, known: dict[str, Any]
) -> None:
    made = trials(batches, now=50.0, more=60.0)
    assert list(batches.deeper_prefetch(case(packed, **known))) == []
    assert made == []


def test_idle_threads_are_tried_without_a_step(packed: PackedDataset, trials: Any) -> None:
    made = trials(batches, now=100.0, more=120.0)
    of = case(packed, prefetch_factor=8, base=replace(BASE, busy=0.5))
    (found,) = batches.deeper_prefetch(of)
    assert found.words == "prefetch_factor=16"
    assert "idle for 50% of their time" in found.evidence
    assert view_of(made[0]["now"]) is not None


def test_what_cannot_be_tried_is_said_and_costs_nothing_else(packed: PackedDataset) -> None:
    def no_room(case: Examination) -> Iterator[Fix]:
        yield Fix("before", "something", 300.0, 0.5, "tried")
        raise CacheError("/dev/shm has 1 MB.")

    def disk_full(case: Examination) -> Iterator[Fix]:
        raise OSError(28, "No space left on device")
        yield

    def last(case: Examination) -> Iterator[Fix]:
        yield Fix("behind", "more", 400.0, 1.0, "tried, too")

    of = case(packed)
    found = proposals((no_room, disk_full, last), of)
    assert [fix.name for fix in found] == ["before", "behind"]
    said = [sentence.text for sentence in judge(of, measured_stages(of), found).sentences]
    assert "Could not be tried here: no room. CacheError: /dev/shm has 1 MB." in said
    assert "Could not be tried here: disk full. OSError: [Errno 28] No space left on device" in said


def test_a_mistake_in_a_fix_is_not_taken_for_the_machine(packed: PackedDataset) -> None:
    def wrong(case: Examination) -> Iterator[Fix]:
        raise TypeError("a mistake")
        yield

    with pytest.raises(TypeError, match="a mistake"):
        proposals((wrong,), case(packed))


def test_uint8_is_what_the_loader_gives_without_its_last_step(packed: PackedDataset, trials: Any) -> None:
    made = trials(delivery, now=100.0, uint8=150.0)
    of = case(packed, transform=FLOATS, seed=1)
    (found,) = delivery.as_uint8(of)
    assert found.name == "device-normalise"
    assert 'device="cuda"' in found.words
    assert found.gain == pytest.approx(0.5)
    assert "150 images/s in uint8, 100 in float32" in found.evidence
    assert "25% of the bytes" in found.evidence
    assert "that is not in the number" in found.evidence
    floats, _ = next(iter(made[0]["now"]))
    whole, _ = next(iter(made[0]["uint8"]))
    assert (floats.dtype, whole.dtype) == (torch.float32, torch.uint8)
    assert torch.equal(floats, whole.to(torch.float32) * torch.tensor(1 / 255))  # the core multiplies, too
    for loader in made[0].values():
        loader.close()


def halved(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize(
    "given",
    [
        {"transform": T.RandomResizedCrop(32)},
        {"transform": FLOATS, "loop": loop(STEADY, device="cpu")},
        {"transform": FLOATS, "collate_fn": halved},
        {"transform": T.ByEpoch({0: FLOATS})},
    ],
    ids=["uint8 already", "the model is on the CPU", "Python gets floats", "a plan by epoch"],
)
def test_uint8_is_not_tried_where_nothing_would_come_of_it(
    packed: PackedDataset, trials: Any, given: dict[str, Any]
) -> None:
    made = trials(delivery, now=100.0, uint8=150.0)
    assert list(delivery.as_uint8(case(packed, **given))) == []
    assert made == []


def typed(words: str) -> dict[str, Any]:
    """The arguments that a fix tells the user to type, evaluated."""
    found = re.findall(r"(?<![\w.])(\w+=(?:fastload\.\w+\([^)]*\)|\"[^\"]*\"|\w+))", words)
    return {name: value for text in found for name, value in eval(f"dict({text})").items()}


def test_what_the_user_is_to_type_is_what_the_loader_takes(
    packed: PackedDataset, trials: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fix that names an argument, for a loader that has a value with other parts."""
    trials(delivery, now=100.0, more=150.0, uint8=150.0)
    gains = {"now": 100.0, "cached": 150.0}
    tried = {name: replace(BASE, rate=rate) for name, rate in gains.items()}
    monkeypatch.setattr(data, "in_turns", lambda *_, **__: tried)
    monkeypatch.setattr(data, "_disk_rate", lambda case: 800.0)
    monkeypatch.setattr(data, "_free", lambda folder: 10**12)
    monkeypatch.setattr(_C, "file_system", lambda folder: {"in_memory": False, "remote": False})
    monkeypatch.setattr(LoaderUnderTest, "fits_memory", False)
    storage = Storage(80.0, 400.0, 1e4, 0.01, 8e6, True, "read")
    known = {"cpus": 8.0, "base": replace(BASE, busy=0.5), "loop": loop(STEADY, cuda=True, device="cuda:0")}
    of = case(packed, transform=FLOATS, prefetch_factor=2, cache=Cache(format="auto"), **known)
    of = replace(of, storage=storage, cold=1.0)
    tried_here = [propose for propose in REGISTRY if propose is not data.repacked]  # options of pack
    found = [fix for cold in (of, replace(of, cold=0.0)) for propose in tried_here for fix in propose(cold)]
    asked = {fix.name: typed(fix.words) for fix in found}
    asked = {name: arguments for name, arguments in asked.items() if arguments}
    assert set(asked) == {
        "threads", "autotune", "prefetch", "block", "memory-cache", "disk-tier", "decoded-cache",
        "device-normalise", "batch-size", "pin-memory",
    }  # fmt: skip
    for arguments in asked.values():
        resolve(Arguments(packed, **arguments))
    assert asked["block"] == {"shuffle": "block"}
    assert asked["memory-cache"]["cache"].format == "auto"
    assert asked["decoded-cache"]["cache"].decoded == 128


@pytest.mark.parametrize(
    ("given", "changes", "expected"),
    [
        ("auto", {"size": "50%"}, 'cache="50%"'),
        ("off", {"size": "1.5GB"}, 'cache="1.5GB"'),
        ("auto", {"disk": "/nvme/set:800GB"}, 'cache="/nvme/set:800GB"'),
        (Cache(decoded=256), {"size": "50%"}, "cache=fastload.Cache(size='50%', decoded=256)"),
        (
            ["64GB", "/nvme/set:800GB"],
            {"decoded": 96},
            "cache=fastload.Cache(size='64000000000B', decoded=96, disk='/nvme/set:800000000000B')",
        ),
        (
            Cache("50%", "/dev/shm", format="coefficients"),
            {"decoded": "full", "format": "jpeg"},
            "cache=fastload.Cache(size='50%', folder='/dev/shm', decoded='full')",
        ),
    ],
)
def test_a_cache_is_spelled_with_what_the_user_has(given: Any, changes: Any, expected: str) -> None:
    before = cache_setting(given)
    text = data.spelled(before, **changes)
    assert text == expected
    after = cache_setting(typed(text)["cache"])
    for name in {"root", "disk", "decoded", "format"} - set(changes):
        assert getattr(after, name) == getattr(before, name)


def test_pinned_slots_are_a_hint_where_the_loop_has_a_device(packed: PackedDataset) -> None:
    (found,) = copies.pinned_slots(case(packed, loop=loop(STEADY, cuda=True, device="cuda:0")))
    assert (found.name, found.rate) == ("pin-memory", 0.0)
    assert "Not measured." in found.evidence
    assert list(copies.pinned_slots(case(packed, loop=loop(STEADY, cuda=False)))) == []
    assert list(copies.pinned_slots(case(packed))) == []
    assert list(copies.pinned_slots(case(packed, pin_memory=True, loop=loop(STEADY, cuda=True)))) == []


def test_copies_from_pageable_memory_are_taken_out_of_the_step(
    packed: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def copy_seconds(nbytes: int, pinned: bool) -> float:
        asked.append((nbytes, pinned))
        return 0.001 if pinned else 0.006

    monkeypatch.setattr(copies, "copy_seconds", copy_seconds)
    watched = loop(STEADY, cuda=True, device="cuda", batch_bytes=10**6, pin_memory=False)
    size = watched.batch_size
    step = Stage("step", size / 0.01, 0.0, "measured.")
    of = replace(case(packed, loop=watched), step=step, base=replace(BASE, rate=1e6))
    (hidden,) = copies.pinned_slots(of)
    (pinned,) = copies.pinned(of)
    assert asked == [(10**6, False), (10**6, False), (10**6, True)]
    assert hidden.rate == pytest.approx(max(of.now, size / 0.004))
    assert pinned.rate == pytest.approx(max(of.now, size / 0.005))
    assert hidden.gain == pytest.approx(hidden.rate / of.now - 1)
    assert (
        "1.0 MB from pageable memory takes 6.0 ms; a step with its copies takes 10.0 ms." in hidden.evidence
    )
    assert "from pinned memory 1.0 ms" in pinned.evidence
    slow = replace(of, base=replace(of.base, rate=of.now))
    assert [fix.rate for fix in copies.pinned_slots(slow)] == [of.now]  # the loader gives no more
