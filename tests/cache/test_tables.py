"""Copies of index.fli and entries.fli in the cache: made by one, used by all, never trusted."""

from __future__ import annotations

import os
import signal
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_folder import OpenFolder
from pack_trees import class_tree

from fastload import PackedDataset
from fastload.cache.files import attach, create
from fastload.cache.layout import encoded
from fastload.cache.opening import copy_table, start_copies
from fastload.packing import PackOptions, pack

NAME = "set.flc"
FILES = ("index.fli", "entries.fli")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of JPEGs, with entry points."""
    root = tmp_path_factory.mktemp("tables")
    pack(class_tree(root / "tree", 2, 10), root / "set", PackOptions(num_proc=1))
    return root / "set"


@pytest.fixture
def cache(memory: OpenFolder, folder: Path) -> Any:
    return create(memory, NAME, encoded(PackedDataset(folder)), 1 << 30)


def used(memory: OpenFolder, folder: Path) -> PackedDataset:
    return PackedDataset(folder).with_caches([attach(memory, NAME)])


def copied(memory: OpenFolder, cache: Any, table: int) -> bytes:
    begin, size = cache.copy_range(table)
    return (memory.path / NAME).read_bytes()[begin : begin + size]


def check(dataset: PackedDataset) -> None:
    """Every value is as in the files."""
    plain = PackedDataset(dataset.folder)
    assert np.array_equal(dataset.records, plain.records)
    for sample in range(len(plain)):
        assert dataset.key(sample) == plain.key(sample)
        assert dataset.entries.get(sample) == plain.entries.get(sample)
    dataset.index.verify()
    dataset.entries.verify()
    assert dataset.entries.damaged == 0


def test_a_thread_copies_them_and_they_are_used(memory: OpenFolder, folder: Path, cache: Any) -> None:
    dataset, later = used(memory, folder), used(memory, folder)
    check(later)
    thread = start_copies(cache, folder)
    assert thread is not None
    thread.join(100)
    for table, name in enumerate(FILES):
        assert cache.has_copy(table)
        assert copied(memory, cache, table) == (folder / name).read_bytes()
    assert start_copies(cache, folder) is None
    check(dataset)
    check(later)


def test_one_process_copies_and_a_dead_ones_work_is_taken_over(
    memory: OpenFolder, folder: Path, cache: Any
) -> None:
    begin, size = cache.copy_range(0)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        own = attach(memory, NAME)
        own.claim(begin, begin + size)
        own.write_copy(0, 0, np.frombuffer((folder / FILES[0]).read_bytes()[:100], np.uint8))
        os.write(theirs, b"x")
        signal.pause()
    assert os.read(ours, 1) == b"x"
    assert not copy_table(weakref.ref(cache), 0, folder / FILES[0])
    assert copy_table(weakref.ref(cache), 1, folder / FILES[1])
    assert (cache.has_copy(0), cache.has_copy(1)) == (False, True)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ours)
    os.close(theirs)
    assert copy_table(weakref.ref(cache), 0, folder / FILES[0])
    assert copied(memory, cache, 0) == (folder / FILES[0]).read_bytes()
    check(used(memory, folder))


@pytest.mark.parametrize("table", [0, 1])
def test_a_damaged_copy_is_not_used(memory: OpenFolder, folder: Path, cache: Any, table: int) -> None:
    for number in (0, 1):
        assert copy_table(weakref.ref(cache), number, folder / FILES[number])
    begin, size = cache.copy_range(table)
    rng = np.random.default_rng(4)
    for place in [0, 90, 121, size - 1, *rng.integers(4096, size, 10).tolist()]:
        with (memory.path / NAME).open("r+b") as file:
            file.seek(begin + place)
            byte = file.read(1)
            file.seek(begin + place)
            file.write(bytes([byte[0] ^ 32]))
        check(used(memory, folder))


def test_another_file_than_the_one_the_cache_was_made_for_is_not_copied(
    memory: OpenFolder, folder: Path, cache: Any, tmp_path: Path
) -> None:
    other = tmp_path / "entries.fli"
    other.write_bytes((folder / FILES[1]).read_bytes() + b"x")
    assert copy_table(weakref.ref(cache), 1, other)
    assert copy_table(weakref.ref(cache), 0, tmp_path / "missing")
    assert not cache.has_copy(0)
    assert not cache.has_copy(1)
    # One of the same size is copied, but is not used.
    same = bytearray((folder / FILES[1]).read_bytes())
    same[80] ^= 1
    other.write_bytes(same)
    assert copy_table(weakref.ref(cache), 1, other)
    assert cache.has_copy(1)
    check(used(memory, folder))


def test_a_small_cache_has_no_room_for_copies(memory: OpenFolder, folder: Path) -> None:
    dataset = PackedDataset(folder)
    contents = encoded(dataset)
    small = create(memory, NAME, contents, 2 * 16384 + 4000)
    assert (small.copy_range(0)[1], small.copy_range(1)[1]) == (0, 0)
    dataset = dataset.with_caches([small])
    assert start_copies(small, folder) is None
    assert copy_table(weakref.ref(small), 0, folder / FILES[0])
    assert small.room_bytes > 0
    check(dataset)
