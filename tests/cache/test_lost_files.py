"""Files that somebody cuts while they are in use: no signal, no wrong pixel, and words about what is gone."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cache_folder import OpenFolder
from cache_sets import SIDE, pixels, raw_set
from pictures import jpegs
from plain_pack import plain_pack
from process import in_child

from fastload import DataLoader, PackedDataset, errors
from fastload import transforms as T
from fastload._native import _C
from fastload.cache.opening import open_cache
from fastload.cache.policy import CachedSet, cached_sets
from fastload.cache.settings import CacheSetting
from fastload.cache.warming import plan_jobs, run_job
from fastload.packing.entries import build_entries
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
COUNT = 400


class Words(logging.Handler):
    """What the package warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        logging.getLogger("fastload").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def dataset(tmp_path: Path) -> PackedDataset:
    """Raw pictures, so that every pixel is known."""
    return raw_set(tmp_path / "set", COUNT)


def loader_of(dataset: PackedDataset, **options: Any) -> DataLoader:
    return DataLoader(
        dataset, 8, shuffle=True, seed=1, num_workers=2, transform=T.CenterCrop(SIDE), **options
    )


def right_batches(loader: DataLoader) -> Iterator[int]:
    """Samples so far, after each batch; each picture is what was packed."""
    wanted = torch.from_numpy(pixels(COUNT)).permute(0, 3, 1, 2)
    seen = 0
    for images, labels in loader:
        assert torch.equal(images, wanted[labels])
        seen += len(labels)
        yield seen


def cut_in_epoch(loader: DataLoader, cut: Callable[[], None]) -> int:
    """One epoch, and another one, in the middle of which files are cut; the samples that it delivered."""
    assert list(right_batches(loader))[-1] == COUNT
    seen = 0
    for seen in right_batches(loader):
        if seen == 24:
            cut()
    return seen


def only_set(path: Path) -> CachedSet:
    """What ``fastload cache ls`` shows."""
    folder = OpenFolder(path)
    (found,) = cached_sets(folder)
    os.close(folder.fd)
    return found


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
@pytest.mark.parametrize("left", [0, 300_001])
def test_a_shard_stops_the_run_in_words(dataset: PackedDataset, policy: str, left: int) -> None:
    """Under every policy: a record that is gone is no bad sample."""

    def run() -> None:
        loader = loader_of(dataset, on_error=policy)
        # "ends at byte": cut between a reader's look at the size and its read.
        with pytest.raises(
            errors.SampleError, match="was changed while it was in use|ends at byte"
        ) as caught:
            cut_in_epoch(loader, partial(os.truncate, dataset.folder / "data.bin", left))
        assert isinstance(caught.value.__cause__, errors.ShardTruncated)
        loader.close()

    assert in_child(run) == 0


def test_an_index_stops_the_run_in_words(dataset: PackedDataset) -> None:
    def run() -> None:
        loader = loader_of(dataset)
        with pytest.raises(errors.FastloadError, match=r"index.fli was cut while it was in use"):
            cut_in_epoch(loader, partial(os.truncate, dataset.folder / INDEX_NAME, 100))
        with pytest.raises(errors.ShardTruncated, match=r"index.fli was cut while it was in use"):
            dataset.key(3)
        loader.close()

    assert in_child(run) == 0


def test_entry_points_are_done_without(tmp_path: Path) -> None:
    build_entries(plain_pack(tmp_path / "set", jpegs(52), range(52)), 8, 1)

    def run() -> None:
        words = Words()
        loader = DataLoader(tmp_path / "set", 4, shuffle=True, seed=1, transform=T.RandomResizedCrop(40))
        loader.sampler.set_epoch(0)
        whole = [images.clone() for images, _ in loader]
        loader.sampler.set_epoch(0)
        for step, (images, _) in enumerate(loader):
            if step == 2:
                os.truncate(tmp_path / "set" / ENTRIES_NAME, 0)
            assert torch.equal(images, whole[step])
        assert len(words.said) == 1
        assert ENTRIES_NAME in words.said[0]
        loader.close()

    assert in_child(run) == 0


@pytest.mark.parametrize("part", ["table", "records", "all"])
def test_a_cache_is_done_without(root: Path, dataset: PackedDataset, part: str) -> None:
    def run() -> None:
        words = Words()
        loader = loader_of(dataset, cache=CacheSetting("on"))
        next(right_batches(loader))
        path = Path(loader.stats()["cache"]["paths"][0])
        size = path.stat().st_size
        left = {"table": 12_288 + 500, "records": size // 2, "all": 0}[part]
        assert cut_in_epoch(loader, partial(os.truncate, path, left)) == COUNT
        assert list(right_batches(loader))[-1] == COUNT
        assert path.stat().st_size == left, "it was written to"
        assert any(str(path) in said for said in words.said)
        loader.close()

    assert in_child(run) == 0


@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.parametrize("left", [0, 9000, 200_000])
def test_a_cache_that_was_cut_is_replaced(
    root: Path, dataset: PackedDataset, left: int, in_use: bool
) -> None:
    """Also where somebody still has the old one, who keeps what is left of it."""
    setting = CacheSetting("on")
    use = open_cache([dataset], setting)
    path = Path(use.files[0].path)
    if not in_use:
        use.close()
    os.truncate(path, left)
    found = only_set(path.parent)
    assert found.info is None
    assert found.stale != ""
    again = open_cache([dataset], setting)
    assert path.stat().st_size > left
    assert again.files[0].counts()["ready_records"] == 0
    record = pixels(COUNT)[3].reshape(-1)
    again.files[0].store(3, record, _C.crc32c(record))
    assert again.files[0].is_ready(3)
    found = only_set(path.parent)
    assert found.info is not None
    assert found.info.ready_records == 1


def test_warming_from_a_shard_that_was_cut(root: Path, dataset: PackedDataset) -> None:
    def run() -> None:
        dataset.reader.read(0)  # it is mapped
        (job,) = plan_jobs([dataset], CacheSetting("on"), lambda _: None)
        os.truncate(dataset.folder / "data.bin", 300_001)
        result = run_job(job, 2, lambda _: None)
        gone = COUNT - 300_001 // (3 * SIDE * SIDE)
        assert result.counts["failed_records"] == gone
        assert result.counts["put_records"] == COUNT - gone
        assert "was changed while it was in use" in result.failures[0][1]

    assert in_child(run) == 0


CUT_UNDER_FAULTHANDLER = """
import faulthandler, os, signal, sys
import fastload

folder, when, signalled = sys.argv[1:]
if when == "before":
    faulthandler.enable()
dataset = fastload.PackedDataset(folder)
dataset.reader.read(0)  # it is mapped
if when == "after":
    faulthandler.enable()
if signalled == "raised":
    signal.raise_signal(signal.SIGBUS)
os.truncate(dataset.folder / "data.bin", 0)
for _ in range(2):
    try:
        dataset.reader.read(200)
    except fastload.errors.ShardTruncated as error:
        print(error)
"""


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_pythons_own_reports_do_not_stand_in_the_way(dataset: PackedDataset, when: str) -> None:
    """faulthandler's handler, installed after ours, reports and gives the fault to ours. In an interpreter of
    its own: pytest has enabled faulthandler here, before anything."""
    ended = run_python(CUT_UNDER_FAULTHANDLER, dataset.folder, when, "no")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("was changed while it was in use") == 2
    assert ("Bus error" in ended.stderr) == (when == "after")


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_a_signal_that_somebody_sends_ends_the_process_as_ever(dataset: PackedDataset, when: str) -> None:
    ended = run_python(CUT_UNDER_FAULTHANDLER, dataset.folder, when, "raised")
    assert ended.returncode == -signal.SIGBUS


def run_python(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
