"""Batches are the same, bit for bit, with and without a cache, whatever is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cache_folder import OpenFolder
from cold_files import drop
from pack_trees import class_tree
from plain_pack import plain_pack

import fastload
import fastload.transforms as T
from fastload import DataLoader, PackedDataset
from fastload.cache.files import attach, create
from fastload.cache.layout import ENTRY, encoded
from fastload.cache.opening import start_copies
from fastload.packing import PackOptions, pack
from fastload.prefetch.engine_calls import plan_read_ahead
from fastload.sampler import Partition, make_sampler

SMALL = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
FORMATS = ("arrow", "lmdb", "hdf5")


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same pictures in each format; and other ones."""
    root = tmp_path_factory.mktemp("packs")
    tree = class_tree(root / "tree", 3, 16)
    for name in FORMATS:
        pack(tree, root / name, PackOptions(format=name, num_proc=1))
    pack(class_tree(root / "other tree", 2, 9), root / "other", PackOptions(num_proc=1))
    return {name: root / name for name in (*FORMATS, "other")}


def cached(folder: Path, memory: OpenFolder, share: float = 1.0) -> PackedDataset:
    dataset = PackedDataset(folder)
    name = f"{dataset.id}.flc"
    if name not in memory.names():
        tables = sum((folder / file).stat().st_size for file in ("index.fli", "entries.fli")) + 40960
        contents = encoded(dataset)
        create(memory, name, contents, int(share * contents.set_bytes) + tables)
    return dataset.with_caches([attach(memory, name)])


def epochs(dataset: Any, count: int = 2, **options: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    settings = {"batch_size": 7, "num_workers": 2, "transform": SMALL, "seed": 5, "cache": "off", **options}
    with DataLoader(dataset, **settings) as loader:
        return [(images.clone(), labels.clone()) for _ in range(count) for images, labels in loader]


def same(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(
        torch.equal(a, b)
        for one, other in zip(found, expected, strict=True)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shuffle", [True, False])
def test_in_all_formats_in_any_order(
    packs: dict[str, Path], memory: OpenFolder, name: str, shuffle: bool
) -> None:
    expected = epochs(PackedDataset(packs[name]), shuffle=shuffle)
    dataset = cached(packs[name], memory, 0.7)
    assert same(epochs(dataset, shuffle=shuffle), expected)
    counts = dataset.cache.counts()
    room = dataset.cache.room_records
    assert 0.6 * len(dataset) < room < len(dataset)
    assert counts["stored"] == counts["ready_records"] == room
    # A few batches of a third epoch are decoded ahead, too, and a store may come after its record's next use.
    assert counts["hits"] > room // 2
    assert counts["hits"] + counts["misses"] >= 2 * len(dataset)
    again = cached(packs[name], memory)
    assert same(epochs(again, shuffle=shuffle), expected)
    assert again.cache.counts()["hits"] >= 2 * room


def test_of_a_mix_each_part_has_its_own(packs: dict[str, Path], memory: OpenFolder) -> None:
    def mixed(*parts: Any) -> Any:
        return fastload.mix(parts, weights=[3, 1])

    expected = epochs(mixed(packs["arrow"], packs["other"]), 3, shuffle=True)
    parts = [cached(packs["arrow"], memory, 0.5), cached(packs["other"], memory)]
    assert same(epochs(mixed(*parts), 3, shuffle=True), expected)
    for part in parts:
        counts = part.cache.counts()
        assert counts["stored"] > 0
        assert counts["hits"] > 0
    one = [cached(packs["arrow"], memory), PackedDataset(packs["other"])]
    assert same(epochs(mixed(*one), 3, shuffle=True), expected)


def test_with_the_tables_copies_and_without_the_source(
    packs: dict[str, Path], memory: OpenFolder, tmp_path: Path
) -> None:
    """Once everything is in memory the shards are not even opened."""
    tree = class_tree(tmp_path / "tree", 2, 12)
    pack(tree, tmp_path / "set", PackOptions(num_proc=1))
    expected = epochs(PackedDataset(tmp_path / "set"), shuffle=True)
    filler = cached(tmp_path / "set", memory)
    epochs(filler, 1, shuffle=True)
    thread = start_copies(filler.cache, filler.folder)
    if thread is not None:
        thread.join(100)
    dataset = cached(tmp_path / "set", memory)
    for shard in (tmp_path / "set").glob("*.arrow"):
        shard.unlink()
    assert same(epochs(dataset, shuffle=True), expected)
    assert dataset.cache.counts()["misses"] == 0


def test_with_records_damaged_between_two_epochs(packs: dict[str, Path], memory: OpenFolder) -> None:
    expected = epochs(PackedDataset(packs["arrow"]), shuffle=True)
    filled = cached(packs["arrow"], memory)
    epochs(filled, 1, shuffle=True)
    with Path(filled.cache.path).open("r+b") as file:
        table = np.memmap(file, ENTRY, "r", 12288, (len(filled),))
        for sample in range(0, len(filled), 3):
            file.seek(int(table["offset"][sample]))
            file.write(b"none")
    dataset = cached(packs["arrow"], memory)
    assert same(epochs(dataset, shuffle=True), expected)
    assert dataset.cache.counts()["damaged"] == dataset.cache.counts()["stored"] == len(filled) / 3


def test_a_cold_set_is_stored_by_the_reading_threads(memory: OpenFolder, tmp_path: Path) -> None:
    """From a file that is not in memory; where that cannot be arranged, the same from one that is."""
    side = 48
    rng = np.random.default_rng(0)
    blobs = [rng.bytes(3 * side * side) for _ in range(200)]
    plain = plain_pack(tmp_path / "set", blobs, range(200), raw_size=(side, side))
    drop(plain.folder / "data.bin")
    create(memory, f"{plain.id}.flc", encoded(plain), 1 << 30)
    dataset = cached(plain.folder, memory)
    with DataLoader(dataset, 8, shuffle=True, num_workers=2, cache="off", seed=0) as loader:
        for _ in range(2):
            for images, labels in loader:
                for image, label in zip(images, labels.tolist(), strict=True):
                    assert image.permute(1, 2, 0).contiguous().numpy().tobytes() == blobs[label]
    counts = dataset.cache.counts()
    assert (counts["stored"], counts["failed"], counts["damaged"]) == (200, 0, 0)
    assert counts["misses"] >= 200
    assert counts["hits"] > 100


def test_the_page_cache_is_planned_for_what_the_cache_has_no_room_for(
    packs: dict[str, Path], memory: OpenFolder
) -> None:
    plain, dataset = PackedDataset(packs["arrow"]), cached(packs["arrow"], memory, 0.5)
    sampler = make_sampler(len(plain), Partition(4), shuffle=True, seed=0)
    size = sum(shard.size for shard in plain.manifest.shards)
    room = size // 4
    without = plan_read_ahead(plain, sampler, room).keep
    rest = size - dataset.cache.room_bytes
    assert without == pytest.approx(0.5 * room / size)
    assert plan_read_ahead(dataset, sampler, room).keep == pytest.approx(0.5 * room / rest)
    assert plan_read_ahead(dataset, sampler, 2 * size).keep == 1.0
