"""SIGTERM: callbacks between two batches, the handlers that were there before, and the end of the process."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process import in_child

from fastload import DataLoader
from fastload import transforms as T
from fastload.ranks.preemption import SignalNote

CROP = T.RandomResizedCrop(16)


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) == before


def load(folder: Path) -> DataLoader:
    return DataLoader(folder, 4, shuffle=True, num_workers=1, transform=CROP, seed=0)


def preempt() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_state_is_saved_between_two_batches_and_the_signal_ends_the_process(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "state.json"

    def run() -> None:
        loader = load(folder)
        loader.on_preemption(lambda: path.write_text(json.dumps(loader.state_dict())))
        for step, _ in enumerate(loader):
            if step == 2:
                preempt()
                assert not path.exists()  # the step goes on to its end

    assert in_child(run) == -signal.SIGTERM
    state = json.loads(path.read_text())
    assert state["position"] == 12
    whole, resumed = load(folder), load(folder)
    resumed.load_state_dict(state)
    wanted = [labels.tolist() for _, labels in whole][3:]
    assert [labels.tolist() for _, labels in resumed] == wanted


def test_a_handler_that_was_there_is_called_at_once_and_keeps_the_process(folder: Path) -> None:
    calls: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append("handler"))
    try:
        loader = load(folder)
        loader.on_preemption(lambda: calls.append("callback"))
        iterator = iter(loader)
        next(iterator)
        preempt()
        assert calls == ["handler"]
        next(iterator)
        assert calls == ["handler", "callback"]
        next(iterator)
        preempt()  # callbacks run once; the former handler is in place again
        next(iterator)
        assert calls == ["handler", "callback", "handler"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_any_loader_of_the_process_runs_them(folder: Path) -> None:
    """The signal may come during validation."""
    calls: list[Any] = []
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        train, val = load(folder), load(folder)
        train.on_preemption(lambda: calls.append(train.state_dict()["position"]))
        next(iter(train))
        iterator = iter(val)
        next(iterator)
        preempt()
        next(iterator)
        assert calls == [4]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("way", ["closed", "deleted", "twice", "passed on", "ignored"])
def test_the_signal_is_not_swallowed(folder: Path, way: str) -> None:
    """Where nobody will run a callback any more, the process ends as it would have."""

    def run() -> None:
        if way == "ignored":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        loader = load(folder)
        loader.on_preemption(lambda: None)
        if way == "passed on":
            ours = signal.getsignal(signal.SIGTERM)
            assert callable(ours)
            signal.signal(signal.SIGTERM, lambda number, frame: ours(number, frame))
        if way in ("closed", "passed on"):
            loader.close()
        if way == "deleted":
            del loader
        preempt()
        if way in ("twice", "ignored"):
            preempt()

    assert in_child(run) == (0 if way == "ignored" else -signal.SIGTERM)


def test_only_in_the_main_thread(folder: Path) -> None:
    raised: list[BaseException] = []

    def register() -> None:
        try:
            load(folder).on_preemption(lambda: None)
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=register)
    thread.start()
    thread.join()
    assert "in the main thread only" in str(raised[0])


def test_a_note_of_several_signals() -> None:
    note = SignalNote((signal.SIGTERM, signal.SIGINT))
    note.watch()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        assert note.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        note.restore()
