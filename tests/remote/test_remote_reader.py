"""Shards in a store: the same records and batches as from files, and no hang when the store is bad."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_server import Fault, FaultServer, Rule
from process import in_child, thread_names
from quick_stores import quick

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.errors import ChecksumError, SampleError, ShardError, ShardTruncated, StateError

CROP = T.RandomResizedCrop(32)


@pytest.fixture
def shelf(folder: Path) -> Iterator[FaultServer]:
    """The folder of ``packed`` as a store."""
    with FaultServer(folder=folder) as running:
        yield running


@pytest.fixture
def store(shelf: FaultServer) -> Iterator[_C.RemoteStore]:
    """Reads from it."""
    made = store_of(shelf)
    yield made
    made.close()


def store_of(shelf: FaultServer, **changes: float) -> _C.RemoteStore:
    return _C.RemoteStore(shelf.url, "s3://set", signing="none", schedule=quick(**changes))


def remote(folder: Path, store: _C.RemoteStore, etag: str = "", more: int = 0) -> PackedDataset:
    """The dataset, whose shards are read from the store."""
    dataset = PackedDataset(folder)
    shards = [(shard.file, shard.size + more, etag) for shard in dataset.manifest.shards]
    dataset.reader = _C.Reader(dataset.index, shards, store)
    return dataset


def loader(dataset: PackedDataset) -> DataLoader:
    return DataLoader(dataset, batch_size=8, num_workers=2, seed=3, shuffle=True, transform=CROP)


def epoch(made: DataLoader) -> list[tuple[np.ndarray, np.ndarray]]:
    """All its batches."""
    return [(images.numpy().copy(), labels.numpy().copy()) for images, labels in made]


def ends_by_ctrl_c(action: Callable[[], Any], shelf: FaultServer) -> None:
    """The server answers nothing; Ctrl-C is pressed when it has been asked, and ends the action."""
    rule = Rule(Fault(hang=True))

    def press() -> None:
        while rule.done == 0 and not ended.is_set():
            time.sleep(0.01)
        if not ended.wait(0.2):  # the caller waits for the answer by then, or will soon
            os.kill(os.getpid(), signal.SIGINT)

    ended, presser = threading.Event(), threading.Thread(target=press)
    shelf.rules.append(rule)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            action()
    finally:
        ended.set()
        presser.join()
        shelf.rules.remove(rule)


def test_records_are_those_of_the_file(packed: PackedDataset, store: _C.RemoteStore) -> None:
    dataset = remote(packed.folder, store)
    assert len(dataset) == 52
    for sample in range(52):
        assert dataset.reader.read(sample) == packed.reader.read(sample)
    assert dataset.reader.shard_path(0).startswith("s3://set/")


def test_batches_are_those_of_the_files(
    packed: PackedDataset, shelf: FaultServer, store: _C.RemoteStore
) -> None:
    """Also while every third request fails."""
    shelf.rules.append(Rule(Fault(reset_after=700), every=3))
    with loader(PackedDataset(packed.folder)) as local, loader(remote(packed.folder, store)) as far:
        for _ in range(2):
            for (images, labels), (others, same) in zip(epoch(local), epoch(far), strict=True):
                np.testing.assert_array_equal(images, others)
                np.testing.assert_array_equal(labels, same)
    assert store.counts()["retries"] > 0


def test_damaged_bytes_are_found_each_time(
    packed: PackedDataset, shelf: FaultServer, store: _C.RemoteStore
) -> None:
    reader = remote(packed.folder, store).reader
    good = reader.read(5)
    shelf.rules.append(Rule(Fault(damage=True)))
    with pytest.raises(ChecksumError, match="s3://set/.*CRC-32C"):
        reader.read(5)
    shelf.rules.clear()
    assert reader.read(5) == good


def test_another_size_or_etag_is_another_object(packed: PackedDataset, store: _C.RemoteStore) -> None:
    with pytest.raises(ShardTruncated, match=r"it has \d+ bytes, expected are \d+"):
        remote(packed.folder, store, more=1).reader.read(0)
    with pytest.raises(ShardError, match='its ETag is "[^"]+", it was "old"'):
        remote(packed.folder, store, etag='"old"').reader.read(0)


def test_neighbours_are_asked_for_together(
    packed: PackedDataset, shelf: FaultServer, store: _C.RemoteStore
) -> None:
    dataset = remote(packed.folder, store)
    shelf.latency = 0.2  # reading ahead is faster than decoding, which asks for one at a time
    with DataLoader(dataset, batch_size=8, num_workers=2, shuffle=False, transform=CROP) as made:
        epoch(made)
    ranges = [request.headers["range"][6:].split("-") for request in shelf.requests]
    assert max(int(last) - int(first) for first, last in ranges) > 30_000  # of 113 KB


def test_a_forked_child_reads_by_itself(packed: PackedDataset, store: _C.RemoteStore) -> None:
    reader = remote(packed.folder, store).reader
    expected = reader.read(7)

    def read() -> None:
        assert reader.read(7) == expected
        assert "fastload-remote" in thread_names()

    assert in_child(read) == 0
    assert reader.read(7) == expected


def test_a_child_forked_in_the_middle_of_reading(packed: PackedDataset, store: _C.RemoteStore) -> None:
    reader = remote(packed.folder, store).reader
    expected = reader.read(7)
    ended = threading.Event()

    def read_on() -> None:
        while not ended.is_set():
            reader.read(3)

    threads = [threading.Thread(target=read_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert in_child(lambda: os._exit(int(reader.read(7) != expected))) == 0
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_ctrl_c_ends_a_read_that_hangs(packed: PackedDataset, shelf: FaultServer) -> None:
    store = store_of(shelf)
    reader = remote(packed.folder, store).reader
    ends_by_ctrl_c(partial(reader.read, 0), shelf)
    assert reader.read(0) == packed.reader.read(0)
    store.close()


def test_a_loader_is_closed_while_its_reads_hang(packed: PackedDataset, shelf: FaultServer) -> None:
    store = store_of(shelf)
    shelf.rules.append(Rule(Fault(hang=True), skip=2))
    made = loader(remote(packed.folder, store))
    batches = iter(made)
    failed: list[BaseException] = []

    def read() -> None:
        try:
            list(batches)
        except StateError as error:
            failed.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    while len(shelf.requests) < 3:
        time.sleep(0.01)
    made.close()
    reading.join(100)
    assert not reading.is_alive()
    assert "fastload-read" not in thread_names()
    store.close()


def test_ctrl_c_ends_an_epoch_whose_reads_hang(packed: PackedDataset, shelf: FaultServer) -> None:
    """What is left behind does not disturb the next epoch."""
    store = store_of(shelf)
    with loader(remote(packed.folder, store)) as made:
        ends_by_ctrl_c(partial(epoch, made), shelf)
        assert len(epoch(made)) == 7
    store.close()


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_store_that_is_gone_is_an_error_of_the_batch(
    packed: PackedDataset, shelf: FaultServer, on_error: str
) -> None:
    """Of whatever policy: that is for damaged samples."""
    store = store_of(shelf, patience=300)
    shelf.stop()
    made = DataLoader(
        remote(packed.folder, store), batch_size=8, num_workers=2, transform=CROP, on_error=on_error
    )
    words = "s3://set/.*could not be read.*Check that the store can be reached"
    with made, pytest.raises(SampleError, match=words) as found:
        epoch(made)
    assert isinstance(found.value.__cause__, ShardError)
    store.close()


def test_filling_a_cache_ends_while_its_reads_hang(packed: PackedDataset, shelf: FaultServer) -> None:
    store = store_of(shelf)
    shelf.rules.append(Rule(Fault(hang=True)))
    reader = remote(packed.folder, store).reader
    filler = _C.Filler(reader, _C.PageCacheTarget(reader), "", 0, 2)
    filler.start()
    while len(shelf.requests) == 0:
        time.sleep(0.01)
    filler.stop()
    assert "fastload-fill" not in thread_names()
    store.close()
