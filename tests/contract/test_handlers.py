"""Handlers of signals that raise: no batch is lost, nothing is swallowed, handlers stay what they were."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from process import in_child

from fastload import DataLoader
from fastload import transforms as T
from fastload.backends import worker_processes
from fastload.backends.worker_processes import Parent, WorkerInit
from fastload.errors import NotDelivered
from fastload.machine.interrupts import interrupts_kept, raised_by_a_handler


class Came(Exception):
    """What the handlers here raise."""


def come(number: int, frame: FrameType | None) -> None:
    raise Came(number)


class Program:
    """Handlers of other shapes."""

    def method(self, number: int, frame: FrameType | None) -> None:
        raise Came(number)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise Came(number)


def with_more(more: str, number: int, frame: FrameType | None) -> None:
    raise Came(more, number)


def sends_inside(numbers: list[int], then: Callable[[], None]) -> None:
    with interrupts_kept():
        for number in numbers:
            signal.raise_signal(number)
        then()


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    """As they were before the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_comes_inside_is_handled_at_the_end() -> None:
    signal.signal(signal.SIGTERM, come)
    inside = []
    with pytest.raises(Came):
        sends_inside([signal.SIGTERM], lambda: inside.append(1))
    assert inside == [1]
    assert signal.getsignal(signal.SIGTERM) is come


def test_all_that_came_are_handled_though_the_first_raises() -> None:
    came: list[int] = []
    signal.signal(signal.SIGTERM, come)
    signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    inside: list[list[int]] = []
    with pytest.raises(Came):
        sends_inside([signal.SIGTERM, signal.SIGUSR1], lambda: inside.append([*came]))
    assert (inside, came) == ([[]], [signal.SIGUSR1])


def test_a_handler_that_the_program_sets_inside_stays() -> None:
    signal.signal(signal.SIGTERM, come)
    with interrupts_kept():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_handler_that_raises_while_others_are_put_back_leaves_none_deaf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGUSR1's is back, and raises; SIGTERM's is not yet: what comes then must reach it all the same."""
    set_handler = signal.signal
    signal.signal(signal.SIGUSR1, come)
    signal.signal(signal.SIGTERM, come)

    def interrupted(number: int, handler: Any) -> Any:
        former = set_handler(number, handler)
        if number == signal.SIGUSR1 and handler is come:
            signal.raise_signal(number)
        return former

    with pytest.raises(Came), interrupts_kept():
        monkeypatch.setattr(signal, "signal", interrupted)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is not come, "the case that is meant"
    with pytest.raises(Came):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("handler", [come, Program().method, Program(), partial(with_more, "more")])
def test_an_error_of_a_handler_is_known(handler: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGUSR1, handler)
    with pytest.raises(Came) as raised:
        signal.raise_signal(signal.SIGUSR1)
    assert raised_by_a_handler(raised.value)
    with pytest.raises(ZeroDivisionError) as other:
        1 // 0  # noqa: B018
    assert not raised_by_a_handler(other.value)


def test_an_error_of_a_handler_is_not_the_batchs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes out of next(), and the batch that was asked for comes next; not so after its own error."""
    signal.signal(signal.SIGUSR1, come)
    with DataLoader(folder, 4, num_workers=1, transform=T.CenterCrop(8)) as loader:
        wanted = [labels.tolist() for _, labels in loader]
        iterator, got = iter(loader), []
        got.append(next(iterator)[1].tolist())
        backend = loader._epochs.backend
        take = type(backend).batch

        def interrupted(self: Any, key: Any) -> Any:
            monkeypatch.undo()
            signal.raise_signal(signal.SIGUSR1)
            return take(self, key)

        monkeypatch.setattr(type(backend), "batch", interrupted)
        with pytest.raises(Came):
            next(iterator)
        assert loader.state_dict()["position"] == 4
        got += [labels.tolist() for _, labels in iterator]
    assert got == wanted


def test_a_handler_that_raises_while_the_loader_begins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank and seed are fixed by then; the handshake that belongs to them is not lost."""
    signal.signal(signal.SIGUSR1, come)
    with DataLoader(folder, 4, num_workers=1, transform=T.CenterCrop(8)) as loader:
        now = type(loader._loader_plan)._now

        def interrupted(self: Any) -> Any:
            if self.beginning.has_begun:
                monkeypatch.undo()
                signal.raise_signal(signal.SIGUSR1)
            return now(self)

        monkeypatch.setattr(type(loader._loader_plan), "_now", interrupted)
        iterator = iter(loader)
        with pytest.raises(Came):
            next(iterator)
        assert sum(len(labels) for _, labels in iterator) == 52


def brighten(image: torch.Tensor) -> torch.Tensor:
    return image + 1


def rest(iterator: Iterator[Any], got: list[list[int]]) -> None:
    for _, labels in iterator:
        got.append(labels.tolist())


def ended_by_itself() -> None:
    """A worker whose parent was killed before it began: its parent is another process by now."""
    parent = Parent(by_server=False)
    process = multiprocessing.get_context("fork").Process(target=begin_without_parent, args=(parent,))
    process.start()
    process.join()
    os._exit(process.exitcode or 0)


def begin_without_parent(parent: Parent) -> None:
    os.getppid = lambda: 1  # type: ignore[method-assign]
    WorkerInit(parent, None)(0)


def test_a_worker_that_begins_without_its_parent_ends() -> None:
    """torch's watchdog compares with the parent that it began with, here the wrong one already."""
    assert in_child(ended_by_itself) == 1


# torch's handler of SIGCHLD raises wherever the main thread is, also in a callback of the garbage collector.
def test_torchs_handler_may_run_while_an_error_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises wherever the main thread is when a worker dies."""
    words = "DataLoader worker (pid 7) is killed by signal: Killed."

    def interrupted(_: Exception) -> bool:
        raise RuntimeError(words)

    monkeypatch.setattr(worker_processes, "_is_reraised", interrupted)
    with pytest.raises(NotDelivered, match=r"worker \(pid 7\)"):
        worker_processes.raise_if_not_delivered(None, ConnectionResetError())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::fastload.errors.SlowPathWarning")
@pytest.mark.parametrize("persistent", [False, True])
def test_a_killed_worker_costs_no_batch(folder: Path, persistent: bool) -> None:
    """Persistent workers are made anew: those that are left give no batch any more."""
    steps = T.Compose([T.CenterCrop(8), T.ToDtype("uint8"), brighten])
    with DataLoader(folder, 4, num_workers=2, persistent_workers=persistent, transform=steps) as loader:
        wanted = [labels.tolist() for _, labels in loader]
        iterator = iter(loader)
        got = [next(iterator)[1].tolist()]
        os.kill(loader._epochs.backend._stage._iterator._workers[0].pid, signal.SIGKILL)
        with pytest.raises(NotDelivered, match=r"DataLoader worker \(pid"):
            rest(iterator, got)
        rest(iterator, got)
        assert got == wanted
        assert [labels.tolist() for _, labels in loader] == wanted
