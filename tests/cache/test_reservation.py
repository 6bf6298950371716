"""A cache file's memory is reserved while the file is used: meanwhile, and where there is none."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_folder import OpenFolder
from cache_sets import COUNT as COUNT_OF_SET
from cache_sets import pixels, raw_set, sparse_set, wait
from mounts import tmpfs
from process import in_child, thread_names

import fastload.cache.files as cache_files
from fastload import DataLoader, PackedDataset
from fastload._native import _C
from fastload.cache.files import attach, create, promised_bytes
from fastload.cache.folder import PrivateFolder
from fastload.cache.layout import HEADER, RESERVED_AT, Contents
from fastload.cache.opening import open_cache
from fastload.cache.settings import CacheSetting, parse_setting
from fastload.cli import main as command_line
from fastload.errors import CacheError

NAME = "0123-encoded-1.flc"
LENGTH = 1 << 20
COUNT = 40  # ten steps of the thread


@pytest.fixture(autouse=True)
def nothing_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is left to the thread."""
    monkeypatch.setattr(cache_files, "_FIRST", 0)


def contents() -> Contents:
    return Contents("0" * 32, "encoded", Path("/set"), 0, np.full(COUNT, LENGTH, np.uint32))


def epoch(dataset: Path, place: Path) -> dict[str, Any]:
    """Every picture compared with the source's; the cache's counts."""
    truth, seen = pixels(), []
    with DataLoader(dataset, 16, shuffle=True, num_workers=1, cache=place, seed=0) as loader:
        for images, labels in loader:
            assert (images.permute(0, 2, 3, 1).numpy() == truth[labels.numpy()]).all()
            seen += labels.tolist()
        assert sorted(seen) == list(range(COUNT_OF_SET))
        return dict(loader.stats()["cache"])


def memory_of(folder: OpenFolder) -> int:
    """Bytes that the file has."""
    return os.stat(folder.path / NAME).st_blocks * 512


def hold(path: Path) -> int:
    """Claim the reservation, as another process does; until the descriptor is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    # struct flock of x86-64 and 64-bit Arm: type, whence, start, length, pid.
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, os.fstat(descriptor).st_size, 1, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
    return descriptor


def forget(path: Path) -> None:
    """The file as its maker leaves it that dies at once."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        data = int(np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]["data_offset"])
        file.truncate(data)
        file.truncate(size)
        file.seek(RESERVED_AT)
        file.write(data.to_bytes(8, "little"))


def test_all_of_it_is_taken_and_records_are_stored_meanwhile(memory: OpenFolder) -> None:
    cache = create(memory, NAME, contents(), 1 << 30)
    blobs = [np.full(LENGTH, sample, np.uint8) for sample in range(COUNT)]
    for sample in reversed(range(COUNT)):
        cache.store(sample, blobs[sample], _C.crc32c(blobs[sample]))
    assert all(cache.find(sample) == blobs[sample].tobytes() for sample in range(COUNT))
    wait(lambda: cache.counts()["reserved_bytes"] == cache.file_bytes)
    assert all(cache.find(sample) == blobs[sample].tobytes() for sample in range(COUNT))
    assert memory_of(memory) >= cache.file_bytes
    assert cache.counts()["failed"] == 0


def test_without_a_record_all_of_it_is_taken(memory: OpenFolder) -> None:
    cache = create(memory, NAME, contents(), 1 << 30)
    wait(lambda: memory_of(memory) >= cache.file_bytes)
    wait(lambda: "fastload-take" not in thread_names())
    assert promised_bytes(memory) == 0


def test_the_next_goes_on_where_the_maker_died(memory: OpenFolder) -> None:
    del_me = create(memory, NAME, contents(), 1 << 30)
    del del_me
    forget(memory.path / NAME)
    assert promised_bytes(memory) == COUNT * LENGTH
    assert attach(memory, NAME, write=False).counts()["reserved_bytes"] == 12288 + 4096
    other = hold(memory.path / NAME)
    second = attach(memory, NAME)
    wait(lambda: "fastload-take" not in thread_names())
    assert promised_bytes(memory) == COUNT * LENGTH  # another process is at it
    os.close(other)
    third = attach(memory, NAME)
    wait(lambda: second.counts()["reserved_bytes"] == third.file_bytes)
    assert promised_bytes(memory) == 0


def test_closing_does_not_wait_and_leaves_no_thread(memory: OpenFolder, no_leaks: None) -> None:
    for _ in range(20):
        cache = create(memory, NAME, contents(), 1 << 30)
        del cache
        os.unlink(memory.path / NAME)


def test_a_fork_in_the_middle(memory: OpenFolder) -> None:
    """The child has no such thread, and waits for none."""
    caches: list[Any] = [create(memory, NAME, contents(), 1 << 30)]
    assert in_child(caches.clear) == 0
    wait(lambda: caches[0].counts()["reserved_bytes"] == caches[0].file_bytes)


def test_what_is_promised_counts_as_taken(tmp_path: Path) -> None:
    """Two caches of 40 MB in a file system of 64 MB, before the first one's memory is taken."""
    dataset = sparse_set(tmp_path / "set", 40, 1024)
    with tmpfs(tmp_path / "memory", "size=64m") as place:
        with PrivateFolder(place, create=True) as folder:
            create(folder, NAME, contents(), 1 << 30)
            forget(folder.path / NAME)
            with pytest.raises(CacheError, match=r"does not fit into .* are free there"):
                create(folder, "other.flc", contents(), 1 << 30)
            user = attach(folder, NAME, write=False)  # in use: else it is stale, its source is not there
        with pytest.raises(CacheError, match=r"in all\) leaves 2\d\.\d MB"):
            open_cache([dataset], CacheSetting("on", limit=30 << 20, root=place))
        assert user.counts()["reserved_bytes"] < user.file_bytes


def test_memory_that_others_have_taken_meanwhile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What has memory is cached; the rest is read from the set, and warming says so."""
    dataset = raw_set(tmp_path / "set").folder
    with tmpfs(tmp_path / "memory", "size=20m") as place:
        setting = parse_setting(place)
        del_me = open_cache([PackedDataset(dataset)], setting)
        path = Path(del_me.files[0].path)
        del del_me
        forget(path)
        with (place / "others").open("wb") as file, contextlib.suppress(OSError):
            free = os.statvfs(place)
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - (4 << 20))
        stats = epoch(dataset, place)
        assert stats["failed"] > 0
        assert 0 < stats["ready_records"] == stats["stored"] < COUNT_OF_SET
        assert stats["reserved_bytes"] < stats["bytes"]
        code = command_line(["warm", str(dataset), "--to", str(place), "--json"])
        told = json.loads(capsys.readouterr().out)
        assert code == 4, told  # records that could not be kept
        assert "No space left on device. Others have taken the memory" in str(told)
        (place / "others").unlink()
        assert epoch(dataset, place)["ready_records"] == COUNT_OF_SET
