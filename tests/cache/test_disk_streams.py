"""Disk tiers of further pictures, of mixes and subsets, below decoded pictures, and for Python callables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from cache_folder import cache_of
from field_sets import RICH, rich_samples, write_field_set
from torch.utils.data import Subset

import fastload.transforms as T
from fastload import DataLoader, PackedDataset, mix

COUNT = 30
PICTURES = ("image", "mask", "second")
SMALL = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("fields") / "set", RICH, rich_samples(COUNT))


def epoch(dataset: Any, cache: Any, **options: Any) -> tuple[list[dict[str, torch.Tensor]], dict[str, Any]]:
    """The pictures of an epoch, and the stats of its cache."""
    if "decoded" in options:
        cache = cache_of(cache, decoded=options.pop("decoded"))
    settings: dict[str, Any] = {"transform": SMALL, "num_workers": 2, "seed": 3, **options}
    with DataLoader(dataset, 7, cache=cache, **settings) as loader:
        batches = [{name: batch[name].clone() for name in PICTURES if name in batch} for batch in loader]
        found: dict[str, Any] = loader.stats()["cache"]
    return batches, found


def same(found: list[dict[str, torch.Tensor]], wanted: list[dict[str, torch.Tensor]]) -> bool:
    assert len(found) == len(wanted) > 0
    pairs = list(zip(found, wanted, strict=True))
    return all(torch.equal(one[name], other[name]) for one, other in pairs for name in PICTURES)


@pytest.mark.parametrize("kind", ["set", "subset", "mix"])
@pytest.mark.parametrize("options", [{}, {"decoded": 24}, {"shuffle": True}])
def test_each_stream_has_a_tier(root: Path, folder: Path, tmp_path: Path, kind: str, options: Any) -> None:
    dataset: Any = PackedDataset(folder)
    if kind == "subset":
        dataset = Subset(dataset, list(range(0, COUNT, 2)))
    elif kind == "mix":
        other = write_field_set(tmp_path / "other", RICH, rich_samples(10))
        dataset = mix([dataset, PackedDataset(other)], weights=[1, 1])
    cache = ["off", f"{tmp_path}/disk:64MB"]
    wanted, _ = epoch(dataset, "off", **options)
    first, counts = epoch(dataset, cache, **options)
    again, later = epoch(dataset, cache, **options)
    assert same(first, wanted)
    assert same(again, wanted)
    assert len(counts["disk"]["paths"]) == (6 if kind == "mix" else 3)
    assert counts["disk"]["stored"] > 0
    assert later["disk"]["hits"] > 0
    assert later["disk"]["damaged"] == 0
    if kind == "set":
        # Two that store a record at the same time have a slot each, and then another record may have none.
        assert later["disk"]["misses"] <= 3
        assert later["disk"]["held_records"] == 3 * COUNT
