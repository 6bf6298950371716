"""The doctor on sets in stores: what the line gives, records kept for trials, a tier on disk."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from cache_folder import memory_folder
from doctor_cases import BASE, STORAGE, case, loop
from fault_server import FaultServer
from watched_loops import FakeClock

from fastload import DataLoader, PackedDataset, mix
from fastload import transforms as T
from fastload._native import _C
from fastload.cache.settings import CacheSetting, parse_setting
from fastload.diagnose.doctor import _as_watched, _fetched_share, examine, measured_stages
from fastload.diagnose.facts import Stage
from fastload.diagnose.fixes import data as disk_tier
from fastload.diagnose.storage import Fetching, measure_line
from fastload.diagnose.trial import LoaderUnderTest, LocalCopy, can_be_replicated
from fastload.diagnose.verdict import judge
from fastload.loader.view import viewed

CROP = T.RandomResizedCrop(32)
LINE = replace(STORAGE, remote=True, line="s3://bucket/set")


class SlowEngine:
    """A store of ``rate`` records of 1000 bytes a second, behind a first second in which ten times as many
    come."""

    def __init__(self, clock: FakeClock, rate: float) -> None:
        self.clock, self.rate, self.began = clock, rate, clock()
        self.asked = 0
        self.most = 0
        self.waiting: deque[np.ndarray] = deque()

    def announce(self, ids: np.ndarray) -> np.ndarray:
        self.asked += len(ids)
        self.waiting.append(ids)
        self.most = max(self.most, self.asked - self.read_ahead()["ahead"])
        return ids

    def forget(self, ids: np.ndarray) -> None:
        assert self.waiting.popleft() is ids

    def read_ahead(self) -> dict[str, int]:
        passed = self.clock() - self.began
        come = int(self.rate * (passed + 9 * min(1.0, passed)))
        come = min(come, self.asked)
        return {"ahead": come, "bytes": 1000 * come}


def test_what_a_line_gives_is_what_comes_behind_the_first_burst() -> None:
    clock = FakeClock()
    engine = SlowEngine(clock, 500.0)
    fetching = Fetching(engine, 8, 4000, clock, clock.sleep)
    rates = fetching.rates(np.arange(100), 3.0)
    assert rates is not None
    assert rates[0] == pytest.approx(500, rel=0.02)
    assert rates[1] == pytest.approx(500_000, rel=0.02)
    assert engine.most <= 4008
    assert not engine.waiting  # all are forgotten
    assert clock() == pytest.approx(103.0, abs=0.1)


def test_few_records_are_waited_for() -> None:
    clock = FakeClock()
    rates = Fetching(SlowEngine(clock, 2.0), 8, 16, clock, clock.sleep).rates(np.arange(100), 3.0)
    assert rates is not None
    assert rates[0] == pytest.approx(2, rel=0.3)
    assert clock() == pytest.approx(112.0, abs=0.1)


def test_a_store_that_gives_nothing_has_no_rate() -> None:
    clock = FakeClock()
    assert Fetching(SlowEngine(clock, 0.0), 8, 16, clock, clock.sleep).rates(np.arange(100), 1.0) is None
    assert clock() == pytest.approx(110.0, abs=0.1)


def test_rest_waits_until_nothing_comes() -> None:
    clock = FakeClock()
    engine = SlowEngine(clock, 100.0)
    engine.asked = 1050  # 1000 in the first second
    Fetching(engine, 8, 16, clock, clock.sleep).rest()
    assert clock() == pytest.approx(101.8, abs=0.1)


@pytest.fixture
def shelf(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    """The set on a web server."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    with FaultServer(folder=folder) as server:
        yield server


def loader(dataset: Any, **options: Any) -> DataLoader:
    given = {"batch_size": 4, "shuffle": True, "seed": 1, "transform": CROP, "num_workers": 1, "cache": "off"}
    return DataLoader(dataset, **(given | options))


def test_a_replica_has_the_records_that_were_asked_for(packed: PackedDataset, tmp_path: Path) -> None:
    both = mix([packed, packed])
    replica = LocalCopy(both, tmp_path / "copy")
    wanted = np.array([3, 51, 60])
    assert replica.fill(wanted, 60.0, 1 << 30).tolist() == [3, 51, 60]
    copy = replica.dataset()
    for sample in wanted.tolist():
        part, number = copy.locate(sample)
        own, same = both.locate(sample)
        assert part.reader.read(number) == own.reader.read(same)
        path, offset, length = replica.place(sample)
        assert path.read_bytes()[offset : offset + length] == own.reader.read(same)
    part, number = copy.locate(4)
    with pytest.raises(Exception, match="CRC"):
        part.reader.read(number)
    assert replica.fill(np.arange(52), 60.0, 1).tolist() == list(
        range(32)
    )  # a wave, and its bytes are enough


def test_a_replica_writes_on_after_a_short_write_and_names_the_file_where_there_is_no_room(
    packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:100], at))
    replica = LocalCopy(packed, tmp_path / "short")
    assert replica.fill(np.array([3]), 60.0, 1 << 30).tolist() == [3]
    part, number = replica.dataset().locate(3)
    assert part.reader.read(number) == packed.reader.read(3)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match=r"No space left on device, for records of trials: '.*/short/part0/0'"):
        replica.fill(np.array([4]), 60.0, 1 << 30)


def test_trials_of_a_set_in_a_store_ask_it_for_nothing(
    shelf: FaultServer, packed: PackedDataset, tmp_path: Path
) -> None:
    with loader(shelf.url, cache="64MB") as given:
        subject = LoaderUnderTest(viewed(given, "a test"), tmp_path)
        assert sorted(subject.ids.tolist()) == list(range(52))
        before = len(shelf.requests)
        with closing(subject.make(seed=1)) as tried, loader(packed, sampler=tried.loader.sampler) as local:
            for (images, labels), (others, same) in zip(tried, local, strict=False):
                assert torch.equal(images, others)
                assert torch.equal(labels, same)
        assert len(shelf.requests) == before


def test_a_line_is_measured_by_reading_ahead(shelf: FaultServer, tmp_path: Path) -> None:
    with loader(shelf.url) as given:
        found = measure_line(LoaderUnderTest(viewed(given, "a test"), tmp_path), 0.3)
    assert found is not None
    assert found.line == shelf.url
    assert found.remote
    assert found.orderly >= found.random > 0
    assert found.bytes > 0
    assert found.latency > 0


def test_a_set_in_a_store_is_examined(shelf: FaultServer) -> None:
    with loader(shelf.url) as given:
        verdict = examine(given, step=Stage("step", 1e9), seconds=15.0)
    storage = next(stage for stage in verdict.stages if stage.name == "storage")
    assert storage.evidence.startswith(f"{shelf.url}: ")
    assert "The engine read ahead" in storage.evidence
    loaded = next(stage for stage in verdict.stages if stage.name == "loader")
    assert "on records in memory" in loaded.evidence
    assert verdict.loader_rate <= storage.rate * (1 + 1e-9)


def test_what_caches_have_is_not_asked_for(shelf: FaultServer, tmp_path: Path) -> None:
    with memory_folder(tmp_path) as memory:
        tier = ["off", f"{tmp_path}/disk:64MB"]
        for cache, expected in (("off", 1.0), (str(memory.path), 0.0), (tier, 0.0)):
            with loader(shelf.url, cache=cache) as given:
                assert _fetched_share(LoaderUnderTest(viewed(given, "a test"))) == pytest.approx(expected)
    with loader(shelf.url) as given:
        counted = {"cache": {"hits": 30, "misses": 70, "disk": {"hits": 60, "misses": 10}}}
        given.stats = lambda: counted  # type: ignore[method-assign]
        assert _fetched_share(LoaderUnderTest(viewed(given, "a test"))) == pytest.approx(0.1)


def test_the_verdict_has_the_line_and_what_the_loader_needs() -> None:
    of = case(storage=LINE, cold=0.5, base=replace(BASE, rate=300.0))
    said = judge(of, measured_stages(of), [])
    assert said.limit == "storage"
    assert (
        "Storage is the bottleneck: the link to s3://bucket/set delivers 8 MB/s for random records, 80 "
        "images/s; the loader needs 15 MB/s for 300."
    ) in str(said)
    assert said.stages[0].evidence.startswith("s3://bucket/set: 80 records/s at random, 400 in order, ")


def disk_case(packed: PackedDataset, folder: Path, **changes: Any) -> Any:
    subject = SimpleNamespace(
        dataset=packed,
        options=SimpleNamespace(cache=CacheSetting("off")),
        data_bytes=10**9,
        fits_memory=False,
        ids=np.arange(8),
    )
    given = {"storage": LINE, "cold": 1.0, "step": None, "subject": subject, "folder": folder}
    return case(**(given | changes))


def test_a_tier_on_disk_is_worth_what_the_disk_gives(
    packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_tier, "_disk_rate", lambda of: 800.0)
    monkeypatch.setattr(disk_tier, "_free", lambda folder: 5 * 10**8 / 0.9)
    monkeypatch.setattr(_C, "file_system", lambda folder: {"in_memory": False, "remote": False})
    of = disk_case(packed, tmp_path)
    (found,) = disk_tier.on_local_disk(of)
    assert found.name == "disk-tier"
    assert found.words == 'cache="/LOCAL_DISK/FOLDER:500MB"'
    assert found.rate == pytest.approx(1 / (0.5 / 80 + 0.5 / 800))
    assert "gave 800 of the set's records per second" in found.evidence
    assert found.price == "500 MB of disk"
    for changes in ({"cold": 0.0}, {"storage": STORAGE}, {"storage": None}):
        assert list(disk_tier.on_local_disk(replace(of, **changes))) == []
    tier = SimpleNamespace(cache=parse_setting(f"{tmp_path}:1GB"))
    for name, value in (("fits_memory", True), ("options", tier)):
        subject: Any = SimpleNamespace(**{**vars(of.subject), name: value})
        assert list(disk_tier.on_local_disk(replace(of, subject=subject))) == []
    monkeypatch.setattr(_C, "file_system", lambda folder: {"in_memory": True, "remote": False})
    assert list(disk_tier.on_local_disk(of)) == []


def test_a_disk_is_read_where_records_were_written(packed: PackedDataset, tmp_path: Path) -> None:
    assert disk_tier._disk_rate(disk_case(packed, tmp_path)) > 1.0
    assert len(list((tmp_path / "tier").rglob("*"))) > 1


def test_views_and_sets_of_other_fields_have_no_replica(packed: PackedDataset) -> None:
    assert can_be_replicated(packed)
    assert can_be_replicated(mix([packed, packed]))
    assert not can_be_replicated(torch.utils.data.Subset(packed, [1, 2]))
    assert not can_be_replicated(SimpleNamespace(parts=(packed,)))


def test_what_the_system_read_is_not_the_lines() -> None:
    watched = replace(loop(0.5, 0.01), read_bytes=1000)
    for in_store, expected in ((True, STORAGE.bytes), (False, 1000 / watched.seconds)):
        subject: Any = SimpleNamespace(in_store=in_store)
        found = _as_watched(STORAGE, subject, watched, BASE)
        assert found is not None
        assert found.bytes == expected
