"""Cache files whose records lie in stripes: what FORMAT.md says of them, and what may be wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_folder import OpenFolder
from cache_sets import pixels, raw_set, wait, whole_file
from hypothesis import given, settings
from hypothesis import strategies as st

import fastload.cache.files as cache_files
from fastload import DataLoader, PackedDataset
from fastload._native import _C
from fastload.cache import layout
from fastload.cache.files import attach, clean, create, inspect, promised_bytes, remove
from fastload.cache.layout import ENTRY, HEADER, Contents, padding, plan, table_of
from fastload.cache.opening import open_cache
from fastload.cache.settings import CacheSetting
from fastload.cli import main as command_line
from fastload.errors import CacheError

NAME = "0123-encoded-1.flc"
COUNT = 300


@pytest.fixture(autouse=True)
def small_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them for the records here."""
    monkeypatch.setattr(layout, "_STRIPED", 1)
    monkeypatch.setattr(layout, "_STRIPE_LEAST", 100_000)
    monkeypatch.setattr(layout, "_STRIPE_RUN", 5_000)


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.bytes(1000 + i) for i in range(COUNT)]


def contents(blobs: list[bytes]) -> Contents:
    return Contents("0" * 32, "encoded", Path("/set"), 0, np.array([*map(len, blobs)], np.uint32))


def filled(memory: OpenFolder, blobs: list[bytes]) -> Any:
    cache = create(memory, NAME, contents(blobs), 1 << 30)
    for sample, blob in enumerate(blobs):
        data = np.frombuffer(blob, np.uint8)
        cache.store(sample, data, _C.crc32c(data))
    return cache


def stripes(memory: OpenFolder) -> list[str]:
    return [name for name in memory.names() if name.startswith(f"{NAME}.")]


def test_records_lie_where_the_format_says(memory: OpenFolder, blobs: list[bytes]) -> None:
    cache = filled(memory, blobs)
    assert stripes(memory) == [f"{NAME}.{number}" for number in range(3)]
    header = np.frombuffer((memory.path / NAME).read_bytes(), HEADER, 1)[0]
    assert header["num_stripes"] == 3
    assert header["stripe_offset"][0] == header["data_offset"] == (memory.path / NAME).stat().st_size
    whole = whole_file(memory.path / NAME)
    assert len(whole) == header["file_size"] == cache.file_bytes
    assert cache.room_bytes == sum(map(len, blobs))
    table = np.frombuffer(whole[: header["data_offset"]], ENTRY, COUNT, int(header["table_offset"]))
    for entry, blob in zip(table, blobs, strict=True):
        at = int(entry["offset"])
        assert whole[at : at + len(blob)].tobytes() == blob
    other = attach(memory, NAME)
    assert [other.find(sample) for sample in range(COUNT)] == blobs
    wait(lambda: other.counts()["reserved_bytes"] == cache.file_bytes)
    assert promised_bytes(memory) == 0


@given(
    st.lists(st.integers(0, 30_000), min_size=1, max_size=200),
    st.integers(1, 200_000),
    st.floats(0, 1.2),
    st.integers(1, 4),
)
@settings(max_examples=200, deadline=None)
def test_places_do_not_overlap_nor_cross_stripes(
    lengths: list[int], least: int, share: float, pieces: int
) -> None:
    """Whatever the records' lengths, and however the table is cut."""
    of = Contents("0" * 32, "encoded", Path("/set"), 0, np.array(lengths, np.uint32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "_STRIPED", 1)
        patch.setattr(layout, "_STRIPE_LEAST", least)
        patch.setattr(layout, "_STRIPE_RUN", 5_000)
        patch.setattr(layout, "_TABLE_CHUNK", -(-len(lengths) // pieces))
        tables = 12288 + -(-len(lengths) * 32 // 4096) * 4096
        limit = tables + padding(of.set_bytes) + int(share * of.set_bytes)
        try:
            made = plan(of, limit)
        except CacheError:
            return
        table = np.frombuffer(b"".join(table_of(of, made)), ENTRY)
    assert made.file_size <= limit
    if share >= 1:
        assert (made.room == (of.lengths > 0)).all()
    assert sum(made.sizes) == made.file_size
    assert len(made.stripes) <= layout.MOST_STRIPES
    assert all(begin % 65536 == 0 for begin in made.stripe_offsets)
    begins = np.array(made.stripe_offsets or [made.data_offset])
    end = 0
    for offset, length in sorted(zip(table["offset"][made.room], table["length"][made.room], strict=True)):
        assert offset >= end
        stripe = np.searchsorted(begins, offset, "right") - 1
        assert offset + length <= begins[stripe] + (made.stripes or [made.data_size])[stripe]
        end = offset + length
    assert (table["offset"][~made.room] == layout.NO_ROOM).all()


def test_an_epoch(root: Path, tmp_path: Path) -> None:
    """Filled by a loader, found by the next one, removed by the command."""
    dataset = raw_set(tmp_path / "set")
    for expected in ({"stored": 800, "damaged": 0}, {"stored": 0, "misses": 0}):
        with DataLoader(dataset.folder, 16, shuffle=True, num_workers=1, cache="100MB", seed=0) as loader:
            for images, labels in loader:
                assert (images.permute(0, 2, 3, 1).numpy() == pixels()[labels.numpy()]).all()
            stats = loader.stats()["cache"]
            assert stats | expected == stats
            assert stats["bytes"] == inspect_one(root).file_bytes
        del loader
    names = [path.name for path in root.glob("*/*.flc.*")]
    assert len(names) == 8
    assert command_line(["cache", "clear", str(dataset.folder)]) == 0
    assert list(root.glob("*/*.flc*")) == []


def inspect_one(root: Path) -> Any:
    path = next(root.glob("*/*.flc"))
    return inspect(OpenFolder(path.parent), path.name)


def test_a_file_that_cannot_be_made_leaves_no_stripes(
    memory: OpenFolder, blobs: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_files.os, "posix_fallocate", full)
    with pytest.raises(CacheError, match="No space left"):
        create(memory, NAME, contents(blobs), 1 << 30)
    assert memory.names() == []


def test_stripes_of_nobody_are_removed_and_those_of_somebody_are_not(
    memory: OpenFolder, blobs: list[bytes]
) -> None:
    cache = filled(memory, blobs)
    for number in range(3):
        (memory.path / f"dead.flc.{number}").write_bytes(b"x" * 10_000)
    (memory.path / "other").write_bytes(b"")
    clean(memory)
    assert memory.names() == sorted([NAME, *stripes(memory), "other"])
    assert not remove(memory, NAME)  # in use
    assert len(stripes(memory)) == 3
    assert cache.find(3) == blobs[3]
    del cache
    assert remove(memory, NAME)
    assert memory.names() == ["other"]


def test_a_killed_remover_or_maker_is_no_obstacle(memory: OpenFolder, blobs: list[bytes]) -> None:
    """One that died between the names of the file and of its stripes."""
    filled(memory, blobs)
    os.unlink(memory.path / NAME)
    assert len(stripes(memory)) == 3
    cache = filled(memory, blobs)
    assert [cache.find(sample) for sample in range(COUNT)] == blobs


@pytest.mark.parametrize("harm", ["gone", "short", "long", "link"])
def test_a_stripe_that_is_not_what_it_should_be(memory: OpenFolder, blobs: list[bytes], harm: str) -> None:
    filled(memory, blobs)
    path = memory.path / f"{NAME}.1"
    if harm == "gone":
        path.unlink()
        with pytest.raises(CacheError, match=r"flc\.1 is not there"):
            inspect(memory, NAME)
    elif harm == "link":
        path.rename(memory.path / "elsewhere")
        path.symlink_to(memory.path / "elsewhere")
    else:
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size + (1 if harm == "long" else -1))
    with pytest.raises(CacheError, match=r"flc\.1"):
        attach(memory, NAME)


def test_a_set_without_one_of_its_stripes_is_made_anew(root: Path, tmp_path: Path) -> None:
    dataset = raw_set(tmp_path / "set", 100)
    setting = CacheSetting("on", limit=10 << 20, root=root)
    path = Path(open_cache([PackedDataset(dataset.folder)], setting).files[0].path)
    path.with_name(f"{path.name}.0").unlink()
    again = open_cache([PackedDataset(dataset.folder)], setting)
    assert again.files[0].counts()["ready_records"] == 0
    assert path.with_name(f"{path.name}.0").exists()


@pytest.mark.parametrize(
    ("number", "value"), [(None, 9), (None, 2), (0, 0), (0, 1), (1, 2**63), (2, 65536), (1, 2**64 - 65536)]
)
def test_a_header_that_lies_about_stripes(
    memory: OpenFolder, blobs: list[bytes], number: int | None, value: int
) -> None:
    """With a checksum that is right."""
    filled(memory, blobs)
    path = memory.path / NAME
    whole = bytearray(path.read_bytes())
    header = np.frombuffer(whole, HEADER, 1)
    if number is None:
        header["num_stripes"] = value
    else:
        header["stripe_offset"][0, number] = value
    whole[8188:8192] = _C.crc32c(np.frombuffer(whole[:8188], np.uint8)).to_bytes(4, "little")
    path.write_bytes(whole)
    with pytest.raises(CacheError):
        attach(memory, NAME)
