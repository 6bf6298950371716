"""An opened dataset: records by sample id; anything missing, cut or mixed up is an error that names it."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload._native import _C
from fastload.errors import FormatError, FormatVersionError, ShardError, ShardTruncated

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


def test_the_manifests_path_stands_for_its_folder(dataset: PackedDataset) -> None:
    for path in (dataset.folder / "dataset.json", str(dataset.folder / "dataset.json")):
        assert PackedDataset(path).folder == dataset.folder
        assert len(DataLoader(path).dataset) == 300


@pytest.mark.parametrize("open_it", [PackedDataset, DataLoader, lambda path: DataLoader(str(path))])
def test_what_is_no_packed_folder_is_told_from_one(dataset: PackedDataset, open_it: Any) -> None:
    parent = dataset.folder.parent
    with pytest.raises(
        FormatError, match=rf"folders in it are packed datasets \(set\). Pass .*'{parent}/set'"
    ):
        open_it(parent)
    (parent / "pictures").mkdir()
    with pytest.raises(FormatError, match=r"has no dataset.json. Make one with .* pack it into another one."):
        open_it(parent / "pictures")
    with pytest.raises(
        FormatError, match=r"nowhere is not a packed dataset: there is no such folder\. 'fastload"
    ):
        open_it(parent / "nowhere")
    with pytest.raises(FormatError, match=r"index.fli is not a packed dataset: it is a file. Pass the"):
        open_it(dataset.folder / "index.fli")
    with pytest.raises(FormatError, match=r"index.fli/x is not a packed dataset: there is no such folder"):
        open_it(dataset.folder / "index.fli" / "x")


@pytest.mark.parametrize("name", ["dataset.json", "data.bin"])
def test_a_file_that_cannot_be_read_says_why(
    dataset: PackedDataset, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another user's; root may read everything."""

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def refused(path: Any, *args: Any, **options: Any) -> Any:
            if str(path).endswith(name):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return real(path, *args, **options)

        return refused

    monkeypatch.setattr(os, "stat", refusing(os.stat))
    monkeypatch.setattr(_C, "open_at_once", refusing(_C.open_at_once))
    with pytest.raises(ShardError, match=rf"{name} cannot be (read|opened): Permission denied."):
        PackedDataset(dataset.folder)
