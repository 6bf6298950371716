"""Packing keeps every byte, name, label and the order of ImageFolder, in every format."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_trees import write_yolo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_reference import read_index
from pack_trees import class_tree, encoded, image_folder_samples, make_tree, snapshot

from fastload import PackedDataset
from fastload._native import _C
from fastload.cli import main
from fastload.errors import ChecksumError, FormatError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing.files import ESCAPED, decode_key, encode_key
from fastload.packing.folders import is_hidden, is_split
from fastload.packing.named_sets import sets_in
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify


def check_dataset(folder: Path, source: Path, samples: list[tuple[str, int]]) -> PackedDataset:
    """The packed dataset has exactly these samples; its index says so to the slow reader, too."""
    dataset = PackedDataset(folder)
    assert len(dataset) == len(samples)
    reference = read_index(folder / "index.fli")
    assert reference.digest == dataset.manifest.index_crc
    shards = [(folder / shard.file).read_bytes() for shard in dataset.manifest.shards]
    for i, (name, label) in enumerate(samples):
        data = (source / name).read_bytes()
        record = reference.records[i]
        start = int(record["offset"])
        assert shards[record["shard"]][start : start + int(record["length"])] == data
        assert int(record["crc32c"]) == _C.crc32c_table(np.frombuffer(data, np.uint8))
        assert int(record["label"]) == label
        assert decode_key(reference.keys[i], bool(record["flags"] & ESCAPED)) == os.fsencode(name)
        codec, width, height, channels, flags = _C.probe(np.frombuffer(data, np.uint8))
        assert list(_C.CODECS)[record["codec"]] == codec
        found = (record["width"], record["height"], record["channels"], int(record["flags"]) & ~ESCAPED)
        assert found == (width, height, channels, flags)
        assert (dataset.read(i), dataset.label(i)) == (data, label)
    assert verify(folder, decode=True) == ([], len(samples))
    return dataset


def test_class_folders(tmp_path: Path, format_name: str) -> None:
    source = class_tree(tmp_path / "source")
    [result] = pack(source, tmp_path / "out", PackOptions(format=format_name, shard_size=8192, num_proc=1))
    samples = image_folder_samples(source)
    dataset = check_dataset(tmp_path / "out", source, samples)
    assert dataset.classes == ["class 0", "class 1", "class 2", "class 3"]
    assert len(result.manifest.shards) > 3
    assert result.manifest.codecs == {"jpeg": 24, "png": 12, "webp": 12}
    assert result.summary is not None
    widths = sorted(int(w) for w in dataset.records["width"])
    expected = {"min": widths[0], "median": widths[(len(widths) - 1) // 2], "max": widths[-1]}
    assert result.summary.sides()["width"] == expected
    assert not [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]


def test_unpack_gives_the_same_tree(tmp_path: Path, format_name: str) -> None:
    source = class_tree(tmp_path / "source")
    pack(source, tmp_path / "out", PackOptions(format=format_name, shard_size=9000, num_proc=1))
    assert unpack(tmp_path / "out", tmp_path / "back") == 48
    assert snapshot(tmp_path / "back") == snapshot(source)


def test_odd_names(tmp_path: Path, format_name: str) -> None:
    names = [
        "é/ü.jpg", "e\u0301/u\u0308.jpg", "a b/new\nline.jpg", "a b/%41.jpg", "a b/日本.jpg",
        "a b/.hidden.jpg", "a b/" + "x" * 240 + ".jpg", "a b/two.dots.jpg", "a b/quote'\".JPG",
    ]  # fmt: skip
    source = make_tree(tmp_path / "source", {name: encoded(i) for i, name in enumerate(names)})
    raw = os.fsencode(source) + b"/a b/\xff\x80%.jpg"
    with open(raw, "wb") as file:
        file.write(encoded(99))
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = check_dataset(tmp_path / "out", source, image_folder_samples(source))
    assert "a b/%FF%80%25.jpg" in [dataset.key(i) for i in range(len(dataset))]
    unpack(tmp_path / "out", tmp_path / "back")
    assert snapshot(tmp_path / "back") == snapshot(source)


PARTS = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=12
)
FOLDERS = PARTS.filter(lambda name: not is_hidden(name) and not is_split(name))
FILES = st.tuples(
    FOLDERS, st.lists(FOLDERS, max_size=2), PARTS, st.sampled_from([".jpg", ".PNG", ".webp", ".txt"])
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(FILES, min_size=1, max_size=12),
    shard_size=st.integers(4096, 20000),
    flavour=st.sampled_from(["arrow", "lmdb", "hdf5"]),
)
def test_random_trees(files: list[tuple[str, list[str], str, str]], shard_size: int, flavour: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        for i, (top, middle, stem, extension) in enumerate(files):
            path = source.joinpath(top, *middle, stem + extension)
            if len(os.fsencode(path.name)) > 200 or any(p.is_file() for p in path.parents) or path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(i, "PNG"))
        samples = image_folder_samples(source)
        if not samples:
            return
        pack(source, Path(folder) / "out", PackOptions(format=flavour, shard_size=shard_size, num_proc=1))
        check_dataset(Path(folder) / "out", source, samples)
        unpack(Path(folder) / "out", Path(folder) / "back")
        expected = {name: (source / name).read_bytes() for name, _ in samples}
        assert snapshot(Path(folder) / "back") == expected


@given(st.binary(min_size=1).filter(lambda path: b"\0" not in path))
def test_keys_are_utf8_and_reversible(path: bytes) -> None:
    key, escaped = encode_key(path)
    key.decode("utf-8")
    assert decode_key(key, escaped) == path
    assert escaped or key == path


def test_many_small_records_share_batches(tmp_path: Path, format_name: str) -> None:
    source = make_tree(
        tmp_path / "source", {f"c/{i:04d}.png": encoded(i % 7, "PNG", 8, 8) for i in range(2500)}
    )
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    assert len(dataset) == 2500
    assert all(dataset.read(i) == encoded(i % 7, "PNG", 8, 8) for i in range(2500))


def test_an_image_larger_than_the_buffer(tmp_path: Path, format_name: str) -> None:
    noise = encoded(1, "BMP", 2600, 2300)
    source = make_tree(tmp_path / "source", {"c/0.jpg": encoded(0), "c/1.bmp": noise, "c/2.jpg": encoded(2)})
    assert len(noise) > 16 << 20
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.read(i) for i in range(3)] == [encoded(0), noise, encoded(2)]


def test_many_classes_fit_into_every_format(tmp_path: Path, format_name: str) -> None:
    source = make_tree(
        tmp_path / "source", {f"class_{i:05d}/a.png": encoded(i % 3, "PNG", 8, 8) for i in range(5000)}
    )
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    assert len(dataset.classes) == 5000
    assert dataset.labels.tolist() == list(range(5000))


# ---- A folder of datasets -----------------------------------------------------------------------------


def two_splits(folder: Path) -> Path:
    for split, classes in (("train", 3), ("val", 2)):
        class_tree(folder / split, classes=classes, images=4)
    return folder


def test_train_and_val_come_back_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = two_splits(tmp_path / "source")
    pack(source, tmp_path / "packed", PackOptions(num_proc=1))
    for place, name in ((tmp_path / "packed", "files"), (f"file://{tmp_path}/packed", "from-url")):
        assert main(["unpack", str(place), str(tmp_path / name)]) == 0
        assert capsys.readouterr().out.splitlines() == [
            f"{count} files in {tmp_path}/{name}/{split}" for split, count in (("train", 12), ("val", 8))
        ]
        assert snapshot(tmp_path / name) == snapshot(source)
    assert main(["unpack", str(tmp_path / "packed"), str(tmp_path / "json"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["datasets"]
    assert said == [
        {"files": 12, "output": f"{tmp_path}/json/train"},
        {"files": 8, "output": f"{tmp_path}/json/val"},
    ]
    pack(tmp_path / "files", tmp_path / "again" / "packed", PackOptions(num_proc=1))
    for split in ("train", "val"):
        ids = {PackedDataset(tmp_path / each / split).id for each in ("packed", "again/packed")}
        assert len(ids) == 1


def test_all_sets_of_a_folder_are_unpacked_or_none(tmp_path: Path) -> None:
    pack(two_splits(tmp_path / "source"), tmp_path / "packed", PackOptions(num_proc=1))
    [shard] = (tmp_path / "packed" / "val").glob("*.arrow")
    data = bytearray(shard.read_bytes())
    at = data.index(PackedDataset(tmp_path / "packed" / "val").read(3))
    data[at + 20] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ChecksumError, match="val"):
        unpack(tmp_path / "packed", tmp_path / "files")
    assert sorted(os.listdir(tmp_path)) == ["packed", "source"]
    with pytest.raises(PackError, match="lies inside"):
        unpack(tmp_path / "packed", tmp_path / "packed" / "files")
    (tmp_path / "files" / "train").mkdir(parents=True)
    with pytest.raises(PackError, match="not an empty folder"):
        unpack(tmp_path / "packed", tmp_path / "files")


def test_a_folder_without_a_set_is_said(tmp_path: Path) -> None:
    (tmp_path / "packed" / "train").mkdir(parents=True)
    for place in ("packed", "nothing"):
        with pytest.raises(FormatError, match="is not a packed dataset"):
            unpack(tmp_path / place, tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_a_set_that_a_store_names_like_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket's key may be "sets/../dataset.json"."""
    pack(class_tree(tmp_path / "source", classes=1), tmp_path / "packed" / "set", PackOptions(num_proc=1))
    sets = {"..": str(tmp_path / "packed" / "set")}
    monkeypatch.setattr("fastload.packing.named_sets.sets_in", lambda folder, options: sets)
    with pytest.raises(FormatError, match=r"'\.\.' is no path below a folder"):
        unpack(tmp_path / "packed", tmp_path / "files" / "here")
    assert not (tmp_path / "files").exists()


def test_a_set_that_cannot_be_looked_for_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may take a folder for whole whose val/ this user may not read, or whose disk fails."""
    pack(two_splits(tmp_path / "source"), tmp_path / "packed", PackOptions(num_proc=1))
    stat = os.stat

    def refuse(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
        if os.fsdecode(path).endswith("val/dataset.json"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return stat(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(PermissionError):
        sets_in(tmp_path / "packed")
    with pytest.raises(PermissionError):
        unpack(tmp_path / "packed", tmp_path / "files")
    monkeypatch.undo()
    assert list(sets_in(tmp_path / "packed")) == ["train", "val"]
    assert not (tmp_path / "files").exists()


def test_each_set_of_a_folder_in_its_own_layout(tmp_path: Path) -> None:
    write_yolo(tmp_path / "source", 6, splits=("train", "val"))
    pack(tmp_path / "source", tmp_path / "packed", PackOptions(num_proc=1))
    assert unpack(tmp_path / "packed", tmp_path / "all", as_="yolo") == 12
    for split in ("train", "val"):
        unpack(tmp_path / "packed" / split, tmp_path / split, as_="yolo")
        assert snapshot(tmp_path / "all" / split) == snapshot(tmp_path / split)
    assert sorted(os.listdir(tmp_path / "all")) == ["train", "val"]
