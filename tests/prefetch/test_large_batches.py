"""Batches that differ in size are in work as far as some bytes go, where nobody asked for a number."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from field_sets import RICH, rich_samples, write_field_set

from fastload import DataLoader
from fastload import transforms as T
from fastload.backends.options import least_prefetch
from fastload.loader import options as resolving
from fastload.prefetch.slots import in_steps

COUNT, BATCH = 40, 4
LISTS: dict[str, Any] = {"collate": "ragged", "fields": ["image", "boxes", "caption"], "cache": "off"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("large") / "set", RICH, rich_samples(COUNT))


def ahead_of_each(folder: Path, leased: list[int], **options: Any) -> tuple[list[list[int]], list[Any]]:
    """The bytes of the batches that are in work behind each of two epochs' batches, and their pictures."""
    ahead, pictures = [], []
    with DataLoader(folder, BATCH, shuffle=True, seed=3, num_workers=1, **options) as loader:
        for _ in range(2):
            for batch in loader:
                ahead.append(leased[len(ahead) + 1 :])
                pictures.append([picture.clone() for picture in batch["image"]])
    return ahead, pictures


def test_as_many_as_the_bytes_hold_and_the_same_batches(
    folder: Path, leased: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    free, expected = ahead_of_each(folder, leased, **LISTS)
    assert {len(one) for one in free[:-8]} == {8}
    bound = 3 * sorted(leased)[len(leased) // 2]
    leased.clear()
    monkeypatch.setattr(resolving, "AHEAD_BYTES", bound)
    found, batches = ahead_of_each(folder, leased, **LISTS)
    pairs = zip(chain(*batches), chain(*expected), strict=True)
    assert all(one.equal(other) for one, other in pairs)
    assert len({len(one) for one in found}) > 1  # as they differ in size
    for one in found:
        assert 2 <= len(one) <= 8
        before = one[:-1]
        assert len(one) == 2 or sum(before) + max(before) <= bound
        assert len(one) == 8 or sum(one) + max(one) > bound


def test_two_are_in_work_however_large_they_are(
    folder: Path, leased: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolving, "AHEAD_BYTES", 1)
    found, _ = ahead_of_each(folder, leased, **LISTS)
    assert {len(one) for one in found} == {2}


def test_enough_samples_for_all_threads_are() -> None:
    assert [least_prefetch(threads, 4) for threads in (1, 4, 6, 64)] == [2, 2, 3, 32]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({**LISTS, "prefetch_factor": 5}, 5),
        ({"fields": ["image", "label"], "transform": T.RandomResizedCrop(8)}, 8),
    ],
    ids=["asked for", "of one size"],
)
def test_others_are_as_many_as_was_said(
    folder: Path, leased: list[int], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], count: int
) -> None:
    monkeypatch.setattr(resolving, "AHEAD_BYTES", 1)
    found, _ = ahead_of_each(folder, leased, **options)
    assert {len(one) for one in found} == {count}


def test_the_plan_says_so(folder: Path, leased: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with DataLoader(folder, BATCH, num_workers=1, **LISTS) as loader:
        plan = loader.memory_plan()
    assert plan["slots"] == 8 + 2
    monkeypatch.setattr(resolving, "AHEAD_BYTES", 3 * plan["slot_bytes"])
    with DataLoader(folder, BATCH, num_workers=1, **LISTS) as loader:
        bounded = loader.memory_plan()
    assert bounded["slots"] == 3 + 2 + 2
    assert bounded["total"] - bounded["read_ahead_bytes"] == bounded["slots"] * plan["slot_bytes"]
    found, _ = ahead_of_each(folder, leased, **LISTS)
    most = max(sum(map(in_steps, one)) for one in found)
    assert 0 < most <= (bounded["slots"] - 2) * bounded["slot_bytes"]
