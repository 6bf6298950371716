"""Reading ahead through the DataLoader: the same batches, within a budget, and nothing left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cold_files import drop, resident_pages
from plain_pack import plain_pack
from process import thread_names

from fastload import DataLoader, PackedDataset
from fastload._native import _C
from fastload.backends import native
from fastload.machine.memory import available_memory
from fastload.prefetch.engine_calls import ReadAheadPlan, plan_read_ahead
from fastload.sampler import BlockOrder, BlockSampler, Partition, make_sampler
from fastload.shard.index import RECORD

SIDE = 64
COUNT = 300


def make_cold(dataset: PackedDataset) -> None:
    """Drop the records from the page cache, or skip the test where that cannot be."""
    if not drop(dataset.folder / "data.bin"):
        pytest.skip("this file system keeps in memory what it was asked to drop")


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, 3 * SIDE * SIDE, np.uint8).tobytes() for _ in range(COUNT)]


@pytest.fixture
def dataset(tmp_path: Path, blobs: list[bytes]) -> PackedDataset:
    return plain_pack(tmp_path / "set", blobs, range(COUNT), raw_size=(SIDE, SIDE))


def check_epoch(loader: DataLoader, blobs: list[bytes], cold: bool = False) -> int:
    """``cold``: what lies behind the first batches is read ahead before they are taken, however slowly."""
    seen: list[int] = []
    for images, labels in loader:
        if cold and not seen:
            wait_for(lambda: ahead_of(loader)["ahead"] > 0)
        for image, label in zip(images, labels.tolist(), strict=True):
            assert image.permute(1, 2, 0).contiguous().numpy().tobytes() == blobs[label]
            seen.append(label)
    assert sorted(seen) == list(range(COUNT))
    return len(seen)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)


def ahead_of(loader: DataLoader) -> dict[str, Any]:
    backend = loader._epochs.backend
    assert backend is not None
    return backend.counts().read_ahead  # type: ignore[union-attr]


@pytest.mark.parametrize("shuffle", [True, False, "block"])
def test_a_cold_set_gives_the_same_pixels_within_the_budget(
    dataset: PackedDataset, blobs: list[bytes], shuffle: Any
) -> None:
    make_cold(dataset)
    with DataLoader(dataset, 16, shuffle=shuffle, num_workers=2, seed=0) as loader:
        budget = loader.memory_plan()["read_ahead_bytes"]
        check_epoch(loader, blobs, cold=True)
        found = ahead_of(loader)
        assert found["ahead"] > 0  # the others decoding came to first
        assert 0 < found["buffer_peak"] <= budget
        check_epoch(loader, blobs)
    assert "fastload-read" not in thread_names()


def test_a_set_in_memory_costs_no_buffers(dataset: PackedDataset, blobs: list[bytes]) -> None:
    with DataLoader(dataset, 16, shuffle=True, num_workers=2, seed=0) as loader:
        check_epoch(loader, blobs)
        found = ahead_of(loader)
        assert found["buffer_peak"] == 0
        assert found["ahead"] == 0
        assert found["threads"] == 1


def test_an_epoch_left_in_its_middle_and_begun_again(dataset: PackedDataset, blobs: list[bytes]) -> None:
    make_cold(dataset)
    with DataLoader(dataset, 8, shuffle=True, num_workers=3, prefetch_factor=1, seed=0) as loader:
        for stop in (1, 3, 10):
            for i, _ in enumerate(loader):
                if i == stop:
                    break
        check_epoch(loader, blobs)


def test_a_set_that_is_larger_than_memory_is_read_past_the_page_cache(
    dataset: PackedDataset, blobs: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dataset.folder / "data.bin"
    make_cold(dataset)
    monkeypatch.setattr(native, "plan_read_ahead", lambda *_: ReadAheadPlan(1 << 20, 80, 0.0))
    with DataLoader(dataset, 16, shuffle=True, num_workers=2, seed=0) as loader:
        check_epoch(loader, blobs, cold=True)
        kept = resident_pages(path).reshape(COUNT, -1).any(axis=1)  # a record is three pages
        found = ahead_of(loader)  # behind it: the next epoch is being read by now
    assert found["ahead"] > 0
    assert kept.sum() <= found["late"] + found["resident"]  # only what decoding came to first


def test_closing_while_requests_are_in_flight(dataset: PackedDataset) -> None:
    for _ in range(5):
        make_cold(dataset)
        loader = DataLoader(PackedDataset(dataset.folder), 4, shuffle=True, num_workers=2, seed=0)
        next(iter(loader))
        loader.close()
    assert "fastload-read" not in thread_names()


def test_a_forked_child_leaves_the_parents_requests_alone(dataset: PackedDataset, blobs: list[bytes]) -> None:
    make_cold(dataset)
    loader = DataLoader(PackedDataset(dataset.folder), 4, shuffle=True, num_workers=2, seed=0)
    iterator = iter(loader)
    images, labels = next(iterator)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fresh = DataLoader(PackedDataset(dataset.folder), 4, num_workers=1)
            status = 0 if len(next(iter(fresh))[1]) == 4 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    for images, labels in iterator:
        for image, label in zip(images, labels.tolist(), strict=True):
            assert image.permute(1, 2, 0).contiguous().numpy().tobytes() == blobs[label]
    loader.close()


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(str(text))


def test_available_memory_is_the_least_of_all_limits(tmp_path: Path) -> None:
    group(tmp_path / "proc", meminfo="MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    group(tmp_path / "proc/self", cgroup="4:memory:/a/b\n0::/c/d\n")
    root = tmp_path / "sys/fs/cgroup"

    def available() -> int:
        return available_memory(str(tmp_path))

    assert available() == 8000 << 10  # no cgroups
    stat = "total_active_file 100\ntotal_inactive_file 200\nactive_file 1\n"
    group(
        root / "memory/a", memory__limit_in_bytes=5 << 20, memory__usage_in_bytes=1 << 20, memory__stat=stat
    )
    assert available() == (4 << 20) + 300
    group(root / "c/d", memory__max="max", memory__current=5, memory__stat="active_file 1\n")
    assert available() == (4 << 20) + 300
    group(
        root / "c", memory__max=3000, memory__current=2500, memory__stat="active_file 400\ninactive_file 0\n"
    )
    assert available() == 900
    group(root / "c", memory__high=2800)
    assert available() == 700
    group(root, memory__max=100, memory__current=500, memory__stat="active_file 0\n")
    assert available() == 0


def test_the_plan_follows_set_memory_and_order(dataset: PackedDataset) -> None:
    size = 3 * SIDE * SIDE * COUNT
    sampler = make_sampler(COUNT, Partition(4), shuffle=True, seed=0)
    plenty = plan_read_ahead(dataset, sampler, 1 << 40)
    assert plenty.keep == 1.0
    assert plenty.buffer_bytes <= 2 * size + (1 << 20)  # never more than the set needs
    little = plan_read_ahead(dataset, sampler, 2 << 20)
    assert little.buffer_bytes == (2 << 20) // 8
    assert 0 < little.keep == pytest.approx((1 << 20) / size)
    assert plan_read_ahead(dataset, sampler, 512 << 10).keep == 0.0  # too little to be worth while
    assert little.samples == little.buffer_bytes // (3 * SIDE * SIDE)
    alone = BlockSampler(BlockOrder(COUNT, 0, 4, 200), Partition(4))
    shared = BlockSampler(BlockOrder(COUNT, 0, 4, 200), Partition(4, 1, 4))
    whole, part = (plan_read_ahead(dataset, sampler, 4 << 20) for sampler in (alone, shared))
    assert whole.buffer_bytes == 1 << 20
    assert part.buffer_bytes < whole.buffer_bytes


def test_the_record_that_decoding_needs_is_not_starved_by_later_ones(
    dataset: PackedDataset, blobs: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers for two records only: decoding reads the others itself, and nothing hangs."""
    make_cold(dataset)
    monkeypatch.setattr(native, "plan_read_ahead", lambda *_: ReadAheadPlan(32 << 10, 100, 0.0))
    with DataLoader(dataset, 8, shuffle=False, num_workers=2, seed=0) as loader:
        check_epoch(loader, blobs)
        assert ahead_of(loader)["buffer_peak"] <= 32 << 10


def is_kept(shard: int, offset: int, share: float) -> bool:
    """The hash of a region of 4 MiB (SplitMix64's finaliser) below the share; Python's integers."""
    mask = 2**64 - 1
    value = (offset // (4 << 20) ^ shard << 40) + 1 & mask
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return share >= 1 or float(value ^ value >> 31) < share * 2.0**64


def test_the_share_that_stays_in_the_page_cache() -> None:
    """What warming asks for and reading ahead keeps: the same records for whoever asks."""
    rng = np.random.default_rng(0)
    records = np.zeros(2000, RECORD)
    records["offset"], records["shard"] = rng.integers(0, 1 << 40, 2000), rng.integers(0, 3000, 2000)
    entries = records.view(np.uint8).reshape(2000, -1)
    for share in (0.0, 0.125, 0.5, 0.99, 1.0):
        expected = [is_kept(int(r["shard"]), int(r["offset"]), share) for r in records]
        assert _C.kept_records(entries, share).tolist() == expected
        assert abs(sum(expected) / 2000 - share) < 0.05
