"""Watching a loop: its times, what is counted meanwhile, and everything as before afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import dataloader as torch_dataloader
from watched_loops import Busy, FakeClock, FakeMeter, OwnNext, Slow, Stream

import fastload
from fastload import PackedDataset
from fastload import transforms as T
from fastload.diagnose.usage import Meter
from fastload.diagnose.watch import Diagnosis
from fastload.errors import StateError
from fastload.loader.epochs import EpochIterator


def watch(loader: Any, clock: FakeClock) -> Diagnosis:
    return Diagnosis(loader, meter=cast(Meter, FakeMeter(clock)), clock=clock)


def classes() -> list[Any]:
    base = torch_dataloader._BaseDataLoaderIter
    multi = torch_dataloader._MultiProcessingDataLoaderIter
    return [base.__init__, base.__next__, base._reset, multi._reset, EpochIterator.__next__]


def test_the_times_are_those_of_the_loop() -> None:
    clock = FakeClock()
    loader = TorchDataLoader(Slow(24, clock), batch_size=4)
    with watch(loader, clock) as d:
        for number, _ in enumerate(loader):
            clock.sleep(0.5 + number)
    loop = d.loop
    # Six batches of 4 * 0.25 s; the first one begins everything and is apart.
    np.testing.assert_allclose(loop.wait, [1.0] * 5)
    np.testing.assert_allclose(loop.step, [1.5, 2.5, 3.5, 4.5, 5.5])
    assert (loop.batch_size, loop.threads) == (4, 0)
    assert loop.rate == pytest.approx(20 / 22.5)
    assert loop.wait_share == pytest.approx(5 / 22.5)
    assert loop.notes["first_batch_seconds"] == pytest.approx([1.0])
    assert loop.loader.startswith("torch DataLoader asked in test_watch.py:")
    assert loop.read_bytes == pytest.approx(22_500, abs=2)


def test_between_epochs_nothing_counts() -> None:
    clock = FakeClock()
    loader = TorchDataLoader(Slow(12, clock), batch_size=4)
    with watch(loader, clock) as d:
        for _ in range(2):
            for _ in loader:
                clock.sleep(2)
            clock.sleep(1000)  # validation, a checkpoint
    np.testing.assert_allclose(d.loop.step, [2.0] * 4)
    np.testing.assert_allclose(d.loop.wait, [1.0] * 4)
    assert d.loop.notes["first_batch_seconds"] == pytest.approx([1.0, 1.0])
    assert d.loop.notes["watched_seconds"] == pytest.approx(12)
    assert d.loop.loader_cpu > 2 * 12  # the workers' two CPUs


def test_a_loop_that_is_left_ends_with_its_last_whole_step() -> None:
    clock = FakeClock()
    loader = TorchDataLoader(Slow(40, clock), batch_size=4)
    with watch(loader, clock) as d:
        for number, _ in enumerate(loader):
            clock.sleep(2)
            if number == 4:
                break
        clock.sleep(1000)
    np.testing.assert_allclose(d.loop.step, [2.0] * 3)
    assert d.loop.seconds == pytest.approx(9)


def test_the_busiest_loader_that_trains_is_the_loop() -> None:
    clock = FakeClock()
    train = TorchDataLoader(Slow(16, clock), batch_size=4)
    other = TorchDataLoader(Slow(12, clock), batch_size=4)
    evaluated = TorchDataLoader(Slow(80, clock), batch_size=2)
    with watch(None, clock) as d:
        for loader in (other, train):
            for _ in loader:
                clock.sleep(1)
        with torch.no_grad():
            for _ in evaluated:
                clock.sleep(1)
    assert d.loader is train
    assert [loop.batch_size for loop in d.loops] == [4, 4, 2]
    assert [len(loop.wait) for loop in d.loops] == [3, 2, 39]
    assert [len(loop.wait) for loop in cast("Any", d.loop.notes["other_loops"])] == [2, 39]


def test_only_the_given_loader_is_watched() -> None:
    clock = FakeClock()
    train, other = (TorchDataLoader(Slow(16, clock), batch_size=4) for _ in range(2))
    with watch(train, clock) as d:
        for _ in zip(train, other, strict=True):
            clock.sleep(1)
    assert len(d.loops) == 1
    np.testing.assert_allclose(d.loop.step, [2.0] * 3)  # the other one's second is of the step


def test_subclasses_and_streams_are_watched() -> None:
    clock = FakeClock()
    theirs: Any = OwnNext(Slow(16, clock), batch_size=4)
    stream: Any = TorchDataLoader(Stream(40), batch_size=4)
    with watch(None, clock) as d:
        words = {word for _, word in theirs}
        for _ in stream:
            clock.sleep(3)
    assert words == {"theirs"}
    assert [(loop.batch_size, len(loop.wait)) for loop in d.loops] == [(4, 9), (4, 3)]


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_are_watched(persistent: bool) -> None:
    loader = TorchDataLoader(Busy(120, 0.004), 4, num_workers=2, persistent_workers=persistent)
    with fastload.diagnose(loader) as d:
        got = [int(label) for _ in range(2) for _, labels in loader for label in labels]
    assert got == 2 * list(range(120))
    loop = d.loop
    assert (loop.threads, len(loop.wait)) == (2, 2 * 29)
    # 2 * 29 batches of 4 samples of 4 ms, in processes that have ended or not; what is prefetched while the
    # first batch is apart is the rest, and on a crowded machine starting them takes long.
    assert 0.5 * 0.928 < loop.loader_cpu < 10 * 0.928
    ready = cast("list[int]", loop.notes["ready_batches"])
    assert len(ready) == 58
    assert set(ready) <= set(range(5))
    assert loop.notes["prefetch_factor"] == 2


def test_our_loader_is_watched(packed: PackedDataset) -> None:
    loader = fastload.DataLoader(packed, 4, transform=T.RandomResizedCrop(32), num_workers=1, seed=0)
    with fastload.diagnose(loader) as d:
        batches = [batch for _ in range(2) for batch in loader]
    loop = d.loop
    assert len(batches) == 26
    assert (loop.batch_size, loop.threads, len(loop.wait)) == (4, 1, 24)
    assert loop.loader.startswith("fastload DataLoader asked in test_watch.py:")
    assert len(cast("list[int]", loop.notes["ready_batches"])) == 24
    assert loop.notes["batch_bytes"] == 4 * 3 * 32 * 32 + 4 * 8
    assert loop.copied_bytes is None  # nothing goes to a device
    loader.close()


def test_packs_are_counted_in_samples(packed: PackedDataset) -> None:
    packs = fastload.PackingSampler([1] * len(packed), 5)  # five samples each
    loader = fastload.DataLoader(packed, 2, sampler=packs, transform=T.RandomResizedCrop(32), seed=0)
    with fastload.diagnose(loader) as d:
        samples = [len(batch["valid"]) for _ in range(2) for batch in loader]
    assert d.loop.batch_size == 10
    assert max(samples) == 10
    loader.close()


def test_batches_and_errors_are_the_same() -> None:
    clock = FakeClock()
    loader = TorchDataLoader(Slow(16, clock), batch_size=4)
    plain = [labels.tolist() for _, labels in loader]
    with watch(loader, clock) as d:
        watched = [labels.tolist() for _, labels in loader]
        assert type(iter(loader)) is torch_dataloader._SingleProcessDataLoaderIter
    assert watched == plain
    assert len(d.loop.wait) == 3
    broken: Any = TorchDataLoader(cast("Any", [1, 2, 3]), sampler=[0, 1, 2, 7])
    with watch(broken, clock) as d, pytest.raises(IndexError):
        list(broken)
    assert len(d.loop.wait) == 2


def test_the_classes_are_put_back() -> None:
    before = classes()
    clock = FakeClock()
    loader = TorchDataLoader(Slow(16, clock), batch_size=4)
    with watch(loader, clock) as d:
        assert classes() != before
        with watch(None, clock) as inner:  # in each other, and each has everything
            for _ in loader:
                clock.sleep(1)
        assert classes() != before
    assert classes() == before
    assert len(d.loop.wait) == len(inner.loop.wait) == 3
    with pytest.raises(KeyboardInterrupt), watch(loader, clock):
        raise KeyboardInterrupt
    assert classes() == before


def test_somebody_else_s_change_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    loader = TorchDataLoader(Slow(16, clock), batch_size=4)
    base = torch_dataloader._BaseDataLoaderIter
    with watch(loader, clock):
        ours = base.__next__
        monkeypatch.setattr(base, "__next__", lambda self: (ours(self), "theirs"))
    assert next(iter(loader))[1] == "theirs"


def test_too_few_batches_are_said() -> None:
    clock = FakeClock()
    loader = TorchDataLoader(Slow(8, clock), batch_size=4)
    with watch(loader, clock) as d:
        list(loader)
    with pytest.raises(StateError, match=r"Too few batches of this loader .*: 1 counted, and at least 2"):
        _ = d.loop
    with watch(None, clock) as nothing:
        pass
    with pytest.raises(StateError, match=r"Too few batches of any loader .*: 0 counted"):
        _ = nothing.verdict


def test_what_is_no_loader_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a fastload.DataLoader or a torch.*Found: list"):
        fastload.diagnose([1, 2])


def test_a_forked_process_does_not_listen() -> None:
    clock = FakeClock()
    loader = TorchDataLoader(Slow(16, clock), batch_size=4)
    with watch(loader, clock) as d:
        for _ in loader:
            clock.sleep(1)
        child = os.fork()
        if child == 0:
            list(loader)
            os._exit(0 if len(d.loop.wait) == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_the_room_is_callable_however_it_was_imported() -> None:
    code = (
        "import fastload.diagnose.facts, fastload\n"
        "with fastload.diagnose() as d: pass\n"
        "from fastload import diagnose\n"
        "assert diagnose is fastload.diagnose and callable(diagnose)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(fastload.__file__).parents[1])
