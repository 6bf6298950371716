"""Sets in Ultralytics' format: boxes, outlines and points, and what is wrong with them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from annotated_trees import write_lines, write_photo, write_yolo, yolo_lines

import fastload
from fastload import Boxes, Image, Labels, Polygons
from fastload.errors import LibraryMissing, PackError
from fastload.packing.annotations.yolo import LabelRules, label_path, parse_labels, read_data_yaml
from fastload.packing.verify import verify
from fastload.sample.fields import Keypoints
from fastload.sample.schema import Field
from fastload.shard.dataset import PackedFiles

NAMES = ("cat", "big dog", "no: name")


def value(dataset: PackedFiles, name: str, sample: int) -> Any:
    return dataset.schema[name].decode(dataset.value_bytes(name, sample))


def boxes_of(lines: list[list[float]], kind: str) -> npt.NDArray[np.float32]:
    """What a label file's boxes are, in other words than the packer's."""
    if kind != "outlines":
        return np.array([line[1:5] for line in lines], np.float32).reshape(-1, 4)
    found = []
    for line in lines:
        points = np.array(line[1:]).reshape(-1, 2)
        low, high = points.min(0), points.max(0)
        found.append([*((low + high) / 2), *(high - low)])
    return np.array(found, np.float32).reshape(-1, 4)


@pytest.mark.parametrize("kind", ["boxes", "outlines", "points"])
def test_numbers_are_those_of_the_files(tmp_path: Path, kind: str) -> None:
    found = fastload.pack(write_yolo(tmp_path / "in", 10, kind), tmp_path / "out")
    assert [result.output.name for result in found] == ["train", "val"]
    for at, result in enumerate(found):
        dataset = PackedFiles(result.output)
        assert verify(result.output) == ([], 10)
        for i in range(10):
            lines = yolo_lines(100 * at + i, kind)
            assert dataset.key(i) == f"images/{result.output.name}/{i:03}.jpg"
            assert np.array_equal(value(dataset, "boxes", i), boxes_of(lines, kind))
            assert value(dataset, "labels", i).tolist() == [int(line[0]) for line in lines]
            size = np.array([40 + i, 30])
            if kind == "outlines":
                polygons = value(dataset, "masks", i)
                assert [len(one) for one in polygons] == [1] * len(lines)
                for (polygon,), line in zip(polygons, lines, strict=True):
                    assert np.array_equal(polygon, np.array(line[1:]).reshape(-1, 2) * size)
            if kind == "points":
                points = np.array([line[5:] for line in lines]).reshape(-1, 4, 3)
                points[..., :2] *= size
                assert np.array_equal(value(dataset, "keypoints", i), points.astype(np.float32))
        with open(tmp_path / "in" / dataset.key(0), "rb") as file:
            assert dataset.value_bytes("image", 0) == file.read()


def test_a_loader_gives_corners_in_pixels(tmp_path: Path) -> None:
    fastload.pack(write_yolo(tmp_path / "in", 6, splits=("train",)), tmp_path / "set")
    loader = fastload.DataLoader(tmp_path / "set", batch_size=6, collate="list", num_workers=1)
    images, targets = next(iter(loader))
    assert [tuple(image.shape) for image in images] == [(3, 30, 40 + i) for i in range(6)]
    for i, target in enumerate(targets):
        boxes = boxes_of(yolo_lines(i), "boxes").astype(np.float64)
        corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
        assert np.allclose(target["boxes"].numpy(), corners * [40 + i, 30, 40 + i, 30], atol=1e-4)
        assert target["labels"].tolist() == [int(line[0]) for line in yolo_lines(i)]


def test_fields(tmp_path: Path) -> None:
    common = [
        Field("image", Image()),
        Field("boxes", Boxes("cxcywh", relative=True)),
        Field("labels", Labels(NAMES), of="boxes"),
    ]
    further = {
        "boxes": [],
        "outlines": [Field("masks", Polygons("mixed"), of="boxes")],
        "points": [Field("keypoints", Keypoints(4, True, ((0, 1),)), of="boxes")],
    }
    for kind, fields in further.items():
        folder = tmp_path / kind
        fastload.pack(write_yolo(folder / "in", 3, kind), folder / "out")
        for split in ("train", "val"):
            assert list(PackedFiles(folder / "out" / split).schema) == [*common, *fields]


def test_found_by_its_yaml_or_its_folders(tmp_path: Path) -> None:
    write_yolo(tmp_path / "in", 4)
    by_folder = fastload.pack(tmp_path / "in", tmp_path / "a")
    by_file = fastload.pack(tmp_path / "in" / "data.yaml", tmp_path / "b")
    assert [one.manifest.id for one in by_folder] == [one.manifest.id for one in by_file]
    os.unlink(tmp_path / "in" / "data.yaml")
    (tmp_path / "in" / "labels" / "classes.txt").write_text("\n".join(NAMES))
    bare = fastload.pack(tmp_path / "in", tmp_path / "c")
    assert [one.manifest.id for one in bare] == [one.manifest.id for one in by_file]
    os.unlink(tmp_path / "in" / "labels" / "classes.txt")
    assert fastload.pack(tmp_path / "in", tmp_path / "d")[0].manifest.schema["labels"].kind == Labels()


BAD = {
    "0 0.5 0.5 0.2": "4 columns; must be 5",
    "0 0.5 0.5 0.2 0.2 0.9": "6 columns; must be 5",
    "0 0.5 0.5 0.2 nan": "not finite",
    "0 0.5 0.5 0.2 1e400": "not finite",
    "0 0.5 0.5 0.2 x": "could not convert string to float: 'x'",
    "3 0.5 0.5 0.2 0.2": "an integer from 0 to 2. Found: 3",
    "-1 0.5 0.5 0.2 0.2": "an integer from 0 to 2. Found: -1",
    "1.5 0.5 0.5 0.2 0.2": "an integer from 0 to 2. Found: 1.5",
    "1 1.02 0.5 0.2 0.2": "parts of the picture, 0 to 1. Found: 1.02",
    "1 -0.02 0.5 0.2 0.2": "parts of the picture, 0 to 1. Found: -0.02",
    "1 0.5 0.5 0 0.2": "no area: 0 x 0.2",
    "1 0.5 0.5 0.2 -0.005": "no area: 0.2 x -0.005",
    "1 0.5 0.5 0.5 0.6 0.5 0.7": "no area: 0 x 0.2",
    "0 0.4 0.4 0.1 0.1": "the same as line 1",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line(line: str) -> None:
    good = "0 0.4 0.4 0.1 0.1\n\n"
    objects, wrong = parse_labels(good + line, LabelRules(3))
    assert len(objects) == 1
    assert [(number, BAD[line] in reason) for number, reason in wrong] == [(3, True)]


def test_legal_lines() -> None:
    text = "0 1.01 -0.01 0.2 0.2\n\t2.0  0.5 0.5 .1 1e-1 \n1 0 0 0.5 0 1 1\n"
    objects, wrong = parse_labels(text, LabelRules(3))
    assert wrong == []
    assert [one.label for one in objects] == [0, 2, 1]
    assert objects[2].box == (0.5, 0.5, 1, 1)
    assert parse_labels("7 0.5 0.5 0.1 0.1", LabelRules(None))[1] == []
    pose = LabelRules(1, (2, 2))
    assert parse_labels("0 .5 .5 .1 .1 .2 .3 .4 .5", pose)[0][0].points == [0.2, 0.3, 0.4, 0.5]
    assert "5 columns; must be 9" in parse_labels("0 .5 .5 .1 .1", pose)[1][0][1]


def test_bad_annotations_are_listed_or_left_out(tmp_path: Path) -> None:
    write_yolo(tmp_path / "in", 5, splits=("train",))
    bad = tmp_path / "in" / "labels" / "train" / "001.txt"
    bad.write_text(f"9 0.5 0.5 0.1 0.1\n{bad.read_text()}0 0.5 0.5 0 0\n")
    with pytest.raises(PackError, match="2 annotations cannot be packed") as caught:
        fastload.pack(tmp_path / "in", tmp_path / "set")
    assert "images/train/001.jpg, line 1 of labels/train/001.txt: the class must be" in str(caught.value)
    (result,) = fastload.pack(tmp_path / "in", tmp_path / "set", on_error="skip")
    assert (result.manifest.num_records, result.manifest.skipped, result.manifest.left_out) == (5, 0, 2)
    lines = [json.loads(line) for line in (tmp_path / "set" / "skipped.jsonl").read_text().splitlines()]
    assert [(one["path"], one["annotation"]) for one in lines] == [
        ("images/train/001.jpg", "line 1 of labels/train/001.txt"),
        ("images/train/001.jpg", "line 3 of labels/train/001.txt"),
    ]
    assert result.skip_reasons()[0][1] == 1
    assert len(value(PackedFiles(tmp_path / "set"), "boxes", 1)) == 1


def test_label_files_without_a_picture(tmp_path: Path) -> None:
    write_yolo(tmp_path / "in", 3, splits=("train",))
    write_lines(tmp_path / "in" / "labels" / "train" / "sub" / "x.txt", yolo_lines(1))
    (tmp_path / "in" / "labels" / "train" / "001.txt").write_bytes(b"0 \xff")
    with pytest.raises(PackError, match="2 samples cannot be packed") as caught:
        fastload.pack(tmp_path / "in", tmp_path / "set")
    assert "labels/train/sub/x.txt: there is no picture" in str(caught.value)
    assert "is not UTF-8" in str(caught.value)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_pictures_that_exif_turns(tmp_path: Path, suffix: str) -> None:
    write_photo(tmp_path / "in" / "images" / f"a.{suffix}", 1, orientation=6)
    write_lines(tmp_path / "in" / "labels" / "a.txt", yolo_lines(1))
    with pytest.raises(
        PackError, match=r"EXIF turns this picture \(orientation 6\).*--exif ignore --restart"
    ):
        fastload.pack(tmp_path / "in", tmp_path / "set")
    fastload.pack(tmp_path / "in", tmp_path / "set", exif="ignore", restart=True)
    assert len(PackedFiles(tmp_path / "set")) == 1


def test_paths_of_labels() -> None:
    for picture, labels in {
        b"images/a.jpg": b"labels/a.txt",
        b"images/x/images/a.b.png": b"images/x/labels/a.b.txt",
        b"train/a.jpg": b"train/a.txt",
        b"images.jpg": b"images.txt",
    }.items():
        assert label_path(picture) == labels


def test_lists_of_pictures_and_several_folders(tmp_path: Path) -> None:
    write_yolo(tmp_path / "in", 6)
    (tmp_path / "in" / "some.txt").write_text(
        "./images/train/002.jpg\nimages/val/003.jpg\n\n./images/train/000.jpg\n"
    )
    (tmp_path / "in" / "data.yaml").write_text("train: [images/train, images/val]\nval: some.txt\nnc: 3\n")
    train, val = fastload.pack(tmp_path / "in", tmp_path / "out")
    assert (train.manifest.num_records, val.manifest.num_records) == (12, 3)
    dataset = PackedFiles(val.output)
    assert [dataset.key(i) for i in range(3)] == [
        "images/train/002.jpg",
        "images/val/003.jpg",
        "images/train/000.jpg",
    ]
    assert np.array_equal(value(dataset, "boxes", 1), boxes_of(yolo_lines(103), "boxes"))
    assert dataset.schema["labels"].kind == Labels(("class_0", "class_1", "class_2"))


def test_an_exporters_paths(tmp_path: Path) -> None:
    """Roboflow writes ../train/images beside train/."""
    write_photo(tmp_path / "in" / "train" / "images" / "a.jpg", 1)
    write_lines(tmp_path / "in" / "train" / "labels" / "a.txt", yolo_lines(1))
    (tmp_path / "in" / "data.yaml").write_text("train: ../train/images\nnc: 3\nnames: ['a', 'b', 'c']\n")
    fastload.pack(tmp_path / "in", tmp_path / "set")
    assert PackedFiles(tmp_path / "set").key(0) == "train/images/a.jpg"


WRONG = {
    "train: images\nnames: {0: a, 2: b}\n": "numbered from 0 to 1",
    "train: images\nnames: []\n": "'names' must be",
    "train: images\nnc: 3\nnames: [a]\n": "'nc' is 3, and there are 1 names",
    "train: nowhere\nnames: [a]\n": "'nowhere', and .*nowhere does not exist",
    "train: 7\nnames: [a]\n": "'train' must be a folder",
    "train: images\nnames: [a]\nkpt_shape: [4, 4]\n": "'kpt_shape' must be",
    "train: images\nnames: [a]\nkpt_shape: [3, 3]\nflip_idx: [1, 2, 0]\n": "change points in pairs",
    "train: images\nnames: [a]\nkpt_shape: [3, 3]\nflip_idx: [0, 0, 1]\n": "each point from 0 to 2 once",
    "train: images\nnames: [a\n": "cannot be read",
    "- a\n": "has no keys",
    "names: &a [b]\ntrain: *a\n": "aliases",
    "nc: !!int ''\n": "cannot be read: a value is not what its tag says",
    "nc: !!bool x\n": "cannot be read: a value is not what its tag says",
    "nc: !!timestamp x\n": "cannot be read: a value is not what its tag says",
    "nc: 2001-99-99\n": "cannot be read: month must be",
    f"nc: {'[' * 5000}{']' * 5000}\n": "cannot be read: .*recursion",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_yaml_that_is_wrong(tmp_path: Path, text: str) -> None:
    write_photo(tmp_path / "images" / "a.jpg", 1)
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(PackError, match=WRONG[text]):
        read_data_yaml(tmp_path / "data.yaml")


@pytest.mark.parametrize("asked", ["in", "in/data.yaml"])
def test_without_pyyaml_nothing_is_written(
    tmp_path: Path, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_yolo(tmp_path / "in", 2, "boxes")
    monkeypatch.setitem(sys.modules, "yaml", None)
    words = r"YOLO's data.yaml needs PyYAML, which .*: pip install \"fastload\[yaml\]\""
    with pytest.raises(LibraryMissing, match=words):
        fastload.pack(tmp_path / asked, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_classes_with_some_yaml_stays_one(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_photo(tmp_path / "in" / name / "a.jpg", 1)
    (tmp_path / "in" / "data.yaml").write_text("licence: mine\n")
    assert fastload.pack(tmp_path / "in", tmp_path / "set")[0].manifest.is_plain
