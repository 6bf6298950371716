"""The worker processes of Python callables: torch's options for them, their end, and how they die."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from epochs import all_batches, same
from picklable import whose
from process import HANG, in_child, settled
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as torch_iterator

import fastload
from fastload import DataLoader
from fastload import transforms as T
from fastload.backends.native import NativeBackend
from fastload.errors import StateError

CROP = T.RandomResizedCrop(16)


def load(folder: Path, workers: int | None, **options: Any) -> DataLoader:
    return DataLoader(
        folder, 4, True, seed=1, num_workers=workers, **{"transform": T.Compose([CROP, whose]), **options}
    )


@pytest.fixture(autouse=True)
def nobody_else_has_workers() -> None:
    """A loader that an earlier test has left in a cycle of references ends its workers when collected."""
    gc.collect()
    assert settled(children, set()) == set()


def children() -> set[int]:
    return {process.pid for process in multiprocessing.active_children() if process.pid is not None}


def pids(batches: Any) -> list[int]:
    return [int(row[0]) for values, _ in batches for row in values]


def test_an_epoch_of_persistent_workers_that_did_not_begin(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ctrl-C while they are asked whether they are there: what they answer is no batch of the next
    epoch."""
    with load(folder, 2, persistent_workers=True) as loader:
        assert len(pids(loader)) == 52
        with monkeypatch.context() as patch:

            def interrupted(iterator: Any) -> Any:
                raise KeyboardInterrupt

            patch.setattr(torch_iterator, "_get_data", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iter(loader))
        for _ in range(2):
            assert len(pids(loader)) == 52


def test_who_runs_them(folder: Path) -> None:
    assert set(pids(load(folder, 0))) == {os.getpid()}
    found = pids(load(folder, 2))
    assert len(set(found)) == 2
    assert os.getpid() not in found
    with load(folder, None) as loader:
        assert len(set(pids(loader))) == loader.num_workers


def test_workers_are_an_epochs_or_persistent(folder: Path) -> None:
    fresh = load(folder, 2)
    assert not set(pids(fresh)) & set(pids(fresh))
    assert settled(children, set()) == set()
    persistent = load(folder, 2, persistent_workers=True)
    assert set(pids(persistent)) == set(pids(persistent)) == children()
    next(iter(persistent))
    assert set(pids(persistent)) == children()
    persistent.close()
    assert settled(children, set()) == set()


@pytest.mark.parametrize(
    ("context", "crop"),
    [("spawn", CROP), ("forkserver", T.Resize(20)), (multiprocessing.get_context("fork"), CROP)],
)
def test_every_way_to_start_them(folder: Path, context: Any, crop: Any) -> None:
    """With pictures of one size, in shared memory, and of different sizes, which workers decode."""
    transform = T.Compose([crop, whose])
    plain = [values[:, 1] for values, _ in load(folder, 0, transform=transform)]
    loader = load(folder, 1, multiprocessing_context=context, transform=transform)
    found = [values[:, 1] for values, _ in loader]
    assert len(found) == len(plain) == 13
    assert all(map(torch.equal, found, plain))


def number_of_worker(image: Any) -> torch.Tensor:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    return torch.tensor([info.id, int(os.environ["FASTLOAD_TEST_WORKER"])])


def name_worker(worker: int) -> None:
    os.environ["FASTLOAD_TEST_WORKER"] = str(worker)


def test_worker_init_fn_and_worker_info(folder: Path) -> None:
    transform = T.Compose([CROP, number_of_worker])
    values = torch.cat([v for v, _ in load(folder, 3, transform=transform, worker_init_fn=name_worker)])
    assert set(values[:, 0].tolist()) == {0, 1, 2}
    assert torch.equal(values[:, 0], values[:, 1])


def dies(image: Any) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


# torch raises in its signal handler, which may run where an exception can only be printed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_dead_worker_is_an_error(folder: Path) -> None:
    loader = load(folder, 2, transform=T.Compose([CROP, dies]))
    with pytest.raises(RuntimeError, match=r"worker \(pid.*(killed by signal|exited unexpectedly)"):
        next(iter(loader))
    loader.close()
    assert settled(children, set()) == set()


class Waits:
    """Until there is a file."""

    def __init__(self, go: Path) -> None:
        self.go = go

    def __call__(self, image: Any) -> torch.Tensor:
        while not self.go.exists():
            time.sleep(0.01)
        return torch.zeros(1)


def test_timeout(folder: Path, tmp_path: Path) -> None:
    waits = Waits(tmp_path / "go")
    loader = load(folder, 1, transform=T.Compose([CROP, waits]), timeout=1)
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(iter(loader))
    waits.go.touch()
    loader.close()
    assert settled(children, set()) == set()


def test_a_loader_that_is_dropped_ends_its_workers(folder: Path) -> None:
    loader = load(folder, 2)
    batches = iter(loader)
    next(batches)
    assert len(children()) == 2
    del loader, batches
    gc.collect()
    assert settled(children, set()) == set()


def test_a_loader_may_be_closed_on_the_watchers_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage collector runs wherever Python does."""
    loader, resolve, closed = load(folder, 2), NativeBackend.resolve, threading.Event()

    def and_close(self: NativeBackend, pending: Any, faults: Any) -> None:
        resolve(self, pending, faults)
        if pending.key.step == 2:
            loader.close()
            closed.set()

    monkeypatch.setattr(NativeBackend, "resolve", and_close)
    with pytest.raises((StateError, AttributeError, RuntimeError)):
        list(loader)
    assert closed.wait(60)
    assert settled(children, set()) == set()


def drop(loader: DataLoader, batches: Iterator[Any]) -> None:
    del loader, batches
    gc.collect()


def test_a_forked_child_leaves_the_parents_workers_alone(folder: Path) -> None:
    expected = all_batches((v[:, 1:], labels) for v, labels in load(folder, 0))
    loader = load(folder, 2)
    batches = iter(loader)
    found = [next(batches)]
    mine = children()

    def child() -> None:
        drop(loader, batches)

    assert in_child(child) == 0
    assert in_child(loader.close) == 0
    found += list(batches)
    assert same([(v[:, 1:], labels) for v, labels in found], expected)
    assert set(pids(found)) <= mine


def in_daemon(folder: Path, queue: Any) -> None:
    queue.put(set(pids(load(folder, 2))) == {os.getpid()})


def test_within_a_worker_of_somebody_else(folder: Path) -> None:
    """Daemonic processes may have no children."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=in_daemon, args=(folder, queue), daemon=True)
    with allowed_to_fork():
        process.start()
    process.join(HANG)
    assert process.exitcode == 0
    assert queue.get()


@contextmanager
def allowed_to_fork() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        yield


def test_memory_plan_counts_the_workers_slots(folder: Path) -> None:
    plan = load(folder, 2, prefetch_factor=2).memory_plan()
    assert plan["slots"] == 2 * 2 + 3
    assert load(folder, 2, prefetch_factor=9).memory_plan()["slots"] == 2 * 5 + 3
    assert load(folder, 0, prefetch_factor=2).memory_plan()["slots"] == 4


def test_replacing_torchs_loader_by_ours_does_not_recurse(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.utils.data, "DataLoader", fastload.DataLoader)
    assert len(list(load(folder, 2))) == 13


def test_batches_of_a_batch_sampler_grow(folder: Path) -> None:
    sizes = [[0], list(range(20)), [1, 2, 3], list(range(40))]
    loader = DataLoader(
        folder,
        batch_sampler=sizes,
        num_workers=2,
        seed=1,
        transform=T.Compose([CROP, T.ToDtype("uint8"), clone]),
    )
    plain = DataLoader(folder, batch_sampler=sizes, num_workers=2, seed=1, transform=CROP)
    assert same(all_batches(loader), all_batches(plain))


def clone(image: torch.Tensor) -> torch.Tensor:
    return image.clone()


def test_unpicklable_callables_under_spawn_say_so(folder: Path) -> None:
    loader = load(folder, 1, transform=T.Compose([CROP, lambda image: 0]), multiprocessing_context="spawn")
    with pytest.raises(Exception, match="pickle|lambda"):
        next(iter(loader))
