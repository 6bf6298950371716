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


@pytest.mark.parametrize("when", ["after", "inside"])
def test_a_callback_that_registers_itself_again_hears_the_next_signal(folder: Path, when: str) -> None:
    """Also one that comes before the callback is through."""
    calls: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: calls.append("handler"))
    try:
        loader = load(folder)

        def again() -> None:
            calls.append("callback")
            if calls.count("callback") < 3:
                loader.on_preemption(again)
                if when == "inside":
                    preempt()

        loader.on_preemption(again)
        iterator = iter(loader)
        next(iterator)
        preempt()
        for _ in range(3):
            next(iterator)
            if when == "after" and calls.count("callback") < 3:
                preempt()
        assert calls == ["handler", "callback"] * 3
        assert signal.getsignal(signal.SIGTERM) is not before
        loader.close()
        preempt()
        assert calls.count("handler") == 4
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("what", ["closes it", "drops it", "takes batches"])
def test_a_callback_comes_to_its_end(folder: Path, tmp_path: Path, what: str) -> None:
    """What it does with its loader, or another one, does not let the signal end the process meanwhile."""
    path = tmp_path / "saved"

    def run() -> None:
        loaders = [load(folder)]

        def save() -> None:
            if what == "closes it":
                loaders[0].close()
            elif what == "drops it":
                loaders.clear()
            else:
                next(iter(load(folder)))
            path.write_text("saved")

        loaders[0].on_preemption(save)
        other = load(folder)
        preempt()
        next(iter(other))
        path.write_text("it went on")

    assert in_child(run) == -signal.SIGTERM
    assert path.read_text() == "saved"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_loader_whose_callbacks_have_run_holds_no_signal_back(folder: Path) -> None:
    def run() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        first, second = load(folder), load(folder)
        first.on_preemption(lambda: None)
        preempt()
        next(iter(first))  # it is through, and lives on
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        second.on_preemption(lambda: None)
        second.close()
        preempt()

    assert in_child(run) == -signal.SIGTERM


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
