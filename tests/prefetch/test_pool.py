"""Loaders of one process share its threads: never more of them, all make progress, any order of closing."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from epochs import all_batches, same
from pictures import encoded, picture
from plain_pack import plain_pack
from process import HANG, decoding_threads

from fastload import DataLoader, PackedDataset, errors
from fastload import transforms as T
from fastload._native import _C
from fastload.backends import native as engines

CROP = T.RandomResizedCrop(48)
EVAL = T.Compose([T.Resize(50), T.CenterCrop(48)])


@pytest.fixture(autouse=True)
def nobody_else() -> Iterator[None]:
    """No loader of another test holds threads, and none of this one's is left."""
    gc.collect()
    assert _C.pool_threads() == 0
    yield
    gc.collect()
    assert _C.pool_threads() == 0


def load(folder: Path, threads: int, **options: Any) -> DataLoader:
    return DataLoader(
        folder,
        **{"batch_size": 4, "num_workers": threads, "transform": CROP, "shuffle": True, "seed": 0, **options},
    )


@pytest.fixture(scope="module")
def gifs(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """24 GIFs, which a Python function decodes: the tests' own."""
    blobs = [encoded(picture(i, 50, 50), "GIF") for i in range(24)]
    return plain_pack(tmp_path_factory.mktemp("gifs"), blobs, range(24))


class Decoding:
    """Stands for Pillow: counts the threads that are decoding at once.

    Args:
        together: so many must have been in it at once before any leaves it, from when it is set.
        action: called by the first.
    """

    def __init__(self, together: int = 0, action: Any = None) -> None:
        self.together = together
        self.met = threading.Event()
        self.action = action
        self.now = self.most = self.calls = 0
        self.lock = threading.Lock()

    def __call__(self, data: bytes, max_pixels: int) -> np.ndarray[Any, Any]:
        with self.lock:
            self.calls += 1
            first = self.calls == 1
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self.together:
                self.met.set()
        if self.together:
            self.met.wait(60)
            time.sleep(0.001)  # so that one thread too many would be met
        if first and self.action is not None:
            self.action()
        with self.lock:
            self.now -= 1
        return np.zeros((50, 50, 3), np.uint8)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)


def is_ready(loader: DataLoader) -> bool:
    """All that it prepares is there."""
    feeder: Any = loader._epochs.started().feeder  # type: ignore[union-attr]
    return bool(feeder.complete == len(feeder._queue))


@pytest.mark.parametrize("workers", [(3, 3), (2, 3), (3, 1)])
def test_alternating_loaders_have_the_threads_of_one(folder: Path, workers: tuple[int, int]) -> None:
    alone = [all_batches(load(folder, n, seed=seed)) for seed, n in enumerate(workers)]
    before = decoding_threads()
    loaders = [load(folder, n, seed=seed) for seed, n in enumerate(workers)]
    found: list[list[Any]] = [[], []]
    for pair in zip(*loaders, strict=True):
        for batches, (images, labels) in zip(found, pair, strict=True):
            batches.append((images.clone(), labels.clone()))
        assert decoding_threads() == before + max(workers)
    assert all(same(a, b) for a, b in zip(found, alone, strict=True))
    for loader in loaders:
        loader.close()
    assert decoding_threads() == before


def test_validation_inside_the_training_loop(folder: Path) -> None:
    before = decoding_threads()
    with load(folder, 2) as train, load(folder, 2, shuffle=False, transform=EVAL) as val:
        expected = all_batches(val)
        reference = all_batches(load(folder, 2))
        found = []
        for images, labels in train:
            found.append((images.clone(), labels.clone()))
            assert same(all_batches(val), expected)
            assert decoding_threads() == before + 2
        assert same(found, reference)


@pytest.mark.parametrize(("first", "second", "most"), [(2, 2, 2), (1, 3, 3), (3, 1, 3)])
def test_no_more_threads_decode_than_the_larger_loader_may(
    gifs: PackedDataset, monkeypatch: pytest.MonkeyPatch, first: int, second: int, most: int
) -> None:
    decoding = Decoding()
    monkeypatch.setattr(engines, "decode_with_pil", decoding)
    with load(gifs, first, prefetch_factor=4) as one, load(gifs, second, prefetch_factor=4) as two:
        for number, _ in enumerate(zip(one, two, strict=True)):
            if number == 0:  # both have batches ready, so that later ones may wait for threads
                wait_for(lambda: all(map(is_ready, (one, two))))
                decoding.met.clear()
                decoding.together = most
        assert decoding.met.is_set()
    assert decoding.calls >= 48  # and some of the next epoch
    assert decoding.most == most


def test_a_loaders_own_limit_holds_in_a_larger_pool(
    gifs: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(gifs, 5) as large:
        next(iter(large))
        decoding = Decoding(together=2)
        monkeypatch.setattr(engines, "decode_with_pil", decoding)
        with load(gifs, 2, prefetch_factor=4) as small:
            all_batches(small)
        assert _C.pool_threads() == 5
    assert decoding.most == 2


def test_a_busy_loader_does_not_starve_another(gifs: PackedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, a long queue of the first loader's: the second's batch comes in turn, not after it."""
    calls: list[str] = []
    go_on = threading.Event()

    def decoder(name: str) -> Any:
        def decode(data: bytes, max_pixels: int) -> np.ndarray[Any, Any]:
            calls.append(name)
            if len(calls) > 4:
                go_on.wait(60)
                time.sleep(0.005)
            return np.zeros((50, 50, 3), np.uint8)

        return decode

    with load(gifs, 1, prefetch_factor=5) as first, load(gifs, 1) as second:
        monkeypatch.setattr(engines, "decode_with_pil", decoder("first"))
        queue = iter(first)
        next(queue)  # 20 more samples are in work now, and wait
        monkeypatch.setattr(engines, "decode_with_pil", decoder("second"))
        backend: Any = second._epochs.started()  # makes its engine
        asking = iter(second)
        consumer = threading.Thread(target=next, args=(asking,))
        consumer.start()
        wait_for(lambda: len(backend.feeder._queue) > 0)
        go_on.set()  # the second one's samples are in work, too
        consumer.join(60)
        behind = calls.count("first")
        all_batches(queue)
    assert behind < 24
    turns = calls[calls.index("second") :][:8]
    assert turns.count("first") == turns.count("second") == 4


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_closing_in_any_order_leaves_the_others_running(folder: Path, order: tuple[int, ...]) -> None:
    before = decoding_threads()
    loaders = [load(folder, n) for n in (1, 2, 4)]
    iterators = [iter(loader) for loader in loaders]
    for iterator in iterators:
        next(iterator)
    open_loaders = {0: 1, 1: 2, 2: 4}
    for number in order:
        loaders[number].close()
        del open_loaders[number]
        assert decoding_threads() == before + max(open_loaders.values(), default=0)
        for other in open_loaders:
            next(iterators[other])
    for loader in loaders:
        with pytest.raises(errors.StateError, match="closed"):
            next(iter(loader))


def test_cancelling_one_leaves_the_other_alone(folder: Path) -> None:
    with load(folder, 2) as kept, load(folder, 2) as dropped:
        reference = all_batches(load(folder, 2))
        found = []
        for images, labels in kept:
            found.append((images.clone(), labels.clone()))
            for _ in dropped:
                break
        assert same(found, reference)


def test_many_threads_may_open_use_and_close_loaders_at_once(folder: Path) -> None:
    expected = all_batches(load(folder, 2))
    wrong: list[int] = []

    def run(number: int) -> None:
        for turn in range(6):
            with load(folder, 1 + (number + turn) % 4) as loader:
                if not same(all_batches(loader), expected):
                    wrong.append(number)

    runners = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(60)
    assert not any(runner.is_alive() for runner in runners)
    assert wrong == []


def test_a_loader_may_be_closed_on_a_decoding_thread(
    gifs: PackedDataset, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the garbage collector does, which runs wherever Python code runs."""
    other = load(folder, 3)
    next(iter(other))
    with load(gifs, 2) as loader:
        monkeypatch.setattr(engines, "decode_with_pil", Decoding(action=other.close))
        assert len(all_batches(loader)) == 6
    with pytest.raises(errors.StateError, match="closed"):
        next(iter(other))


def test_a_loader_that_is_closed_on_its_own_thread_ends(
    gifs: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = load(gifs, 2)
    decoding = Decoding(action=loader.close)
    monkeypatch.setattr(engines, "decode_with_pil", decoding)
    with pytest.raises(errors.StateError, match="closed"):
        all_batches(loader)
    decoding.action = None  # the loader must not own itself
    with load(gifs, 1) as fresh:  # its close() ends the threads that could not be waited for
        all_batches(fresh)


def test_a_waiting_consumer_hears_at_once_that_the_loader_is_closed(
    gifs: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the records in work are still being decoded."""
    decodes, ends = threading.Event(), threading.Event()

    def decode() -> None:
        decodes.set()
        assert ends.wait(60)

    monkeypatch.setattr(engines, "decode_with_pil", Decoding(action=decode))
    loader = load(gifs, 2)
    heard: list[str] = []

    def consume() -> None:
        with pytest.raises(errors.StateError) as caught:
            all_batches(loader)  # not only the first batch: whose record is decoded first is chance
        heard.append(str(caught.value))

    consumer = threading.Thread(target=consume)
    closer = threading.Thread(target=loader.close)
    consumer.start()
    try:
        assert decodes.wait(60)
        closer.start()
        consumer.join(60)
        assert heard == ["The loader is closed. Create a new DataLoader."]
        assert closer.is_alive()  # it waits for the decoding threads
    finally:
        ends.set()
        consumer.join(60)
    closer.join(60)
    assert not closer.is_alive()


def test_ctrl_c_in_a_nested_loop(folder: Path) -> None:
    script = f"""
        from fastload import DataLoader, transforms as T
        crop = T.RandomResizedCrop(64)
        train = DataLoader({str(folder)!r}, 4, shuffle=True, transform=crop, num_workers=2)
        val = DataLoader({str(folder)!r}, 4, transform=crop, num_workers=2)
        print("ready", flush=True)
        while True:
            for batch in train:
                for other in val:
                    pass
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.4)
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "KeyboardInterrupt" in text


def test_idle_time_counts_empty_seats_within_the_limit(folder: Path) -> None:
    with load(folder, 2) as loader:
        next(iter(loader))
        backend, idle = loader._epochs.started(), [0.0]
        limit = time.monotonic() + 60
        while min(idle) <= 0.1 and time.monotonic() < limit:
            time.sleep(0.05)
            idle = [thread["seconds"]["idle"] for thread in backend.counts().threads]
    assert len(idle) == 2
    assert min(idle) > 0.1
