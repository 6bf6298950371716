"""Records through a cache: by several processes, with damage, after a death, for reading only."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from cache_folder import OpenFolder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload.cache.files import attach, create
from fastload.cache.layout import ENTRY, choose_room, encoded

NAME = "set.flc"
COUNT = 200
TABLE = 12288


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.bytes(int(size)) for size in rng.integers(1, 9000, COUNT)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, blobs: list[bytes]) -> PackedDataset:
    return plain_pack(tmp_path_factory.mktemp("set"), blobs, probe=False)


def limit_for(source: PackedDataset, share: float) -> int:
    """A file that has room for this share of the records' bytes."""
    contents = encoded(source)
    tables = (
        TABLE
        + -(-COUNT * 32 // 4096) * 4096
        + -(-(source.folder / "index.fli").stat().st_size // 4096) * 4096
    )
    return tables + int(share * contents.set_bytes)


def opened(source: PackedDataset, folder: OpenFolder, write: bool = True) -> PackedDataset:
    """The dataset as a process sees it that has read nothing yet."""
    return PackedDataset(source.folder).with_caches([attach(folder, NAME, write=write)])


def check(dataset: PackedDataset, blobs: list[bytes], seed: int = 0) -> dict[str, int]:
    """Read everything in some order; what that counted."""
    before = dataset.cache.counts()
    for sample in np.random.default_rng(seed).permutation(COUNT).tolist():
        assert dataset.read(sample) == blobs[sample]
    return {name: count - before[name] for name, count in dataset.cache.counts().items()}


@pytest.mark.parametrize("share", [1.0, 2 / 3, 0.1])
def test_each_epoch_after_the_first_hits_exactly_what_has_room(
    memory: OpenFolder, source: PackedDataset, blobs: list[bytes], share: float
) -> None:
    limit = limit_for(source, share)
    cache = create(memory, NAME, encoded(source), limit)
    room = cache.room_records
    assert cache.file_bytes <= limit
    assert cache.room_bytes > share * cache.set_bytes - 9000
    chosen = choose_room(encoded(source).lengths, int(share * cache.set_bytes))
    assert [cache.has_room(sample) for sample in range(COUNT)] == chosen.tolist()
    first, second = opened(source, memory), opened(source, memory)
    found = check(first, blobs)
    assert (found["hits"], found["misses"], found["stored"]) == (0, COUNT, room)
    for epoch in (1, 2):
        found = check(second, blobs, epoch)
        assert (found["hits"], found["misses"], found["stored"]) == (room, COUNT - room, 0)
    assert second.cache.count_ready() == room
    assert second.cache.counts()["ready_bytes"] == cache.room_bytes


def test_processes_fill_it_together(memory: OpenFolder, source: PackedDataset, blobs: list[bytes]) -> None:
    cache = create(memory, NAME, encoded(source), limit_for(source, 0.75))
    children = []
    for seed in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                found = check(opened(source, memory), blobs, seed)
                status = 0 if found["damaged"] + found["failed"] == 0 else 2
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert cache.count_ready() == cache.counts()["ready_records"] == cache.room_records
    assert check(opened(source, memory), blobs)["damaged"] == 0


def test_a_process_that_is_killed_in_the_middle_of_a_record(
    memory: OpenFolder, source: PackedDataset, blobs: list[bytes]
) -> None:
    cache = create(memory, NAME, encoded(source), 1 << 30)
    table = np.memmap(memory.path / NAME, ENTRY, "r", TABLE, (COUNT,))
    child = os.fork()
    if child == 0:
        # Half of a record is written, its state is not: nothing else can be seen of a store() that died.
        with (memory.path / NAME).open("r+b") as file:
            file.seek(int(table["offset"][3]))
            file.write(blobs[3][: len(blobs[3]) // 2])
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    found = check(opened(source, memory), blobs)
    assert (found["damaged"], found["stored"]) == (0, COUNT)
    assert cache.find(3) == blobs[3]


def test_damaged_records_are_counted_read_from_the_source_and_written_anew(
    memory: OpenFolder, source: PackedDataset, blobs: list[bytes]
) -> None:
    create(memory, NAME, encoded(source), 1 << 30)
    check(opened(source, memory), blobs)
    with (memory.path / NAME).open("r+b") as file:
        table = np.memmap(file, ENTRY, "r", TABLE, (COUNT,))
        for sample in (0, 7, 120, COUNT - 1):
            at = int(table["offset"][sample] + table["length"][sample] // 2)
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 16]))
    reader = opened(source, memory, write=False)
    assert check(reader, blobs)["damaged"] == 4
    healed = check(opened(source, memory), blobs)
    assert (healed["damaged"], healed["stored"], healed["hits"]) == (4, 4, COUNT - 4)
    assert healed["ready_records"] == 0  # four fewer, four more
    assert check(opened(source, memory), blobs)["damaged"] == 0


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_written_into_table_and_data_the_records_are_right(
    memory: OpenFolder, source: PackedDataset, blobs: list[bytes], data: st.DataObject
) -> None:
    path = memory.path / NAME
    path.unlink(missing_ok=True)
    cache = create(memory, NAME, encoded(source), limit_for(source, data.draw(st.floats(0.1, 1))))
    check(opened(source, memory), blobs)
    size = cache.file_bytes
    for _ in range(data.draw(st.integers(1, 5))):
        in_table = data.draw(st.booleans())
        at = data.draw(st.integers(TABLE, TABLE + COUNT * 32) if in_table else st.integers(8192, size - 1))
        noise = data.draw(st.binary(min_size=1, max_size=200))[: size - at]
        with path.open("r+b") as file:
            file.seek(at)
            file.write(noise)
    used = opened(source, memory)
    check(used, blobs)
    check(used, blobs, 1)
    assert check(opened(source, memory), blobs)["failed"] == 0
    assert path.stat().st_size == size


def test_reading_only_stores_nothing(memory: OpenFolder, source: PackedDataset, blobs: list[bytes]) -> None:
    cache = create(memory, NAME, encoded(source), 1 << 30)
    writer = opened(source, memory)
    for sample in range(0, COUNT, 2):
        writer.read(sample)
    found = check(opened(source, memory, write=False), blobs)
    assert (found["hits"], found["misses"], found["stored"]) == (COUNT // 2, COUNT // 2, 0)
    assert cache.count_ready() == COUNT // 2
    assert found["failed"] == 0


def test_a_cache_of_another_dataset_is_refused(
    memory: OpenFolder, source: PackedDataset, blobs: list[bytes]
) -> None:
    cache = create(memory, NAME, encoded(source), 1 << 30)
    other = plain_pack(source.folder.parent / "other", [*blobs[:-1], b"x"], probe=False)
    with pytest.raises(ValueError, match="records of another dataset than"):
        other.with_caches([cache])
    assert other.cache is None
