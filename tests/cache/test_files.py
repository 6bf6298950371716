"""Cache files: made, attached to, stored into, claimed, looked at and removed; and whatever may be wrong."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from cache_folder import OpenFolder
from plain_pack import plain_pack

import fastload.cache.files as cache_files
from fastload import PackedDataset
from fastload._native import _C
from fastload.cache.files import attach, clean, create, inspect, remove
from fastload.cache.layout import ENTRY, HEADER, Contents, encoded
from fastload.errors import CacheError

NAME = "0123-encoded-1.flc"
COUNT = 300


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    """Records of 1 to 300 random bytes."""
    rng = np.random.default_rng(0)
    return [rng.bytes(1 + i) for i in range(COUNT)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, blobs: list[bytes]) -> PackedDataset:
    return plain_pack(tmp_path_factory.mktemp("set"), blobs, probe=False)


def put(cache: Any, sample: int, blob: bytes) -> None:
    data = np.frombuffer(blob, np.uint8)
    cache.store(sample, data, _C.crc32c(data))


def made(folder: OpenFolder, dataset: PackedDataset, limit: int = 1 << 30) -> Any:
    return create(folder, NAME, encoded(dataset), limit)


def test_what_one_stores_the_others_find(
    memory: OpenFolder, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    first = made(memory, dataset)
    second = attach(memory, NAME)
    reader = attach(memory, NAME, write=False)
    assert len(first) == len(second) == first.room_records == COUNT
    assert first.room_bytes == first.set_bytes == sum(map(len, blobs))
    for sample in range(0, COUNT, 2):
        assert not second.is_ready(sample)
        put(first, sample, blobs[sample])
    put(second, 1, blobs[1])
    put(second, 0, blobs[0])  # there already
    for sample, blob in enumerate(blobs):
        there = sample % 2 == 0 or sample == 1
        for cache in (first, second, reader):
            assert cache.is_ready(sample) == there
            assert cache.find(sample) == (blob if there else None)
    assert (first.counts()["stored"], second.counts()["stored"]) == (COUNT // 2, 1)
    there = {"ready_records": COUNT // 2 + 1, "ready_bytes": sum(map(len, blobs[::2])) + len(blobs[1])}
    there["reserved_bytes"] = first.file_bytes
    assert reader.counts() == {"hits": 0, "misses": 0, "stored": 0, "damaged": 0, "failed": 0, **there}
    assert reader.count_ready() == COUNT // 2 + 1


def test_a_read_only_attachment_stores_and_claims_nothing(
    memory: OpenFolder, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    cache = made(memory, dataset)
    reader = attach(memory, NAME, write=False)
    put(reader, 3, blobs[3])
    assert not reader.is_writable
    assert not reader.claim(0, 10)
    assert not cache.is_ready(3)


def test_where_writing_is_not_allowed_it_is_attached_for_reading(
    memory: OpenFolder, dataset: PackedDataset, blobs: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(made(memory, dataset), 3, blobs[3])
    real = os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if path == NAME and flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(cache_files.os, "open", read_only)
    reader = attach(memory, NAME)
    assert not reader.is_writable
    assert reader.find(3) == blobs[3]
    with monkeypatch.context() as failing:
        failing.setattr(cache_files.os, "open", lambda *_, **__: _raise(errno.EIO))
        with pytest.raises(CacheError, match="cannot be opened: Input/output error"):
            attach(memory, NAME)


def _raise(number: int) -> int:
    raise OSError(number, os.strerror(number))


def test_what_does_not_fit_its_place_is_not_stored(
    memory: OpenFolder, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    cache = made(memory, dataset)
    for sample, blob in ((5, blobs[5] + b"x"), (5, blobs[4]), (5, b""), (COUNT, blobs[5]), (2**63, blobs[5])):
        put(cache, sample, blob)
    assert cache.counts()["stored"] == 0
    assert cache.find(COUNT) is cache.find(2**64 - 1) is None
    assert not cache.has_room(COUNT)


def test_claims_exclude_other_attachments_and_end_with_them(
    memory: OpenFolder, dataset: PackedDataset
) -> None:
    first, second = made(memory, dataset), attach(memory, NAME)
    assert first.claim(0, 1000)
    assert first.claim(0, 1000)  # its own
    assert not second.claim(999, 1001)
    assert second.claim(1000, 1001)
    first.release(500, 1000)
    assert second.claim(500, 1000)
    assert not second.claim(499, 500)
    del first
    assert second.claim(0, 500)
    assert not second.claim(5, 5)


def test_a_file_in_use_is_not_removed(memory: OpenFolder, dataset: PackedDataset) -> None:
    first = made(memory, dataset)
    second = attach(memory, NAME, write=False)
    assert inspect(memory, NAME).in_use
    assert not remove(memory, NAME)
    del first
    assert not remove(memory, NAME)
    del second
    assert not inspect(memory, NAME).in_use
    assert remove(memory, NAME)
    assert remove(memory, NAME)
    assert memory.names() == []
    with pytest.raises(FileNotFoundError):
        attach(memory, NAME)


def test_a_forked_child_does_not_keep_it_in_use(
    memory: OpenFolder, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    cache = made(memory, dataset)
    put(cache, 7, blobs[7])
    assert cache.claim(0, 10)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        found = cache.find(7) == blobs[7] and not cache.is_writable
        put(cache, 8, blobs[8])  # nothing, and no other file that has the descriptor's number
        os.write(theirs, b"y" if found and not cache.is_ready(8) else b"n")
        signal.pause()
        os._exit(0)
    assert os.read(ours, 1) == b"y"
    del cache
    try:
        other = attach(memory, NAME)
        assert other.claim(0, 10)
        del other
        assert not inspect(memory, NAME).in_use
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ours)
        os.close(theirs)


def test_inspect_says_what_it_is(memory: OpenFolder, dataset: PackedDataset, blobs: list[bytes]) -> None:
    cache = made(memory, dataset)
    put(cache, 9, blobs[9])
    info = inspect(memory, NAME)
    assert (info.dataset_id, info.tier, info.source) == (dataset.id, "encoded", dataset.folder)
    assert (info.version, info.path) == ((1, 0), memory.path / NAME)
    assert info.file_bytes == os.stat(info.path).st_size == cache.file_bytes
    assert (info.num_records, info.room_records, info.ready_records, info.ready_bytes) == (
        COUNT, COUNT, 1, len(blobs[9])
    )  # fmt: skip
    assert info.set_bytes == info.room_bytes == sum(map(len, blobs))
    assert os.stat(info.path).st_mode & 0o777 == 0o600
    assert os.stat(info.path).st_blocks * 512 >= info.file_bytes  # all of its memory is there


def test_a_creator_that_is_killed_leaves_nothing(memory: OpenFolder, dataset: PackedDataset) -> None:
    program = f"""
import os, signal, sys
sys.path[:0] = {[path for path in sys.path if path]!r}
from pathlib import Path
from cache_folder import OpenFolder
import fastload.cache.files as files
from fastload.cache.layout import encoded
from fastload import PackedDataset
files.header_of = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.create(OpenFolder(Path({os.fspath(memory.path)!r})), {NAME!r},
             encoded(PackedDataset({os.fspath(dataset.folder)!r})), 1 << 30)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    clean(memory)
    assert memory.names() == []


def test_without_nameless_files_a_temporary_name_is_used_and_cleaned(
    memory: OpenFolder, dataset: PackedDataset, blobs: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_files.os, "O_TMPFILE", os.O_DIRECTORY)  # as where it is not known: EISDIR
    seen: list[list[str]] = []
    monkeypatch.setattr(
        cache_files, "_reserve", lambda *_: seen.append(memory.names()) or os.ftruncate(_[1], _[2])
    )
    left = memory.path / ".tmp-1-of-the-dead"
    left.write_bytes(b"x")
    busy = memory.path / ".tmp-2-of-the-living"
    busy.write_bytes(b"x")
    with busy.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_SH)
        cache = made(memory, dataset)
        assert seen == [sorted([f".tmp-{os.getpid()}-{NAME}", busy.name])]
        assert memory.names() == sorted([NAME, busy.name])
    put(cache, 3, blobs[3])
    assert attach(memory, NAME).find(3) == blobs[3]


def test_lack_of_room_is_an_error_with_numbers(
    memory: OpenFolder, dataset: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CacheError, match=r"A cache of 20000 bytes has no room .* table of 300 records takes"):
        made(memory, dataset, 20000)
    huge = Contents("0" * 32, "encoded", dataset.folder, 0, np.full(1 << 20, 1 << 30, np.uint32))
    size = (12288 + (32 << 20) + 65535) // 65536 * 65536 + (1 << 50)
    with pytest.raises(CacheError, match=f"A cache of {size} bytes does not fit into .* are free there"):
        create(memory, NAME, huge, 1 << 60)
    monkeypatch.setattr(cache_files, "_STEP", 16384)
    real, calls = os.posix_fallocate, []

    def full(descriptor: int, offset: int, length: int) -> None:
        calls.append(offset)
        if offset >= 32768:
            raise OSError(28, "No space left on device")
        real(descriptor, offset, length)

    monkeypatch.setattr(cache_files.os, "posix_fallocate", full)
    with pytest.raises(CacheError, match="No space left on device after 32768 bytes"):
        made(memory, dataset)
    assert calls == [0, 16384, 32768]
    with pytest.raises(CacheError, match="^too much$"):
        create(memory, NAME, encoded(dataset), 1 << 30, _refuse)
    assert memory.names() == []


def _refuse(size: int) -> None:
    assert size > sum(range(COUNT))
    raise CacheError("too much")


def test_what_is_not_this_users_alone_is_refused(
    memory: OpenFolder, dataset: PackedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(memory, dataset)
    path = memory.path / NAME
    path.chmod(0o640)
    with pytest.raises(CacheError, match=r"is open to other users \(mode 0640, needed is 0600\)"):
        attach(memory, NAME)
    path.chmod(0o600)
    os.symlink(path, memory.path / "link")
    with pytest.raises(CacheError, match="link cannot be opened: Too many levels"):
        attach(memory, "link")
    os.mkfifo(memory.path / "pipe", 0o600)
    with pytest.raises(CacheError, match="pipe is not a file"):
        inspect(memory, "pipe")
    monkeypatch.setattr(cache_files.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CacheError, match=f"belongs to user {os.getuid()}, this process runs as"):
        attach(memory, NAME)


def test_any_damage_to_the_header_is_found(memory: OpenFolder, dataset: PackedDataset) -> None:
    made(memory, dataset)
    path = memory.path / NAME
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    places = [0, 8, 16, 511, 512, 8188, 8191, *rng.integers(0, 8192, 40).tolist()]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(CacheError, match=re.escape(str(path))):
            attach(memory, NAME)
        with pytest.raises(CacheError, match="not a valid cache file"):
            inspect(memory, NAME)
    for length in (0, 100, 8192, 12287, 12288, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CacheError):
            attach(memory, NAME)
    path.write_bytes(whole)
    assert len(attach(memory, NAME)) == COUNT


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_records", 2**59 + 5),
        ("table_offset", 2**64 - 32),
        ("table_offset", 12289),
        ("index_offset", 2**63),
        ("entries_size", 2**64 - 1),
        ("data_size", 2**64 - 5),
        ("data_offset", 100),
        ("file_size", 5),
        ("major", 2),
    ],
)
def test_a_header_that_lies_is_refused(
    memory: OpenFolder, dataset: PackedDataset, field: str, value: int
) -> None:
    """With a checksum that is right."""
    made(memory, dataset)
    path = memory.path / NAME
    whole = bytearray(path.read_bytes())
    header = np.frombuffer(whole, HEADER, 1)
    header[field] = value
    whole[8188:8192] = _C.crc32c(np.frombuffer(whole[:8188], np.uint8)).to_bytes(4, "little")
    path.write_bytes(whole)
    with pytest.raises(CacheError):
        attach(memory, NAME)


def test_a_scribbled_table_gives_no_bytes_out_of_bounds(
    memory: OpenFolder, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    assert len(blobs) == COUNT
    cache = made(memory, dataset)
    for sample, blob in enumerate(blobs):
        put(cache, sample, blob)
    path = memory.path / NAME
    whole = bytearray(path.read_bytes())
    table = np.frombuffer(whole, ENTRY, COUNT, 12288)
    rng = np.random.default_rng(2)
    fields = ("offset", "length", "place_crc", "width")
    damaged = rng.choice(COUNT, 100, replace=False)
    for sample in damaged:
        field = fields[sample % 4]
        table[field][sample] = rng.integers(0, 2 ** (8 * ENTRY[field].itemsize), dtype=ENTRY[field])
    table[[10, 11]] = table[[11, 10]]  # valid entries at the wrong samples
    with path.open("r+b") as file:
        file.write(whole)
    gone = {*damaged.tolist(), 10, 11}
    for sample, blob in enumerate(blobs):
        assert cache.find(sample) == (None if sample in gone else blob)
        assert cache.has_room(sample) == (sample not in gone)
