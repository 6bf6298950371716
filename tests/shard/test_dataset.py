"""An opened dataset: records by sample id; anything missing, cut or mixed up is an error that names it."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload.errors import FormatError, FormatVersionError, ShardTruncated

BLOBS = [bytes([i % 256]) * (i + 1) for i in range(300)]


@pytest.fixture
def dataset(tmp_path: Path) -> PackedDataset:
    return plain_pack(tmp_path / "set", BLOBS, [i % 3 for i in range(300)], ["a", "b", "c"], raw_size=(1, 1))


def test_records_labels_and_classes(dataset: PackedDataset) -> None:
    assert len(dataset) == 300
    assert [dataset.read(i) for i in range(300)] == BLOBS
    assert (dataset.read(299), dataset.label(299)) == (BLOBS[299], 2)
    assert dataset.labels.tolist() == [i % 3 for i in range(300)]
    assert dataset.classes == ["a", "b", "c"]
    assert dataset.class_to_idx == {"a": 0, "b": 1, "c": 2}
    assert dataset.key(7) == "7.img"
    with pytest.raises(IndexError):
        dataset[300]


def test_the_id_depends_on_contents_only(dataset: PackedDataset, tmp_path: Path) -> None:
    shutil.copytree(dataset.folder, tmp_path / "moved")
    assert PackedDataset(tmp_path / "moved").id == dataset.id
    other = plain_pack(tmp_path / "other", BLOBS[::-1], [0] * 300, ["a", "b", "c"], raw_size=(1, 1))
    assert other.id != dataset.id


def test_pickles_as_its_folder(dataset: PackedDataset) -> None:
    assert pickle.loads(pickle.dumps(dataset)).read(5) == BLOBS[5]


@pytest.mark.parametrize("cut", [0, 1, 1000])
def test_a_cut_shard_is_found_at_opening(dataset: PackedDataset, cut: int) -> None:
    shard = dataset.folder / "data.bin"
    shard.write_bytes(shard.read_bytes()[:cut])
    with pytest.raises(ShardTruncated, match=rf"data.bin has {cut} bytes, the manifest says 45150"):
        PackedDataset(dataset.folder)


def test_a_missing_shard_is_found_at_opening(dataset: PackedDataset) -> None:
    (dataset.folder / "data.bin").unlink()
    with pytest.raises(ShardTruncated, match="is missing"):
        PackedDataset(dataset.folder)


def test_index_and_manifest_of_different_packs(dataset: PackedDataset, tmp_path: Path) -> None:
    other = plain_pack(tmp_path / "other", BLOBS[:20], [0] * 20, raw_size=(1, 1))
    shutil.copy(other.folder / "index.fli", dataset.folder)
    with pytest.raises(FormatError, match="does not belong to this manifest"):
        PackedDataset(dataset.folder)


def change(folder: Path, **fields: object) -> None:
    path = folder / "dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_changed_manifest_is_refused(dataset: PackedDataset) -> None:
    change(dataset.folder, classes=["a", "b", "x"])
    with pytest.raises(FormatError, match="it was changed"):
        PackedDataset(dataset.folder)


def test_a_newer_version_says_so(dataset: PackedDataset) -> None:
    change(dataset.folder, fastload=[2, 0])
    with pytest.raises(FormatVersionError, match="format version 2; this fastload reads 1"):
        PackedDataset(dataset.folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"fastload": [1, 0]}', "[" * 5000])
def test_a_damaged_manifest_is_refused(dataset: PackedDataset, text: str) -> None:
    (dataset.folder / "dataset.json").write_text(text)
    with pytest.raises(FormatError):
        PackedDataset(dataset.folder)
