"""Whether folders are classes or splits, what does not count, and what is said: one rule for folders of this
machine, stores, shares, annotated sets, tables and tars."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from annotated_trees import ids_of, write_mask, write_photo, write_yolo
from hub_tables import parquet_bytes, table
from pack_trees import encoded, make_tree, snapshot

import fastload
from fastload.cli import main
from fastload.errors import FormatError, PackError
from fastload.packing import PackOptions, dry_run, pack
from fastload.packing.folders import is_split, splits_among
from fastload.packing.foreign_files import find_shards
from fastload.packing.packer import pack_shares, plan_shares, publish_shares
from fastload.packing.shares import ShardRanges
from fastload.shard.dataset import PackedFiles
from fastload.shard.suffixes import IMAGES

ONE = PackOptions(num_proc=1, entries=None)


def tree(root: Path, *folders: str, images: int = 2) -> Path:
    """Folders of images, each image another."""
    files = {f"{folder}/{i}.jpg": encoded(hash_of(folder) + i) for folder in folders for i in range(images)}
    return make_tree(root, files)


def hash_of(text: str) -> int:
    return sum(map(ord, text)) * 31


def classes_of(folder: Path) -> list[str]:
    return PackedFiles(folder).classes


@pytest.mark.parametrize(
    "name",
    [
        "train", "Train", "TRAIN", "training", "Training", "val", "VAL", "valid", "Validation", "test",
        "Testing", "dev", "eval", "evaluation", "trainval", "train_val", "minival", "train2017", "val2017",
        "test-dev2017", "test2015", "training_set", "test_set", "train-set", "Test Images", "train_images",
        "trainset", "val_02", "train.1", "testdata", "train split",
    ],
)  # fmt: skip
def test_names_that_look_like_splits(name: str) -> None:
    assert is_split(name)


@pytest.mark.parametrize(
    "name",
    [
        "cat", "n01440764", "bullet_train", "train_station", "trainer", "trains", "tester", "contest",
        "devil", "valley", "values", "evaluate", "test_tube", "0", "2017", "unlabeled2017", "retrain", "",
        "testimony", "train²", "train٣",
    ],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert not is_split(name)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], False), (["a"], False), (["a", "b"], False), (["train"], True), (["train", "val"], True),
        (["Test", "Train"], True), (["test_set", "training_set"], True), (["train2017", "val2017"], True),
        (["train", "dev"], True), (["seg_train", "seg_test"], True), (["images_train", "images_val"], True),
        (["DIV2K_train_HR", "DIV2K_valid_HR"], True), (["x_train"], False),
        (["bullet_train", "steam_train"], False),
        (["train_station", "train_yard"], False), (["seg_pred", "seg_test", "seg_train"], False),
    ],
)  # fmt: skip
def test_all_are_splits_or_none(names: list[str], found: bool) -> None:
    assert splits_among(names, "here") == found


@pytest.mark.parametrize(
    "names", [["bus", "car", "train"], ["train", "val", "extra"], ["test", "train2017", "x"]]
)
def test_two_readings_are_refused(tmp_path: Path, names: list[str]) -> None:
    source, output = tree(tmp_path / "source", *names), tmp_path / "out"
    looks = [repr(name) for name in names if is_split(name)]
    others = [repr(name) for name in names if not is_split(name)]
    words = f"can be read in two ways: {', '.join(looks)} looks? like .*, {', '.join(others)} like"
    for given in (source, f"file://{source}"):
        for packed in (
            lambda given=given: pack(given, output, ONE),
            lambda given=given: dry_run(given, output, ONE),
            lambda given=given: plan_shares(given, output, ONE),
            lambda given=given: pack_shares(given, output, ShardRanges.parse("0/2"), ONE),
            lambda given=given: fastload.pack(given, output),
        ):
            with pytest.raises(PackError, match=words) as caught:
                packed()
            assert "--as splits" in str(caught.value)
            assert "--as classes" in str(caught.value)
    assert not output.exists()
    for number, given in enumerate((source, f"file://{source}")):
        classes, splits = tmp_path / f"classes{number}" / "set", tmp_path / f"splits{number}"
        fastload.pack(given, classes, as_="classes", entries=None)
        assert classes_of(classes) == sorted(names)
        fastload.pack(given, splits, as_="splits", entries=None)
        assert sorted(p.name for p in splits.iterdir()) == sorted(names)
        assert all(len(PackedFiles(splits / name)) == 2 for name in names)
        plan_shares(given, tmp_path / f"shares{number}" / "set", PackOptions(layout="classes", entries=None))


CROWDED = (
    "train/cat", "train/dog", "val/cat", "val/.ipynb_checkpoints", ".ipynb_checkpoints", "__MACOSX/train/cat",
    ".git/a", "@eaDir/x", "train/dog/.thumbs", "train/dog/more",
)  # fmt: skip


def crowded(root: Path) -> Path:
    """A parent of splits with what else people have there."""
    tree(root, *CROWDED)
    return make_tree(
        root,
        {"logs/run.txt": b"x", "empty/x": b"", "train/later/.keep": b"", "preview.jpg": encoded(1),
         "README.md": b"", "train/cat/a.gif": b"GIF89a", "train/cat/b.dib": b"BM", "train/note.txt": b"",
         "val/Thumbs.db": b""},
    )  # fmt: skip


def test_what_does_not_count_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = crowded(tmp_path / "source")
    assert main(["pack", str(source), str(tmp_path / "a"), "--entries", "none", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / 'a'}: 2 splits (train, val), one dataset each" in said
    train, val = PackedFiles(tmp_path / "a" / "train"), PackedFiles(tmp_path / "a" / "val")
    assert [train.key(i) for i in range(len(train))] == [
        "cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg", "dog/more/0.jpg", "dog/more/1.jpg",
    ]  # fmt: skip
    assert (train.classes, val.classes) == (["cat", "dog", "later"],) * 2
    assert train.manifest.ignored == {
        "beside": {"count": 1, "examples": ["preview.jpg"]},
        "classes": {"count": 1, "examples": ["later"]},
        "empty": {"count": 2, "examples": ["empty", "logs"]},
        "hidden": {
            "count": 5,
            "examples": [".git", ".ipynb_checkpoints", "@eaDir", "__MACOSX", "dog/.thumbs"],
        },
        "files": {".dib": 1, ".gif": 1, ".md": 1, ".txt": 1, "no suffix": 1},
    }
    assert val.manifest.ignored == {
        "hidden": {"count": 1, "examples": [".ipynb_checkpoints"]}, "files": {".db": 1},
    }  # fmt: skip
    lines = (
        "records       6 in 3 classes", "classes       3: cat, dog, later",
        "source        1 image left out beside the folders, without a class (preview.jpg)",
        "1 class without images (later)", "2 folders without images left out (empty, logs)",
        "5 hidden folders left out (.git, .ipynb_checkpoints, @eaDir, __MACOSX, dog/.thumbs)",
        "5 files without an image's suffix left out (.dib 1, .gif 1, .md 1, .txt 1, no suffix 1)",
    )  # fmt: skip
    for line in lines[1:]:
        assert line in said
    assert main(["info", str(tmp_path / "a" / "train")]) == 0
    shown = capsys.readouterr().out
    assert all(line in shown for line in lines[1:])
    assert main(["pack", str(source), str(tmp_path / "a"), "--entries", "none", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["datasets"]
    assert [one["ignored"] for one in told] == [train.manifest.ignored, val.manifest.ignored]
    assert main(["pack", str(source), str(tmp_path / "b"), "--dry-run"]) == 0
    assert all(line in capsys.readouterr().out or "records" in line for line in lines[:1])
    fastload.pack(source, tmp_path / "c", entries=None)
    assert "5 hidden folders left out" in capsys.readouterr().err


def test_a_store_a_folder_and_shares_see_the_same(tmp_path: Path) -> None:
    source = crowded(tmp_path / "source")
    (source / "train/later/.keep").rename(source / "train/later/keep.txt")
    pack(source, tmp_path / "folder" / "set", ONE)
    pack(f"file://{source}", tmp_path / "store" / "set", ONE)
    for number in range(2):
        pack_shares(source, tmp_path / "shares" / "set", ShardRanges.parse(f"{number}/2"), ONE)
    publish_shares(source, tmp_path / "shares" / "set", ONE)
    pack(source, f"file://{tmp_path}/into/set", ONE)
    wanted = snapshot(tmp_path / "folder" / "set")
    assert len(wanted) > 4
    for name in ("store", "shares", "into"):
        assert snapshot(tmp_path / name / "set") == wanted, name


def test_hidden_folders_are_no_classes(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", "b", "a", ".ipynb_checkpoints", "__MACOSX/a")
    make_tree(source, {"empty/x.txt": b""})
    pack(source, tmp_path / "set", ONE)
    assert classes_of(tmp_path / "set") == ["a", "b", "empty"]
    assert PackedFiles(tmp_path / "set").labels.tolist() == [0, 0, 1, 1]


def test_images_beside_folders_without_images_are_a_flat_set(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {f"{i}.jpg": encoded(i) for i in range(3)})
    make_tree(source, {"logs/x.txt": b"", ".cache/y.jpg": encoded(9)})
    for number, given in enumerate((source, f"file://{source}")):
        pack(given, tmp_path / f"{number}" / "set", ONE)
        dataset = PackedFiles(tmp_path / f"{number}" / "set")
        assert (len(dataset), dataset.classes) == (3, [])
    assert snapshot(tmp_path / "0") == snapshot(tmp_path / "1")


def test_images_beside_class_folders_are_counted(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", "a", "b")
    make_tree(source, {f"top{i}.jpg": encoded(i) for i in range(7)})
    pack(source, tmp_path / "set", ONE)
    ignored = PackedFiles(tmp_path / "set").manifest.ignored
    assert ignored == {"beside": {"count": 7, "examples": [f"top{i}.jpg" for i in range(5)]}}


@pytest.mark.parametrize("layout", ["cat/train", "ILSVRC/train", "ILSVRC/val2017"])
def test_splits_within_a_class_are_refused(tmp_path: Path, layout: str) -> None:
    source = tree(tmp_path / "source", layout, "other/x" if layout == "cat/train" else f"{layout}/x")
    first, split = layout.split("/")
    for given in (source, f"file://{source}"):
        words = f"has a folder '{first}' with '{split}' in it: either a class with splits.*--as classes"
        with pytest.raises(PackError, match=words):
            pack(given, tmp_path / "out", ONE)
    fastload.pack(source, tmp_path / "set", as_="classes", entries=None)
    assert classes_of(tmp_path / "set")[0] in (first, "cat")


def test_classes_within_splits_may_be_called_as_splits_only_if_said(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", "train/a/test", "val/a")
    with pytest.raises(PackError, match=r"train has a folder 'a' with 'test' in it.*--as splits"):
        pack(source, tmp_path / "out", ONE)
    fastload.pack(source, tmp_path / "set", as_="splits", entries=None)
    assert classes_of(tmp_path / "set" / "train") == ["a"]


def test_as_is_of_folders_of_images(tmp_path: Path) -> None:
    tree(tmp_path, "images")
    (tmp_path / "t.csv").write_text("path,label\nimages/0.jpg,a\n")
    with pytest.raises(PackError, match=r"--as splits says what folders are. Found: the file .*t\.csv"):
        fastload.pack(tmp_path / "t.csv", tmp_path / "set", as_="splits")
    with pytest.raises(PackError, match="'folders' is not one of coco, .*, classes, splits"):
        fastload.pack(tmp_path / "images", tmp_path / "set", as_="folders")
    with pytest.raises(PackError, match="layout is for a folder of images. Found: list"):
        fastload.pack([{}], tmp_path / "set", as_="classes")


def test_what_lies_in_a_folder_without_images_is_said(tmp_path: Path) -> None:
    make_tree(tmp_path / "source", {"a.gif": b"GIF89a", "b.gif": b"", "c.txt": b""})
    with pytest.raises(
        PackError, match=r"no images in .*\(.jpg, .*\.webp\). There are: 3 files .*\(.gif 2, .txt 1\)"
    ):
        pack(tmp_path / "source", tmp_path / "set", ONE)


# ---- annotated sets ------------------------------------------------------------------------------


def annotated(root: Path, layout: str) -> Path:
    """A set of a layout, and of images in two folders."""
    if layout in ("coco", "panoptic"):
        name = "instances" if layout == "coco" else "panoptic"
        body: dict[str, Any] = {
            "images": [{"id": 0, "file_name": "0.jpg", "width": 9, "height": 9}],
            "categories": [],
        }
        make_tree(
            root, {f"annotations/{name}_val2017.json": json.dumps({**body, "annotations": []}).encode()}
        )
        tree(root, "val2017")
    elif layout == "roboflow":
        tree(root, "train", "valid")
        make_tree(root, {"train/_annotations.coco.json": b"{}", "valid/_annotations.coco.json": b"{}"})
    elif layout in ("voc", "voc years"):
        top = "VOC2012/" if layout == "voc years" else ""
        tree(root, f"{top}JPEGImages")
        make_tree(root, {f"{top}Annotations/0.xml": b"<annotation/>"})
    elif layout == "yolo":
        write_yolo(root, 4)
    elif layout == "yolo splits":
        tree(root, "train/images", "valid/images")
        make_tree(root, {"train/labels/0.txt": b"0 .5 .5 .1 .1", "valid/labels/0.txt": b"", "notes.txt": b""})
    elif layout == "cityscapes":
        tree(root, "leftImg8bit/train/a", "gtFine/train/a")
    else:
        images, masks = {"pairs": ("images", "masks"), "pairs splits": ("train/images", "train/mask")}[layout]
        for number in range(3):
            write_photo(root / images / f"{number}.jpg", number)
            write_mask(root / masks / f"{number}.png", ids_of(number))
    return root


LAYOUTS = (
    "coco", "panoptic", "roboflow", "voc", "voc years", "yolo", "yolo splits", "pairs", "pairs splits",
    "cityscapes",
)  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_annotated_sets_by_url_are_what_they_are_on_disk(tmp_path: Path, layout: str) -> None:
    source = annotated(tmp_path / "source", layout)
    url = f"file://{source}"
    for number, given in enumerate((ONE, PackOptions(entries=None, layout="splits"))):
        found = []
        for name, place in (("disk", source), ("url", url)):
            output = tmp_path / f"{name}-{number}"
            try:
                results = pack(place, output, given)
            except PackError as error:
                found.append(str(error).replace(str(place), "SOURCE"))
            else:
                found.append([(r.output.name, r.manifest.schema, r.manifest.num_records) for r in results])
        assert str(found[0]).replace("disk-", "url-") == str(found[1])
    fastload.pack(url, tmp_path / "classes", as_="classes", entries=None)
    folders = {path.name for path in source.iterdir() if path.is_dir()}
    assert set(classes_of(tmp_path / "classes")) == folders


@pytest.mark.parametrize(
    "names", ["a/0.jpg a/0.json", "a/0.jpg b/0.txt", "images/0.jpg other/1.jpg", "a/labels/x.txt"]
)
def test_what_is_no_annotated_set_is_packed(tmp_path: Path, names: str) -> None:
    files = {
        name: encoded(len(name)) if name.endswith(".jpg") else b"" for name in [*names.split(), "z/1.jpg"]
    }
    url = f"file://{make_tree(tmp_path / 'source', files)}"
    [result] = pack(url, tmp_path / "set", ONE)
    assert result.manifest.num_records == sum(name.endswith(".jpg") for name in files)


def test_annotated_splits_with_others_beside_them(tmp_path: Path) -> None:
    """Hidden files and folders are no split, and no reason to join those that are there."""
    for split in ("train", "val"):
        for number in range(2):
            write_photo(tmp_path / "pairs" / "images" / split / f"{number}.jpg", number)
            write_mask(tmp_path / "pairs" / "masks" / split / f"{number}.png", ids_of(number))
    make_tree(tmp_path / "pairs", {"images/.DS_Store": b"", "images/.ipynb_checkpoints/0.jpg": encoded(1)})
    fastload.pack(tmp_path / "pairs", tmp_path / "a", entries=None)
    assert [len(PackedFiles(tmp_path / "a" / split)) for split in ("train", "val")] == [2, 2]
    write_photo(tmp_path / "pairs" / "images" / "stray.jpg", 7)
    with pytest.raises(
        PackError, match=r"images has the splits 'train', 'val' and images beside them, as stray\.jpg"
    ):
        fastload.pack(tmp_path / "pairs", tmp_path / "b")
    (tmp_path / "pairs" / "images" / "stray.jpg").unlink()
    write_photo(tmp_path / "pairs" / "images" / "more" / "0.jpg", 7)
    with pytest.raises(
        PackError, match=r"images can be read in two ways: 'train', 'val' look like splits, 'more'"
    ):
        fastload.pack(tmp_path / "pairs", tmp_path / "b")


def test_a_split_without_annotations_is_not_dropped(tmp_path: Path) -> None:
    source = annotated(tmp_path / "source", "pairs splits")
    tree(source, "test")
    with pytest.raises(
        PackError, match="annotated pictures in 'train' and none in 'test', which would be left out"
    ):
        fastload.pack(source, tmp_path / "set")
    fastload.pack(source / "train", tmp_path / "train", entries=None)
    assert PackedFiles(tmp_path / "train").schema.names == ("image", "mask")
    with pytest.raises(
        PackError, match=r"is a set of the layout 'pairs'.*--as classes packs the pictures alone"
    ):
        fastload.pack(source / "train", tmp_path / "set", as_="splits")


def test_annotated_splits_of_other_names(tmp_path: Path) -> None:
    for split in ("Training", "dev"):
        annotated(tmp_path / "source" / split, "pairs")
    fastload.pack(tmp_path / "source", tmp_path / "out", entries=None)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Training", "dev"]


# ---- tables and tars -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["Train.parquet", "Test.parquet"], {"Train": 2, "Test": 2}),
        (["training_set.parquet", "dev.parquet"], {"training_set": 2, "dev": 2}),
        (["a.parquet", "b.parquet"], None),
    ],
)
def test_tables(tmp_path: Path, names: list[str], splits: dict[str, int] | None) -> None:
    for number, name in enumerate(names):
        (tmp_path / "in").mkdir(exist_ok=True)
        images = [encoded(2 * number + i) for i in range(2)]
        (tmp_path / "in" / name).write_bytes(parquet_bytes(table(images, 2 * number)))
    pack(tmp_path / "in", tmp_path / "out", ONE)
    if splits is None:
        assert len(PackedFiles(tmp_path / "out")) == 4
    else:
        assert {name: len(PackedFiles(tmp_path / "out" / name)) for name in splits} == splits


def test_tables_of_splits_and_others(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("train", "test", "facts")):
        (tmp_path / "in" / f"{name}.parquet").write_bytes(parquet_bytes(table([encoded(number)], number)))
    with pytest.raises(
        PackError, match="'test', 'train' look like splits, 'facts' like a class. Give the tables of"
    ):
        pack(tmp_path / "in", tmp_path / "out", ONE)


def test_files_to_index(tmp_path: Path) -> None:
    for name in ("set-dev-000.tar", "set-eval-000.tar"):
        (tmp_path / name).write_bytes(bytes(1024))
    with pytest.raises(FormatError, match="holds files of several splits by their names"):
        find_shards(tmp_path)
    (tmp_path / "in" / "Training").mkdir(parents=True)
    with pytest.raises(FormatError, match="in holds several splits; index .*Training"):
        find_shards(tmp_path / "in")


# ---- what a table's labels are -------------------------------------------------------------------


def labelled(tmp_path: Path, text: str, suffix: str = "csv") -> Path:
    make_tree(tmp_path, {f"{i}.jpg": encoded(i) for i in range(3)})
    path = tmp_path / f"t.{suffix}"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("path,label\n0.jpg,2.5\n1.jpg,10\n2.jpg,33.5\n", "scalar(float64)", [2.5, 10.0, 33.5]),
        ("file_name,target\n0.jpg,1.0\n1.jpg,2.0\n2.jpg,-3\n", "scalar(float64)", [1.0, 2.0, -3.0]),
        ("path,label\n0.jpg,1e3\n1.jpg,nan\n2.jpg,0\n", "scalar(float64)", [1000.0, float("nan"), 0.0]),
        ("image_id,label\n0.jpg,0.5\n1.jpg,1\n2.jpg,2\n", "scalar(float64)", [0.5, 1.0, 2.0]),
    ],
)
def test_fractions_are_numbers(tmp_path: Path, text: str, kind: str, values: list[float]) -> None:
    pack(labelled(tmp_path, text), tmp_path / "set", ONE)
    dataset = PackedFiles(tmp_path / "set")
    assert str(dataset.schema.fields[1]).partition("=")[2] == kind
    name = dataset.schema.names[1]
    np.testing.assert_array_equal([dataset.value(name, i) for i in range(3)], values)


def test_fractions_of_json_lines(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"path": f"{i}.jpg", "label": i / 2}) + "\n" for i in range(3))
    pack(labelled(tmp_path, lines, "jsonl"), tmp_path / "set", ONE)
    assert [float(PackedFiles(tmp_path / "set").value("label", i)) for i in range(3)] == [0.0, 0.5, 1.0]


def test_a_later_line_has_more(tmp_path: Path) -> None:
    """The first line alone does not say which fields there are."""
    lines = [{"path": f"{i}.jpg", "label": "a"} for i in range(3)]
    lines[2]["caption"] = "late"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    pack(labelled(tmp_path, text, "jsonl"), tmp_path / "set", ONE)
    assert PackedFiles(tmp_path / "set").value("caption", 2) == "late"
    assert PackedFiles(tmp_path / "set").value("caption", 0) is None


@pytest.mark.parametrize(
    ("text", "classes", "labels"),
    [
        ("path,label\n0.jpg,2\n1.jpg,0\n2.jpg,+1\n", ["0", "1", "2"], [2, 0, 1]),
        ("path,label\n0.jpg,007\n1.jpg,7\n2.jpg,10\n", ["007", "10", "7"], [0, 2, 1]),
        ("path,label\n0.jpg,2\n1.jpg,cat\n2.jpg,3\n", ["2", "3", "cat"], [0, 2, 1]),
        ("image_id,label\n0.jpg,a\n1.jpg,b\n2.jpg,a\n", ["a", "b"], [0, 1, 0]),
        ("breed,image\nx,0.jpg\ny,1.jpg\nx,2.jpg\n", [], [-1, -1, -1]),
        ("label,id\nx,0.jpg\ny,1.jpg\nx,2.jpg\n", ["x", "y"], [0, 1, 0]),
    ],
)
def test_classes(tmp_path: Path, text: str, classes: list[str], labels: list[int]) -> None:
    pack(labelled(tmp_path, text), tmp_path / "set", ONE)
    dataset = PackedFiles(tmp_path / "set")
    if classes:
        assert (dataset.classes, dataset.labels.tolist()) == (classes, labels)
    else:  # another column than a label is a field
        assert [dataset.value("breed", i) for i in range(3)] == ["x", "y", "x"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "image_id,breed\n0.jpg,a\n1.jpg,b\n",
            r"first line, 'image_id,breed', looks like a header.*--field image_id",
        ),
        ("id,breed\n9.jpg,a\n8.jpg,b\n", r"first line, 'id,breed', looks like a header"),
        ("id\n0.jpg\n1.jpg\n", r"first line, 'id', looks like a header.*--field id=image\."),
        (
            "0.jpg,2.5\n1.jpg,3\n",
            r"labels with fractions, or truths; a class is a name.* Write path,label as its first",
        ),
    ],
)
def test_headers_of_other_names_are_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PackError, match=words):
        pack(labelled(tmp_path, text), tmp_path / "set", ONE)


def test_a_header_of_other_names_may_be_told(tmp_path: Path) -> None:
    path = labelled(tmp_path, "image_id,breed\n0.jpg,a\n1.jpg,b\n2.jpg,a\n")
    pack(
        path, tmp_path / "set", PackOptions(fields=(("image_id", "image"), ("breed", "label")), entries=None)
    )
    assert [PackedFiles(tmp_path / "set").value("breed", i) for i in range(3)] == [0, 1, 0]


def test_keys_and_labels_with_a_header_of_other_names(tmp_path: Path) -> None:
    """A header taken for a row would be one class more, before or behind the others."""
    from fastload.packing.foreign_fields import LabelTable

    path = labelled(tmp_path, "key,breed\na,0\nb,1\n")
    with pytest.raises(PackError, match="the first line has the label 'breed', all others have numbers"):
        LabelTable(path)
    path.write_text("key,label\na,x\nb,y\n")
    assert LabelTable(path).classes == ("x", "y")
    path.write_text("path,label\na,0.5\nb,1\n")
    with pytest.raises(
        PackError, match="labels with fractions, or truths; a class is a name or a whole number"
    ):
        LabelTable(path)


def test_samples_without_a_label_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = labelled(tmp_path, "path,label\n0.jpg,cat\n1.jpg,\n2.jpg,dog\n")
    assert main(["pack", str(path), str(tmp_path / "set"), "--quiet"]) == 0
    assert "2: cat, dog; 1 sample without (label -1)" in capsys.readouterr().out
    assert main(["info", str(tmp_path / "set")]) == 0
    assert "2: cat, dog; 1 sample without (label -1)" in capsys.readouterr().out


def test_indexing_counts_samples_without_a_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in "abc":
            member = tarfile.TarInfo(f"{name}.jpg")
            member.size = len(encoded(ord(name)))
            tar.addfile(member, io.BytesIO(encoded(ord(name))))
    (tmp_path / "labels.csv").write_text("path,label\na.jpg,x\nb.jpg,\nc.jpg,y\n")
    arguments = ["index", str(tmp_path / "a.tar"), "--labels", str(tmp_path / "labels.csv")]
    assert main([*arguments, "--output", str(tmp_path / "set")]) == 0
    assert "2: x, y; 1 sample without (label -1)" in capsys.readouterr().out


def test_numbers_and_names_in_one_column(tmp_path: Path) -> None:
    """A number would be an index into the names."""
    rows = [{"path": f"{i}.jpg", "label": label, "x": 1} for i, label in enumerate((1, "b", "a"))]
    path = labelled(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "jsonl")
    with pytest.raises(PackError, match="'label' has the number 1 in row 1 and the name 'b' in row 2: names"):
        pack(path, tmp_path / "set", ONE)
    big = pa.table({"image": [encoded(1)] * 2, "y": [5, 10**9]})
    parquet.write_table(big, tmp_path / "t.parquet")
    with pytest.raises(PackError, match=r"'y' has labels from 5 to 1000000000; .*--field y=int64"):
        pack(tmp_path / "t.parquet", tmp_path / "set", ONE)


@pytest.mark.parametrize("kind", ["csv", "csv without a header", "csv with more", "jsonl", "jsonl with more"])
@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (["b", "a", "b"], [1, 0, 1]),
        ([2, 0, -1], [2, 0, -1]),
        (["007", "9", "007"], [0, 1, 0]),
        (["cat", "nan", "inf"], [0, 2, 1]),
        ([0.5, 2.0, -1.5], [0.5, 2.0, -1.5]),
        (["a", 0.5, 2], r"has the fraction '?0\.5'?.* and the name 'a'"),
        ([-2, 0, 1], r"has labels from -2 to 1; classes must be in \[-1, 10000000\]"),
        (["", "a", None], [-1, 0, -1]),
        (["", None, ""], [-1, -1, -1]),
    ],
)
def test_the_same_labels_are_the_same_in_every_form_of_a_table(
    tmp_path: Path, kind: str, labels: list[Any], wanted: Any
) -> None:
    if kind.startswith("csv"):
        more = ",x" if "more" in kind else ""
        head = "" if "without" in kind else f"path,label{more}\n"
        rows = [f"{i}.jpg,{'' if label is None else label}{more}\n" for i, label in enumerate(labels)]
        path = labelled(tmp_path, head + "".join(rows))
    else:
        more_keys = {"x": "x"} if "more" in kind else {}
        objects = [{"path": f"{i}.jpg", "label": label, **more_keys} for i, label in enumerate(labels)]
        path = labelled(tmp_path, "".join(json.dumps(row) + "\n" for row in objects), "jsonl")
    if "without" in kind and labels[0] == 0.5:
        wanted = "has labels with fractions, or truths; .* Write path,label as its first line"
    if isinstance(wanted, str):
        with pytest.raises(PackError, match=wanted) as caught:
            pack(path, tmp_path / "set", ONE)
        cures = re.findall(r"--field (label=[a-z0-9]+)", str(caught.value))
        assert bool(cures) == ("without" not in kind)
        for number, cure in enumerate(cures):  # each of them helps
            assert main(["pack", str(path), str(tmp_path / f"set-{number}"), "--quiet", "--field", cure]) == 0
        return
    pack(path, tmp_path / "set", ONE)
    dataset = PackedFiles(tmp_path / "set")
    is_number = isinstance(labels[0], float)
    found = [dataset.value("label", i) for i in range(3)] if is_number else dataset.labels.tolist()
    assert found == wanted


def test_names_keep_their_spaces_where_a_type_says_so(tmp_path: Path) -> None:
    made = pa.table({"image": [encoded(i) for i in range(3)], "label": [" a", "a", ""]})
    parquet.write_table(made, tmp_path / "t.parquet")
    pack(tmp_path / "t.parquet", tmp_path / "set", ONE)
    dataset = PackedFiles(tmp_path / "set")
    assert (dataset.classes, dataset.labels.tolist()) == ([" a", "a"], [0, 1, -1])


def test_the_pages_list_the_rules() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guide" / "packing.md").read_text(encoding="utf-8")
    for suffix in IMAGES:
        assert f"`{suffix}`" in text
    for word in ("--as classes", "--as splits", ".ipynb_checkpoints", "__MACOSX", "@eaDir", "__pycache__"):
        assert word in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_counts(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", "a", "b")
    (source / "b").chmod(0)
    try:
        with pytest.raises(PackError, match="b: cannot read the folder"):
            pack(source, tmp_path / "set", ONE)
    finally:
        (source / "b").chmod(0o755)
