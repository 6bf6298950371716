"""Further pictures' records in the cache: a file for each stream, whoever reads which of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cache_sets import whole_file
from field_sets import RICH, SHARD, rich_samples, write_field_set
from torch.utils.data import Subset

import fastload.transforms as T
from fastload import Cache, DataLoader, PackedDataset, mix
from fastload.cache.folder import folder_path
from fastload.cache.opening import open_cache
from fastload.cache.settings import CacheSetting
from fastload.cli import main
from fastload.errors import SampleError
from fastload.sample.schema import Schema

COUNT = 30
STREAMS = {"encoded": "image", "field-02": "mask", "field-03": "second"}
SMALL = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("fields") / "set", RICH, rich_samples(COUNT))


def tiers(root: Path, dataset: PackedDataset) -> list[str]:
    """The files that there are, by tier."""
    names = sorted(path.name for path in folder_path(root).glob("*.flc"))
    assert all(name.startswith(f"{dataset.id}-") and name.endswith("-1.flc") for name in names)
    return [name.removeprefix(f"{dataset.id}-").removesuffix("-1.flc") for name in names]


def opened(dataset: Any, **options: Any) -> DataLoader:
    settings: dict[str, Any] = {"cache": "32MB", "transform": SMALL, "num_workers": 2, "seed": 3}
    return DataLoader(dataset, 7, **{**settings, **options})


def epoch(loader: DataLoader) -> list[dict[str, Any]]:
    return [
        {name: value.clone() for name, value in batch.items() if name in STREAMS.values()} for batch in loader
    ]


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    assert len(found) == len(wanted) > 0
    return all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in b)
        for a, b in zip(found, wanted, strict=True)
    )


def spoil(folder: Path, names: set[str]) -> None:
    """Damage all records of some fields in the shard."""
    dataset = PackedDataset(folder)
    shard = np.fromfile(folder / SHARD, np.uint8)
    for name in names:
        records = dataset.records if name == "image" else dataset.field_records(name)
        for record in records:
            begin = int(record["offset"])
            shard[begin : begin + int(record["length"])] ^= 0x55
    shard.tofile(folder / SHARD)


def test_all_that_is_read_is_kept_and_comes_from_there(root: Path, folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    with opened(copy, cache="off") as loader:
        wanted = [epoch(loader) for _ in range(2)]
    with opened(copy) as loader:
        assert same(epoch(loader), wanted[0])
        cache = loader.stats()["cache"]
        assert cache["room_records"] == 3 * COUNT
        assert [Path(path).name.split("-", 1)[1] for path in cache["paths"]] == [
            f"{tier}-1.flc" for tier in STREAMS
        ]
    assert tiers(root, PackedDataset(copy)) == list(STREAMS)
    spoil(copy, set(STREAMS.values()))
    with opened(copy) as loader:
        assert same(epoch(loader), wanted[0])
        assert same(epoch(loader), wanted[1])
        cache = loader.stats()["cache"]
        assert cache["ready_records"] == 3 * COUNT
        assert (cache["misses"], cache["damaged"]) == (0, 0)
        assert cache["hits"] >= 2 * 3 * COUNT
    with opened(copy, cache="off") as loader, pytest.raises(SampleError):
        epoch(loader)


def test_each_loader_keeps_the_streams_that_it_reads(root: Path, folder: Path) -> None:
    dataset = PackedDataset(folder)
    with opened(folder, fields=["mask", "label"]) as loader:
        masks = epoch(loader)
        assert tiers(root, dataset) == ["field-02"]
        assert loader.stats()["cache"]["ready_records"] == COUNT
    with opened(folder, fields=["image"]) as one, opened(folder, fields=["mask", "label"]) as other:
        images = epoch(one)
        assert same(epoch(other), masks)
        assert one.stats()["cache"]["ready_records"] == COUNT
        assert (other.stats()["cache"]["misses"], other.stats()["cache"]["stored"]) == (0, 0)
        assert tiers(root, dataset) == ["encoded", "field-02"]
    files = {path: whole_file(path) for path in folder_path(root).glob("*.flc")}
    with opened(folder, fields=["image", "mask", "second"]) as loader:
        found = epoch(loader)
        assert loader.stats()["cache"]["stored"] == COUNT
    assert same([{"image": batch["image"]} for batch in found], images)
    assert same([{"mask": batch["mask"]} for batch in found], masks)
    assert all(np.array_equal(whole_file(path), bytes) for path, bytes in files.items())


def test_without_records_there_is_no_cache(root: Path, folder: Path) -> None:
    with opened(folder, fields=["label", "weight"], transform=None) as loader:
        assert len(list(loader)) > 0
        assert loader.stats()["cache"]["paths"] == []
    assert not folder_path(root).exists()


def test_the_plan_counts_all_streams(root: Path, folder: Path) -> None:
    with opened(folder, fields=["image", "mask", "second", "label"]) as loader:
        planned = loader.memory_plan()["cache_bytes"]
        assert not folder_path(root).exists()
        epoch(loader)
        found = loader.stats()["cache"]["bytes"]
        assert found <= planned <= found + 3 * 3 * 4096
        assert loader.memory_plan()["cache_bytes"] == found
    with opened(folder, fields=["image"]) as loader:
        assert 0 < loader.memory_plan()["cache_bytes"] < found


def test_mixtures_and_subsets_keep_each_part_apart(root: Path, folder: Path, tmp_path: Path) -> None:
    other = write_field_set(tmp_path / "other", RICH, rich_samples(12, seed=4))
    for dataset in (mix([folder, other]), Subset(PackedDataset(folder), range(4, 25))):
        with opened(dataset, cache="off") as loader:
            wanted = epoch(loader)
        with opened(dataset) as loader:
            assert same(epoch(loader), wanted)
        with opened(dataset) as loader:
            assert same(epoch(loader), wanted)
            assert loader.stats()["cache"]["misses"] == 0
    assert len(list(folder_path(root).glob("*.flc"))) == 2 * len(STREAMS)


def test_another_sets_file_is_refused(root: Path, folder: Path) -> None:
    dataset = PackedDataset(folder)
    (file,) = open_cache([dataset], CacheSetting("on"), streams=["mask"]).files
    with pytest.raises(ValueError, match="is a cache of 30 records of another dataset than .*field-03.fli"):
        dataset.with_caches([None], [{"second": file}])


def test_decoded_pictures_of_the_first_stream_and_records_of_the_others(root: Path, folder: Path) -> None:
    fields, kept = ["image", "mask"], Cache("32MB", decoded=24)
    with opened(folder, cache=Cache("off", decoded=24), fields=fields) as loader:
        wanted = epoch(loader)
    with opened(folder, cache=kept, fields=fields) as loader:
        assert same(epoch(loader), wanted)
        assert tiers(root, PackedDataset(folder)) == ["decoded-24", "field-02"]
    with opened(folder, cache=kept, fields=fields) as loader:
        assert same(epoch(loader), wanted)
        assert loader.stats()["cache"]["stored"] == 0


def test_callables_get_records_from_there(root: Path, folder: Path) -> None:
    def whole(sample: dict[str, Any]) -> dict[str, Any]:
        return {"mask": sample["mask"][:20, :20].contiguous()}

    options: dict[str, Any] = {"transform": T.Compose([whole]), "fields": ["mask"], "num_workers": 0}
    with opened(folder, cache="off", **options) as loader:
        wanted = epoch(loader)
    for _ in range(2):
        with opened(folder, **options) as loader:
            assert same(epoch(loader), wanted)
    assert loader.stats()["cache"]["misses"] == 0
    assert loader.stats()["cache"]["hits"] >= COUNT


def test_a_small_stream_without_room_is_read_each_time(root: Path, tmp_path: Path) -> None:
    """The tables alone take the masks' share of a cache this small."""
    schema = Schema.of({"image": RICH["image"].kind, "mask": RICH["mask"].kind})
    samples = [{name: one[name] for name in ("image", "mask")} for one in rich_samples(COUNT)]
    folder = write_field_set(tmp_path / "set", schema, samples)
    with opened(folder, cache="off") as loader:
        wanted = epoch(loader)
    with opened(folder, cache="42kB") as loader:
        assert same(epoch(loader), wanted)
        cache = loader.stats()["cache"]
        assert 0 < cache["room_records"] < COUNT
        assert "field 'mask': no cache: A cache of" in cache["reason"]


def warm(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, list[dict[str, Any]]]:
    status = main(["warm", "--json", *map(str, arguments)])
    return status, json.loads(capsys.readouterr().out)["sets"]


def test_warming_takes_all_streams(root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = warm(capsys, folder, "--to", root)
    assert status == 0
    assert [one["field"] for one in found] == ["image", "mask", "second"]
    assert all(one["whole"] and one["put_records"] == COUNT for one in found)
    with opened(folder) as loader:
        epoch(loader)
        cache = loader.stats()["cache"]
        assert (cache["misses"], cache["stored"]) == (0, 0)
        assert cache["hits"] >= 3 * COUNT
    assert main(["warm", str(folder)]) == 0
    assert "field 'mask': " in capsys.readouterr().out


def test_warming_named_fields(root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = warm(capsys, folder, "--to", root, "--fields", "mask,image")
    assert (status, [one["field"] for one in found]) == (0, ["mask", "image"])
    assert tiers(root, PackedDataset(folder)) == ["encoded", "field-02"]
    assert main(["warm", str(folder), "--fields", "caption"]) == 2
    assert "no pictures are called 'caption'. Legal are: image, mask, second" in capsys.readouterr().err


def test_the_page_cache_takes_all_streams(
    root: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = warm(capsys, folder, "--page-cache")
    assert (status, len(found)) == (0, 3)
    assert [one["there_records"] + one["put_records"] for one in found] == [COUNT] * 3
    limit = sum(one["bytes"] for one in found) // 3
    status, found = warm(capsys, folder, "--page-cache", "--limit", f"{limit}B")
    assert status in (0, 3)  # regions of the shard are kept or left out whole
