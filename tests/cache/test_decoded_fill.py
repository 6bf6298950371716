"""Filling the decoded tier before it is used: what ``fastload warm --decoded`` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_folder import OpenFolder
from decoded_engine import EPOCHS, epochs_of, make_cache
from odd_files import ODD_FILES, odd_file
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload.cache.files import attach, inspect
from fastload.cache.tiers import decoded, fill_target, tier_of
from fastload.cache.warming import WarmJob, WarmResult, run_job


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """The odd files, four times."""
    blobs = list(ODD_FILES.values()) * 4
    return plain_pack(tmp_path_factory.mktemp("odd"), blobs, range(len(blobs)))


def fill(dataset: PackedDataset, folder: OpenFolder, side: Any, **options: Any) -> WarmResult:
    """Fill the cache "x"."""
    file = attach(folder, "x")
    job = WarmJob(dataset, file.path, "", cache=file, target=fill_target(file, side, **options))
    return run_job(job, 2, lambda counts: None)


@pytest.mark.parametrize("side", [48, "full"])
def test_what_is_filled_is_what_a_loader_stores(odd: PackedDataset, tmp_path: Path, side: Any) -> None:
    expected = epochs_of(odd, side)[0]
    folder = make_cache(tmp_path, odd, side, 0.7)
    room = inspect(folder, "x").room_records
    filled = fill(odd, folder, side)
    assert filled.failures == []
    assert filled.counts["put_records"] == room == inspect(folder, "x").ready_records
    found, faults, counts = epochs_of(odd, side, folder)
    assert faults == []
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert counts["hits"] == EPOCHS * room
    assert counts["stored"] == counts["damaged"] == 0
    assert fill(odd, folder, side).counts["read_bytes"] == 0


def test_a_fill_goes_on_where_a_loader_stopped(odd: PackedDataset, tmp_path: Path) -> None:
    folder = make_cache(tmp_path, odd, 48)
    some = np.flatnonzero(odd.records["width"] > 0)[:7]
    epochs_of(odd, 48, folder, some)
    counts = fill(odd, folder, 48).counts
    assert counts["there_records"] == 7
    assert counts["put_records"] == counts["records"] - 7


def test_what_does_not_decode_is_named(tmp_path: Path) -> None:
    data = plain_pack(
        tmp_path / "data", [odd_file(90, 90), odd_file(90, 90, "PNG")[:-2000], odd_file(300, 200)]
    )
    folder = make_cache(tmp_path, data, 48)
    filled = fill(data, folder, 48, max_pixels=50_000)
    failures = dict(filled.failures)
    assert set(failures) == {1, 2}
    assert "at most 50000" in failures[2]
    assert filled.counts["put_records"] == 1
    assert attach(folder, "x").counts()["ready_records"] == 1


def test_an_index_with_other_sizes_is_named(tmp_path: Path) -> None:
    """Room was reckoned for another picture."""
    data = plain_pack(tmp_path / "data", [odd_file(90, 60)])
    other = plain_pack(tmp_path / "other", [odd_file(60, 90)])
    folder = make_cache(tmp_path, data, 48)
    wrong = fill(other, folder, 48)
    assert "cannot be written" in wrong.failures[0][1]
    assert fill(data, folder, 48).failures == []


def test_a_target_of_another_tier_is_refused(odd: PackedDataset, tmp_path: Path) -> None:
    folder = make_cache(tmp_path, odd, 48)
    with pytest.raises(ValueError, match="must be of the tier decoded-full"):
        fill_target(attach(folder, "x"), "full")


def test_tiers(odd: PackedDataset) -> None:
    assert tier_of(None).name == "encoded"
    tier = tier_of(48)
    assert tier.name == decoded(odd, 48).tier == "decoded-48"
    assert tier.data_bytes(odd) == decoded(odd, 48).set_bytes == tier.contents(odd).set_bytes
    assert tier_of("full").name == "decoded-full"
