"""The tier below the node's memory: what it gives is what was packed, whatever happens to its files."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disk_sets import contents_of, opened, whole_tier
from mounts import tmpfs
from plain_pack import plain_pack
from torch.utils.data import Subset

import fastload.prefetch.engine_calls
from fastload import Cache, DataLoader, PackedDataset, Ranks
from fastload.cache.disk_files import (
    CLASSES_OFFSET,
    HEADER_BYTES,
    LIVE_BYTES,
    TIER_HEADER,
    plan_slots,
    whole_bytes,
)
from fastload.cache.layout import NoRoom
from fastload.cache.settings import CacheSetting, DiskSetting, parse_setting
from fastload.cli import main
from fastload.errors import CacheError

COUNT, SIDE = 300, 40  # records of 4.8 kB: slots of 8 KiB
LENGTH, SLOT = 3 * SIDE * SIDE, 8192
ALL = 2 * COUNT * SLOT
# Records that two store at the same time have a slot each: an epoch begins while the last one's end is read.
TWICE = 16


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, LENGTH, np.uint8).tobytes() for _ in range(COUNT)]


@pytest.fixture
def dataset(tmp_path: Path, blobs: list[bytes]) -> PackedDataset:
    return plain_pack(tmp_path / "set", blobs, range(COUNT), raw_size=(SIDE, SIDE))


@pytest.fixture(autouse=True)
def _little_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets would be read ahead whole, for two epochs."""
    monkeypatch.setattr(fastload.prefetch.engine_calls, "_BUFFERS", 1 << 17)


def loader_of(dataset: Any, cache: Any, **more: Any) -> DataLoader:
    return DataLoader(dataset, 16, shuffle=True, num_workers=2, cache=cache, seed=0, **more)


def check(loader: DataLoader, blobs: list[bytes], epochs: int = 1) -> dict[str, Any]:
    """Epochs of a loader over the dataset; its tier's stats."""
    for _ in range(epochs):
        for images, labels in loader:
            for image, label in zip(images, labels.tolist(), strict=True):
                assert image.permute(1, 2, 0).contiguous().numpy().tobytes() == blobs[label]
    found: dict[str, Any] = loader.stats()["cache"]["disk"]
    return found


def epoch(dataset: Any, cache: Any, blobs: list[bytes], epochs: int = 1) -> dict[str, Any]:
    with loader_of(dataset, cache) as loader:
        check(loader, blobs, epochs)
    found: dict[str, Any] = loader.stats()["cache"]["disk"]
    return found


@pytest.mark.parametrize("above", [None, "off", "600kB"])
def test_a_second_epoch_and_a_second_job_read_nothing(
    root: Path, tmp_path: Path, dataset: PackedDataset, blobs: list[bytes], above: str | None
) -> None:
    disk = f"{tmp_path}/disk:{ALL}B"
    cache = disk if above is None else [above, disk]
    first = epoch(dataset, cache, blobs, 2)
    in_memory = 0 if above != "600kB" else COUNT - first["held_records"]
    assert (in_memory > 50) == (above == "600kB")
    assert first["held_records"] == COUNT - in_memory == first["stored"] - first["dropped"]
    assert first["damaged"] == first["failed"] == 0
    assert first["dropped"] + first["declined"] < TWICE
    assert first["room_records"] == COUNT
    assert first["expected_hits"] == 1
    second = epoch(dataset, cache, blobs)
    assert second["misses"] <= first["dropped"] + first["declined"]
    assert second["hits"] >= COUNT - in_memory - second["misses"]
    assert second["paths"] == [str(whole_tier(tmp_path / "disk")[0])]


def test_a_part_stays_where_every_rank_is_on_the_node(
    tmp_path: Path, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    limit = whole_bytes(np.full(COUNT, LENGTH, np.uint32)) // 2
    found = epoch(dataset, f"{tmp_path}/disk:{limit}B", blobs, 3)
    assert found["held_records"] == found["room_records"] == found["stored"] - found["dropped"]
    assert abs(found["room_records"] - COUNT // 2) < 8
    assert found["dropped"] < TWICE
    assert found["declined"] > 0


def test_ranks_of_another_node_need_other_records(
    tmp_path: Path, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    """Rank 0 of two, on nodes of their own: what it needs soon takes the place of what it needs late."""
    limit = whole_bytes(np.full(COUNT, LENGTH, np.uint32)) // 3
    with loader_of(dataset, f"{tmp_path}/disk:{limit}B", ranks=Ranks(0, 2)) as loader:
        found = check(loader, blobs, 2)
        end = time.monotonic() + 100
        while found["dropped"] == 0 and time.monotonic() < end:  # until the order is known
            time.sleep(0.05)
            found = check(loader, blobs)
        assert found["dropped"] > 0
        assert found["expected_hits"] > 0.5
        assert loader.memory_plan()["order_bytes"] == 8 * COUNT


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_restart_fetches_nothing_that_is_there(
    tmp_path: Path, dataset: PackedDataset, blobs: list[bytes], share: float
) -> None:
    """A job that is killed within its first epoch, and one that goes on from its state."""
    cache = f"{tmp_path}/disk:{ALL}B"
    with loader_of(dataset, cache) as loader:
        iterator = iter(loader)
        for _ in range(int(share * len(loader))):
            next(iterator)
        state = loader.state_dict()
    stored = loader.stats()["cache"]["disk"]["stored"]
    with loader_of(dataset, cache) as again:
        again.load_state_dict(state)
        for _ in again:
            pass
        check(again, blobs)
    whole = again.stats()["cache"]["disk"]
    # What is needed again, in the next epoch, while it is being stored is read twice.
    assert COUNT - stored <= whole["misses"] < COUNT - stored + TWICE
    # A crowded machine's disk may leave out what too many want to write at a time.
    assert COUNT - whole["busy"] <= whole["held_records"] <= COUNT


def test_without_reading_ahead_and_one_by_one(
    tmp_path: Path, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    cache = parse_setting(f"{tmp_path}/disk:{ALL}B")
    assert cache.disk is not None
    with opened(dataset, tmp_path / "disk", ALL) as tier:
        reading = dataset.with_caches([None], [{}], [{None: tier}])
        for _ in range(2):
            assert [reading.read(i) for i in range(COUNT)] == blobs
        counts = tier.counts()
    assert (counts["stored"], counts["hits"], counts["misses"]) == (COUNT, COUNT, COUNT)
    assert (counts["hit_bytes"], counts["miss_bytes"]) == (COUNT * LENGTH, COUNT * LENGTH)


def scribble(path: Path, begin: int, end: int, seed: int) -> None:
    """Other bytes in place of [begin, end)."""
    with path.open("r+b") as file:
        file.seek(begin)
        found = np.frombuffer(file.read(end - begin), np.uint8)
        file.seek(begin)
        file.write((found ^ np.random.default_rng(seed).integers(1, 256, len(found), np.uint8)).tobytes())


PLACES = HEADER_BYTES + LIVE_BYTES
DAMAGES: dict[str, Callable[[Path, Path], None]] = {
    "header": lambda table, _: scribble(table, 0, TIER_HEADER.itemsize, 1),
    "source": lambda table, _: scribble(table, TIER_HEADER.itemsize, TIER_HEADER.itemsize + 8, 2),
    "classes": lambda table, _: scribble(table, CLASSES_OFFSET, CLASSES_OFFSET + 32, 3),
    "crc": lambda table, _: scribble(table, HEADER_BYTES - 4, HEADER_BYTES, 4),
    "live": lambda table, _: scribble(table, HEADER_BYTES, PLACES, 5),
    "places": lambda table, _: scribble(table, PLACES, PLACES + 4 * COUNT, 6),
    "slots": lambda table, _: scribble(table, PLACES + 4096, PLACES + 4096 + 4 * COUNT, 7),
    "records": lambda _, data: scribble(data, 0, 100 * SLOT, 8),
    "table cut": lambda table, _: os.truncate(table, PLACES + 100),
    "table longer": lambda table, _: os.truncate(table, 10 * PLACES),
    "data cut": lambda _, data: os.truncate(data, 50 * SLOT),
    "data gone": lambda _, data: data.unlink(),
    "table gone": lambda table, _: table.unlink(),
    "zeros": lambda table, _: table.write_bytes(bytes(table.stat().st_size)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_between_jobs(tmp_path: Path, dataset: PackedDataset, blobs: list[bytes], damage: str) -> None:
    cache = f"{tmp_path}/disk:{ALL}B"
    epoch(dataset, cache, blobs)
    DAMAGES[damage](*whole_tier(tmp_path / "disk"))
    epoch(dataset, cache, blobs, 2)
    last = epoch(dataset, cache, blobs)  # all is as it should be again
    assert last["held_records"] == COUNT
    assert last["misses"] < TWICE  # and a word may have become another right one


@pytest.mark.parametrize(
    "damage", ["live", "places", "slots", "records", "table cut", "data cut", "data gone"]
)
def test_damage_while_in_use(tmp_path: Path, dataset: PackedDataset, blobs: list[bytes], damage: str) -> None:
    with loader_of(dataset, f"{tmp_path}/disk:{ALL}B") as loader:
        check(loader, blobs, 2)
        DAMAGES[damage](*whole_tier(tmp_path / "disk"))
        found = check(loader, blobs, 3)
    assert found["hits"] >= COUNT // 2
    if damage == "records":
        assert found["damaged"] >= 100
        assert found["stored"] >= COUNT + 100  # into their places


def test_another_sets_record_is_no_hit(tmp_path: Path, dataset: PackedDataset, blobs: list[bytes]) -> None:
    """A slot with a whole record of the set, but of another sample, and its word changed."""
    with opened(dataset, tmp_path / "disk", ALL) as tier:
        reading = dataset.with_caches([None], [{}], [{None: tier}])
        assert [reading.read(i) for i in range(COUNT)] == blobs
        table, data = whole_tier(tmp_path / "disk")
        with data.open("r+b") as file:
            records = [os.pread(file.fileno(), SLOT, i * SLOT) for i in range(COUNT)]
            for i, record in enumerate(reversed(records)):
                os.pwrite(file.fileno(), record, i * SLOT)
        assert [reading.read(i) for i in range(COUNT)] == blobs
        assert tier.counts()["damaged"] == COUNT
        assert table.exists()


def forked(work: Callable[[Callable[[], Any]], None]) -> tuple[int, int]:
    """A child that works, and a pipe with a byte for each sign that it gives."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    try:
        work(partial(os.write, writing, b"."))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def test_processes_share_it_and_kills_lose_nothing(
    tmp_path: Path, dataset: PackedDataset, blobs: list[bytes]
) -> None:
    """Two ranks at a time, killed at random moments, in a tier of a third, whose records change."""
    limit = whole_bytes(np.full(COUNT, LENGTH, np.uint32)) // 3
    cache, chance = f"{tmp_path}/disk:{limit}B", random.Random(5)

    def rank(number: int, sign: Callable[[], Any]) -> None:
        with loader_of(dataset, cache, ranks=Ranks(number, 4, handshake="off")) as loader:
            while True:
                check(loader, blobs)
                sign()

    for _ in range(20):
        ranks = [forked(partial(rank, number)) for number in range(2)]
        for _, pipe in ranks:
            assert os.read(pipe, 1) == b"."
        time.sleep(chance.uniform(0.0, 0.1))
        for process, pipe in ranks:
            os.kill(process, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
            os.close(pipe)
    found = epoch(dataset, cache, blobs, 3)
    assert found["damaged"] == found["overtaken"] == 0
    assert found["held_records"] == found["room_records"]  # no slot is lost


def test_two_jobs_at_once(tmp_path: Path, dataset: PackedDataset, blobs: list[bytes]) -> None:
    def job(sign: Callable[[], Any]) -> None:
        epoch(dataset, f"{tmp_path}/disk:{ALL}B", blobs, 3)
        sign()

    jobs = [forked(job) for _ in range(2)]
    for process, pipe in jobs:
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        assert os.read(pipe, 1) == b"."
        os.close(pipe)
    assert epoch(dataset, f"{tmp_path}/disk:{ALL}B", blobs)["misses"] < COUNT // 10


def test_a_full_disk_is_a_smaller_tier(
    tmp_path: Path, dataset: PackedDataset, blobs: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with tmpfs(tmp_path / "disk", "size=4m") as disk:
        cache = f"{disk}:{ALL}B"
        with loader_of(dataset, cache) as loader:
            next(iter(loader))
            (disk / "others").write_bytes(bytes(2 << 20))
            with caplog.at_level(logging.WARNING, "fastload"):
                found = check(loader, blobs, 3)
            assert found["failed"] >= 1
            assert 0 < found["held_records"] < COUNT
            assert found["misses"] > 0
            (disk / "others").unlink()
        warned = [record.getMessage() for record in caplog.records if "disk tier" in record.getMessage()]
        assert len(warned) == 1
        assert "No space left on device" in warned[0]
        assert epoch(dataset, cache, blobs, 2)["held_records"] == COUNT  # there is room again


def test_a_disk_with_less_room_than_was_asked_for(
    tmp_path: Path, dataset: PackedDataset, blobs: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with tmpfs(tmp_path / "disk", "size=1m") as disk, caplog.at_level(logging.WARNING, "fastload"):
        found = epoch(dataset, f"{disk}:800GB", blobs, 2)
        assert 90 < found["held_records"] == found["room_records"] < 125
        assert "has room for a tier of" in caplog.text
    with tmpfs(tmp_path / "none", "size=16k") as disk:
        found = epoch(dataset, f"{disk}:800GB", blobs)
        assert found["paths"] == []
        assert found["reason"].startswith("no disk tier: ")


def test_other_settings_and_other_sets(
    tmp_path: Path, dataset: PackedDataset, blobs: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    cache = f"{tmp_path}/disk:{ALL}B"
    assert epoch(dataset, f"{tmp_path}/disk:800kB", blobs)["room_records"] < COUNT
    assert epoch(dataset, cache, blobs)["room_records"] == COUNT  # made anew
    assert epoch(dataset, f"{tmp_path}/disk:800kB", blobs)["misses"] < TWICE  # a larger one is used
    chosen = epoch(Subset(dataset, list(range(100))), Cache(disk=cache), blobs)
    assert chosen["misses"] < TWICE
    assert chosen["hits"] >= 100 - chosen["misses"]
    assert main(["cache", "ls", "--dir", str(tmp_path / "disk"), "--json"]) == 0
    assert f'"ready_records": {COUNT}' in capsys.readouterr().out
    assert main(["cache", "ls", "--dir", str(tmp_path / "disk")]) == 0
    assert "disk, encoded" in capsys.readouterr().out
    with loader_of(dataset, cache) as loader:
        next(iter(loader))
        assert main(["cache", "clear", str(dataset.folder), "--dir", str(tmp_path / "disk")]) == 1
    shutil.rmtree(dataset.folder)
    assert main(["cache", "clear", "--stale", "--dir", str(tmp_path / "disk")]) == 0
    assert "1 set removed" in capsys.readouterr().out
    assert list((tmp_path / "disk").glob("*/*.fl*")) == []


def test_what_is_no_place(tmp_path: Path, dataset: PackedDataset) -> None:
    (tmp_path / "file").write_text("")
    with loader_of(dataset, f"{tmp_path}/file:1GB") as loader, pytest.raises(CacheError, match="no place"):
        next(iter(loader))
    with loader_of(dataset, tmp_path) as loader, pytest.raises(CacheError, match="800GB"):
        next(iter(loader))


def test_settings() -> None:
    disk = DiskSetting(Path("/nvme/fastload"), 800 * 10**9)
    assert parse_setting("/nvme/fastload:800GB") == CacheSetting(disk=disk)
    assert parse_setting(["64GB", "/nvme/fastload:800GB"]) == CacheSetting("on", 64 * 10**9, disk=disk)
    assert parse_setting(["off", "/nvme/fastload:800GB"]) == CacheSetting("off", disk=disk)
    assert parse_setting(["/nvme/fastload:800GB"]) == parse_setting("/nvme/fastload:800GB")
    assert Cache("64GB", disk="/nvme/fastload:800GB").setting() == CacheSetting("on", 64 * 10**9, disk=disk)
    assert parse_setting("/a:b/c").root == Path("/a:b/c")
    assert parse_setting("/a:b").root == Path("/a:b")
    for wrong in (["/a:1GB", "64GB"], ["64GB", "1GB"], [], ["/a:1GB", "/b:1GB"]):
        with pytest.raises(ValueError, match="list of caches"):
            parse_setting(wrong)
    with pytest.raises(ValueError, match=r"Cache\.disk"):
        Cache(disk="64GB")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 1.0])
def test_slots_are_the_same_share_of_each_class(share: float) -> None:
    lengths = np.random.default_rng(1).lognormal(11, 0.8, 5000).astype(np.uint32) + 1
    whole = whole_bytes(lengths)
    plan = plan_slots(contents_of(lengths), int(whole * share))
    assert plan.file_size + plan.data_size <= whole * share
    assert (plan.slots <= plan.wanted).all()
    assert (np.diff(plan.sizes) > 0).all()
    assert (np.abs(plan.slots - plan.wanted * share) <= 1 + 0.01 * plan.wanted).all()
    if share == 1:
        assert (plan.slots == plan.wanted).all()
        padded = plan.data_size / lengths.sum(dtype=np.int64)
        assert padded < 1.08  # slots are 12.5% apart, and multiples of 4 KiB


def test_no_room_for_a_record() -> None:
    with pytest.raises(NoRoom, match="no room for a record"):
        plan_slots(contents_of([5000] * 10), 30_000)
